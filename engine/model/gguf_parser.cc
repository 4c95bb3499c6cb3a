#include "engine/model/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace kvist::engine {
namespace {

// Value types, numbered as in the file.
enum ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF" read as little-endian
constexpr std::uint32_t kOldestVersion = 2;
constexpr std::uint32_t kNewestVersion = 3;

// Real files hold some 50 keys and under 3 000 tensors; these bound what a crafted file makes us allocate.
constexpr std::uint64_t kMaxMetadataKeys = 65'536;
constexpr std::uint64_t kMaxTensors = 65'536;
constexpr std::uint64_t kMaxKeyBytes = 65'535;     // the format's own limit
constexpr std::uint64_t kMaxTensorNameBytes = 64;  // the format's own limit
constexpr std::uint32_t kMaxTensorDims = 4;        // the format's own limit
constexpr int kMaxArrayDepth = 4;                  // real files do not nest at all; recursion must end
// Memory the parsed metadata may take. A vocabulary of 262k tokens with merges takes about 40 MiB.
constexpr std::uint64_t kMaxMetadataMemoryBytes = 512ull << 20;
constexpr std::uint64_t kMaxAlignmentBytes = 1ull << 20;  // real files use 32
constexpr std::uint64_t kDefaultAlignmentBytes = 32;
// Smallest records: key length + type + one byte; name length + dim count + one dim + type + offset.
constexpr std::uint64_t kMinMetadataBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;

// Fewest bytes one array element takes in the file; 0 for an unknown type.
std::uint64_t MinElementBytes(std::uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
    case kString:
      return 8;
    case kArray:
      return 12;
    default:
      return 0;
  }
}

}  // namespace

GgufParser::GgufParser(GgufFile* file) : file_(file), reader_(file->mapping_) {}

absl::Status GgufParser::Parse() {
  ParseHeader();
  ParseMetadata();
  ParseTensorInfo();
  PlaceTensors();
  return reader_.status();
}

void GgufParser::ParseHeader() {
  const auto magic = reader_.Read<std::uint32_t>("the magic number");
  if (reader_.ok() && magic != kMagic) {
    return reader_.FailAt(0, fmt::format("magic number is {:#010x}, not \"GGUF\": not a GGUF file", magic));
  }
  const auto version = reader_.Read<std::uint32_t>("the version");
  if (!reader_.ok()) return;
  if ((version & 0xffffu) == 0 && version != 0) {
    return reader_.FailAt(
        4, fmt::format("version is {:#010x}: a big-endian GGUF file; convert it to little-endian", version));
  }
  if (version < kOldestVersion || version > kNewestVersion) {
    return reader_.FailAt(4, fmt::format("GGUF version {} is not supported (this build reads {} and {})", version,
                                         kOldestVersion, kNewestVersion));
  }
  file_->version_ = version;

  std::size_t at = reader_.position();
  tensor_count_ = reader_.Read<std::uint64_t>("the tensor count");
  if (tensor_count_ > kMaxTensors || tensor_count_ > reader_.remaining() / kMinTensorInfoBytes) {
    reader_.FailAt(at, fmt::format("tensor count {} is more than the file can hold ({} bytes left, at most {} tensors)",
                                   tensor_count_, reader_.remaining(), kMaxTensors));
  }
  at = reader_.position();
  metadata_count_ = reader_.Read<std::uint64_t>("the metadata count");
  if (metadata_count_ > kMaxMetadataKeys || metadata_count_ > reader_.remaining() / kMinMetadataBytes) {
    reader_.FailAt(at, fmt::format("metadata count {} is more than the file can hold ({} bytes left, at most {} keys)",
                                   metadata_count_, reader_.remaining(), kMaxMetadataKeys));
  }
}

void GgufParser::ParseMetadata() {
  for (std::uint64_t i = 0; i < metadata_count_ && reader_.ok(); ++i) {
    const std::size_t at = reader_.position();
    std::string key(reader_.ReadString(kMaxKeyBytes, fmt::format("metadata key {}", i)));
    const auto type = reader_.Read<std::uint32_t>(fmt::format("the type of metadata key {}", i));
    if (!reader_.ok()) return;
    if (key.empty()) return reader_.FailAt(at, fmt::format("metadata key {} is empty", i));
    if (file_->metadata_.contains(key)) {
      return reader_.FailAt(at, fmt::format("metadata key \"{}\" stands twice", key));
    }
    if (!Charge(sizeof(std::string) + key.size() + sizeof(GgufValue), key)) return;
    GgufValue value = ParseValue(type, 0, key);
    file_->metadata_.emplace(std::move(key), std::move(value));
  }
}

GgufValue GgufParser::ParseValue(std::uint32_t type, int depth, std::string_view key) {
  const std::size_t at = reader_.position();
  const auto u64 = [](auto value) { return GgufValue(static_cast<std::uint64_t>(value)); };
  const auto i64 = [](auto value) { return GgufValue(static_cast<std::int64_t>(value)); };
  switch (type) {
    case kU8:
      return u64(reader_.Read<std::uint8_t>(key));
    case kU16:
      return u64(reader_.Read<std::uint16_t>(key));
    case kU32:
      return u64(reader_.Read<std::uint32_t>(key));
    case kU64:
      return u64(reader_.Read<std::uint64_t>(key));
    case kI8:
      return i64(reader_.Read<std::int8_t>(key));
    case kI16:
      return i64(reader_.Read<std::int16_t>(key));
    case kI32:
      return i64(reader_.Read<std::int32_t>(key));
    case kI64:
      return i64(reader_.Read<std::int64_t>(key));
    case kF32:
      return GgufValue(static_cast<double>(reader_.Read<float>(key)));
    case kF64:
      return GgufValue(reader_.Read<double>(key));
    case kBool: {
      const auto raw = reader_.Read<std::uint8_t>(key);  // as a byte: a bool other than 0 and 1 is undefined
      if (raw > 1) reader_.FailAt(at, fmt::format("\"{}\" is a bool of value {}", key, raw));
      return GgufValue(raw == 1);
    }
    case kString: {
      const std::string_view text = reader_.ReadString(kMaxMetadataMemoryBytes, key);
      if (!Charge(sizeof(std::string) + text.size(), key)) return GgufValue(false);
      return GgufValue(std::string(text));
    }
    case kArray:
      return ParseArray(depth, key);
    default:
      reader_.FailAt(at, fmt::format("\"{}\" has unknown value type {}", key, type));
      return GgufValue(false);
  }
}

GgufValue GgufParser::ParseArray(int depth, std::string_view key) {
  auto array = std::make_shared<GgufArray>();
  const std::size_t at = reader_.position();
  const auto type = reader_.Read<std::uint32_t>(key);
  const auto count = reader_.Read<std::uint64_t>(key);
  if (!reader_.ok()) return array;
  const std::uint64_t element_bytes = MinElementBytes(type);
  if (element_bytes == 0) {
    reader_.FailAt(at, fmt::format("\"{}\" is an array of unknown value type {}", key, type));
  } else if (depth >= kMaxArrayDepth) {
    reader_.FailAt(at, fmt::format("\"{}\" nests arrays deeper than {}", key, kMaxArrayDepth));
  } else if (count > reader_.remaining() / element_bytes) {
    reader_.FailAt(at, fmt::format("\"{}\" claims {} elements, but the file has only {} bytes left", key, count,
                                   reader_.remaining()));
  } else {
    ParseElements(type, count, depth, key, *array);
  }
  return array;
}

void GgufParser::ParseElements(std::uint32_t type, std::uint64_t count, int depth, std::string_view key,
                               GgufArray& array) {
  // The vectors grow as elements arrive where those vary in size; fixed-size ones were checked against the file.
  const auto size = static_cast<std::size_t>(count);
  const bool is_float = type == kF32 || type == kF64;
  if (type == kArray) {
    for (std::size_t i = 0; i < size && reader_.ok(); ++i) {
      // An allocation, its control block and the array's own members.
      if (!Charge(sizeof(GgufArray) + sizeof(GgufValue) + 64, key)) return;
      array.nested.push_back(ParseArray(depth + 1, key));
    }
  } else if (type == kString) {
    for (std::size_t i = 0; i < size && reader_.ok(); ++i) {
      const std::string_view text = reader_.ReadString(kMaxMetadataMemoryBytes, key);
      if (!Charge(sizeof(std::string) + text.size(), key)) return;
      array.strings.emplace_back(text);
    }
  } else {
    if (!Charge(count * sizeof(double), key)) return;  // count <= file size: no overflow
    if (is_float) array.floats.reserve(size);
    if (!is_float) array.integers.reserve(size);
    for (std::size_t i = 0; i < size && reader_.ok(); ++i) {
      const std::size_t at = reader_.position();
      const GgufValue value = ParseValue(type, depth, key);
      if (const auto* f = std::get_if<double>(&value)) array.floats.push_back(*f);
      if (const auto* s = std::get_if<std::int64_t>(&value)) array.integers.push_back(*s);
      if (const auto* b = std::get_if<bool>(&value)) array.integers.push_back(*b ? 1 : 0);
      if (const auto* u = std::get_if<std::uint64_t>(&value)) {
        if (*u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
          return reader_.FailAt(at, fmt::format("\"{}\" has element {}, above the largest int64", key, *u));
        }
        array.integers.push_back(static_cast<std::int64_t>(*u));
      }
    }
  }
  array.size = size;
}

bool GgufParser::Charge(std::uint64_t bytes, std::string_view key) {
  metadata_memory_bytes_ += bytes;
  if (metadata_memory_bytes_ <= kMaxMetadataMemoryBytes) return reader_.ok();
  reader_.Fail(
      fmt::format("metadata up to \"{}\" takes more than {} MiB of memory", key, kMaxMetadataMemoryBytes >> 20));
  return false;
}

void GgufParser::ParseTensorInfo() {
  for (std::uint64_t i = 0; i < tensor_count_ && reader_.ok(); ++i) {
    PendingTensor pending;
    pending.record_at = reader_.position();
    GgufTensor tensor{};
    tensor.name = reader_.ReadString(kMaxTensorNameBytes, fmt::format("the name of tensor {}", i));
    if (!reader_.ok()) return;
    if (tensor.name.empty()) return reader_.FailAt(pending.record_at, fmt::format("tensor {} has no name", i));
    if (!file_->tensor_index_.emplace(tensor.name, file_->tensors_.size()).second) {
      return reader_.FailAt(pending.record_at, fmt::format("tensor \"{}\" stands twice", tensor.name));
    }
    ParseShape(tensor, pending);
    pending_.push_back(pending);
    file_->tensors_.push_back(std::move(tensor));
  }
}

void GgufParser::ParseShape(GgufTensor& tensor, PendingTensor& pending) {
  const std::string what = fmt::format("the record of tensor \"{}\"", tensor.name);
  const std::size_t at = reader_.position();
  const auto dims = reader_.Read<std::uint32_t>(what);
  if (reader_.ok() && (dims == 0 || dims > kMaxTensorDims)) {
    return reader_.FailAt(
        at, fmt::format("tensor \"{}\" has {} dimensions, not 1 to {}", tensor.name, dims, kMaxTensorDims));
  }
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < dims && reader_.ok(); ++d) {
    const std::size_t dim_at = reader_.position();
    const auto dim = reader_.Read<std::uint64_t>(what);
    tensor.dims.push_back(dim);
    if (reader_.ok() && dim == 0) {
      reader_.FailAt(dim_at, fmt::format("dimension {} of tensor \"{}\" is zero", d, tensor.name));
    } else if (__builtin_mul_overflow(elements, dim, &elements)) {
      reader_.FailAt(dim_at, fmt::format("the dimensions of tensor \"{}\" multiply past 2^64", tensor.name));
    }
  }
  const std::size_t type_at = reader_.position();
  const auto type = reader_.Read<std::uint32_t>(what);
  pending.offset = reader_.Read<std::uint64_t>(what);
  if (!reader_.ok()) return;
  const auto info = kernels::FindTensorType(type);
  if (!info.has_value()) {
    const std::string_view name = kernels::GgmlTypeName(type);
    return reader_.FailAt(
        type_at, fmt::format("tensor \"{}\" has type {} ({}), which is not supported", tensor.name, name, type));
  }
  tensor.type = static_cast<kernels::TensorType>(type);
  if (tensor.dims[0] % info->block_elements != 0) {
    return reader_.FailAt(at, fmt::format("rows of tensor \"{}\" have {} elements, not a multiple of {}'s block of {}",
                                          tensor.name, tensor.dims[0], info->name, info->block_elements));
  }
  if (__builtin_mul_overflow(elements / info->block_elements, std::uint64_t{info->block_bytes}, &pending.bytes)) {
    reader_.FailAt(at, fmt::format("the size of tensor \"{}\" is past 2^64 bytes", tensor.name));
  }
}

std::uint64_t GgufParser::Alignment() {
  if (file_->Find("general.alignment") == nullptr) return kDefaultAlignmentBytes;
  const absl::StatusOr<std::uint64_t> alignment = file_->U64("general.alignment");
  // At least 8, as the format says: tensors are read in place.
  if (!alignment.ok() || *alignment < 8 || *alignment > kMaxAlignmentBytes || (*alignment & (*alignment - 1)) != 0) {
    reader_.Fail(fmt::format("general.alignment is not a power of two from 8 to {}", kMaxAlignmentBytes));
    return kDefaultAlignmentBytes;
  }
  return *alignment;
}

void GgufParser::PlaceTensors() {
  if (!reader_.ok()) return;
  const std::uint64_t alignment = Alignment();
  if (file_->tensors_.empty()) return;
  const std::uint64_t start = (reader_.position() + alignment - 1) / alignment * alignment;  // both small: no overflow
  const std::uint64_t data_bytes = file_->mapping_.size() > start ? file_->mapping_.size() - start : 0;
  for (std::size_t i = 0; i < pending_.size() && reader_.ok(); ++i) {
    const PendingTensor& pending = pending_[i];
    GgufTensor& tensor = file_->tensors_[i];
    if (pending.offset % alignment != 0) {
      reader_.FailAt(pending.record_at, fmt::format("offset {} of tensor \"{}\" is not a multiple of the alignment {}",
                                                    pending.offset, tensor.name, alignment));
    } else if (pending.offset > data_bytes || pending.bytes > data_bytes - pending.offset) {
      reader_.FailAt(pending.record_at,
                     fmt::format("tensor \"{}\" ends past the end of the file (offset {}, {} bytes; the data section "
                                 "has {}): the file is truncated or corrupted",
                                 tensor.name, pending.offset, pending.bytes, data_bytes));
    } else {
      tensor.data = file_->mapping_.subspan(static_cast<std::size_t>(start + pending.offset),
                                            static_cast<std::size_t>(pending.bytes));
    }
  }
}

}  // namespace kvist::engine

#include "tests/engine/gguf_writer.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

namespace kvist::engine {
namespace {

constexpr std::uint32_t kTypeU32 = 4, kTypeI32 = 5, kTypeF32 = 6, kTypeBool = 7, kTypeString = 8, kTypeArray = 9;

std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

std::string GgufString(std::string_view text) { return LittleEndian(std::uint64_t{text.size()}).append(text); }

void GgufWriter::AddRaw(std::string_view key, std::uint32_t type, std::string_view bytes) {
  metadata_.append(GgufString(key)).append(LittleEndian(type)).append(bytes);
  ++metadata_count_;
}

void GgufWriter::AddU32(std::string_view key, std::uint32_t value) { AddRaw(key, kTypeU32, LittleEndian(value)); }
void GgufWriter::AddF32(std::string_view key, float value) { AddRaw(key, kTypeF32, LittleEndian(value)); }
void GgufWriter::AddBool(std::string_view key, bool value) {
  AddRaw(key, kTypeBool, value ? "\x01" : std::string(1, '\0'));
}
void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddRaw(key, kTypeString, GgufString(value));
}

void GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = LittleEndian(kTypeString) + LittleEndian(std::uint64_t{values.size()});
  for (const std::string& value : values) bytes += GgufString(value);
  AddRaw(key, kTypeArray, bytes);
}

void GgufWriter::AddI32s(std::string_view key, const std::vector<std::int32_t>& values) {
  std::string bytes = LittleEndian(kTypeI32) + LittleEndian(std::uint64_t{values.size()});
  for (const std::int32_t value : values) bytes += LittleEndian(value);
  AddRaw(key, kTypeArray, bytes);
}

void GgufWriter::AddTensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t ggml_type,
                           std::string data) {
  const std::uint64_t offset = AlignUp(data_bytes_, alignment_);
  data_bytes_ = offset + data.size();
  tensors_.push_back({std::string(name), dims, ggml_type, std::move(data), offset});
}

void GgufWriter::OverrideOffset(std::uint64_t offset) { tensors_.back().offset = offset; }

std::string GgufWriter::Header() const {
  std::string out = "GGUF";
  out += LittleEndian(version_);
  out += LittleEndian(std::uint64_t{tensors_.size()});
  const bool own_alignment = alignment_ != 32;
  out += LittleEndian(metadata_count_ + (own_alignment ? 1 : 0));
  if (own_alignment) {
    out +=
        GgufString("general.alignment") + LittleEndian(kTypeU32) + LittleEndian(static_cast<std::uint32_t>(alignment_));
  }
  out += metadata_;
  for (const Tensor& tensor : tensors_) {
    out += GgufString(tensor.name) + LittleEndian(static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::uint64_t dim : tensor.dims) out += LittleEndian(dim);
    out += LittleEndian(tensor.type) + LittleEndian(tensor.offset);
  }
  return out;
}

std::size_t GgufWriter::HeaderBytes() const { return Header().size(); }

std::string GgufWriter::Build() const {
  std::string out = Header();
  out.resize(AlignUp(out.size(), alignment_));
  const std::size_t start = out.size();
  for (const Tensor& tensor : tensors_) {
    out.resize(start + AlignUp(out.size() - start, alignment_));
    out += tensor.data;
  }
  return out;
}

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return absl::InternalError(fmt::format("cannot write {}", path));
  return absl::OkStatus();
}

}  // namespace kvist::engine

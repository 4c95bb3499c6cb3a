#include "engine/model/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "engine/model/gguf_parser.h"

namespace kvist::engine {
namespace {

// Maps a whole regular file read-only. A file that another process shrinks while it is mapped raises SIGBUS on the
// next touch past its new end: no check can prevent that, so model files must be replaced by rename, not in place.
absl::StatusOr<std::span<const std::byte>> MapFile(const std::string& path) {
  // Non-blocking: opening a FIFO must not hang.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot open model file {}", path));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, fmt::format("cannot stat model file {}", path));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(fmt::format("{} is not a regular file", path));
  if (info.st_size == 0) return absl::InvalidArgumentError(fmt::format("{}: byte 0: the file is empty", path));
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, fmt::format("cannot map model file {}", path));
  return std::span(static_cast<const std::byte*>(address), size);
}

absl::Status Missing(std::string_view key) {
  return absl::NotFoundError(fmt::format("the model file has no metadata key \"{}\"", key));
}

absl::Status WrongType(std::string_view key, std::string_view wanted) {
  return absl::InvalidArgumentError(fmt::format("metadata key \"{}\" is not {}", key, wanted));
}

}  // namespace

std::uint64_t GgufTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t dim : dims) product *= dim;  // the parser refused products past 2^64
  return product;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  absl::StatusOr<std::span<const std::byte>> mapping = MapFile(path);
  if (!mapping.ok()) return mapping.status();
  auto file = absl::WrapUnique(new GgufFile);  // private constructor
  file->path_ = path;
  file->mapping_ = *mapping;
  const absl::Status parsed = GgufParser(file.get()).Parse();
  if (!parsed.ok()) {
    return absl::Status(parsed.code(), fmt::format("{}: {}", path, std::string(parsed.message())));
  }
  return file;
}

GgufFile::~GgufFile() {
  if (!mapping_.empty()) munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = metadata_.find(std::string(key));
  return it == metadata_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::uint64_t> GgufFile::U64(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* u = std::get_if<std::uint64_t>(value)) return *u;
  if (const auto* s = std::get_if<std::int64_t>(value); s != nullptr && *s >= 0) return static_cast<std::uint64_t>(*s);
  return WrongType(key, "a non-negative integer");
}

absl::StatusOr<double> GgufFile::F64(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* f = std::get_if<double>(value)) return *f;
  return WrongType(key, "a floating-point number");
}

absl::StatusOr<std::string> GgufFile::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* s = std::get_if<std::string>(value)) return *s;
  return WrongType(key, "a string");
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* b = std::get_if<bool>(value)) return *b;
  return WrongType(key, "a bool");
}

absl::StatusOr<std::shared_ptr<const GgufArray>> GgufFile::Array(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* a = std::get_if<std::shared_ptr<GgufArray>>(value)) return std::shared_ptr<const GgufArray>(*a);
  return WrongType(key, "an array");
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(std::string(name));
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Digest128 GgufFile::Fingerprint() const {
  const XXH128_hash_t hash = XXH3_128bits(mapping_.data(), mapping_.size());
  return {hash.high64, hash.low64};
}

}  // namespace kvist::engine

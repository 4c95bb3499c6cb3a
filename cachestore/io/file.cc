#include "cachestore/io/file.h"

#include "fmt/format.h"

namespace kvist {

absl::Status ReadFull(File& file, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    absl::StatusOr<std::size_t> n = file.ReadAt(offset, into);
    if (!n.ok()) return n.status();
    if (*n == 0)
      return absl::OutOfRangeError(fmt::format("{} ends before offset {}", file.path(), offset + into.size()));
    offset += *n;
    into = into.subspan(*n);
  }
  return absl::OkStatus();
}

absl::Status WriteFull(File& file, std::uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    absl::StatusOr<std::size_t> n = file.WriteAt(offset, from);
    if (!n.ok()) return n.status();
    if (*n == 0) return absl::UnavailableError(fmt::format("{} takes no bytes at offset {}", file.path(), offset));
    offset += *n;
    from = from.subspan(*n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(FileSystem& fs, const std::string& path, std::size_t limit_bytes) {
  absl::StatusOr<std::unique_ptr<File>> file = fs.Open(path, {});
  if (!file.ok()) return file.status();
  absl::StatusOr<std::uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  if (*size > limit_bytes) {
    return absl::FailedPreconditionError(fmt::format("{} has {} bytes, more than {}", path, *size, limit_bytes));
  }
  std::string text(*size, '\0');
  absl::Status read = ReadFull(**file, 0, std::as_writable_bytes(std::span<char>(text)));
  if (!read.ok()) return read;
  return text;
}

absl::Status ReplaceFile(FileSystem& fs, const std::string& path, std::string_view contents) {
  const std::string beside = path + ".tmp";
  {
    absl::StatusOr<std::unique_ptr<File>> file = fs.Open(beside, {.create = true, .direct = false});
    if (!file.ok()) return file.status();
    absl::Status status = (*file)->Resize(0);
    if (status.ok()) status = WriteFull(**file, 0, std::as_bytes(std::span<const char>(contents)));
    if (status.ok()) status = (*file)->SyncData();
    if (!status.ok()) return status;
  }
  absl::Status renamed = fs.Rename(beside, path);
  if (!renamed.ok()) return renamed;
  return fs.SyncDirectory(path.substr(0, path.rfind('/') + 1));
}

}  // namespace kvist

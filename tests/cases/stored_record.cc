#include "tests/cases/stored_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cachestore/tier/block_record.h"

namespace kvist {

std::optional<StoredRecord> FindStoredRecord(const std::string& store_directory, const BlockKey& key) {
  for (const auto& entry : std::filesystem::directory_iterator(store_directory + "/segments")) {
    if (!entry.is_regular_file()) continue;
    std::vector<std::byte> bytes(entry.file_size());
    std::ifstream file(entry.path(), std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    for (std::size_t at = 0; at + kRecordAlignment <= bytes.size(); at += kRecordAlignment) {
      const auto header = ReadRecordHeader(std::span(bytes).subspan(at));
      if (!header.ok() || header->key != key) continue;
      return StoredRecord{.file = entry.path(),
                          .offset = at,
                          .header_bytes = header->shape.header_bytes(),
                          .record_bytes = header->shape.record_bytes()};
    }
  }
  return std::nullopt;
}

void InvertStoredBytes(const StoredRecord& record, std::size_t at, std::size_t count) {
  const int fd = open(record.file.c_str(), O_RDWR | O_CLOEXEC);
  std::vector<unsigned char> bytes(count);
  const auto offset = static_cast<off_t>(record.offset + at);
  if (fd < 0 || pread(fd, bytes.data(), count, offset) != static_cast<ssize_t>(count)) std::abort();
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(~byte);
  if (pwrite(fd, bytes.data(), count, offset) != static_cast<ssize_t>(count) || fsync(fd) != 0) std::abort();
  close(fd);
}

}  // namespace kvist

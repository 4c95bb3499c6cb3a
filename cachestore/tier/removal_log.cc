#include "cachestore/tier/removal_log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "xxhash.h"

namespace kvist {
namespace {

static_assert(std::endian::native == std::endian::little, "the log is little-endian; this host needs conversions");

// The head: magic, version, size of an entry.
constexpr std::string_view kHead{"KVISTDEL\x01\0\0\0\x30\0\0\0", 16};
constexpr std::size_t kEntryBytes = 48;
constexpr std::size_t kChecksumAt = 40;
// Below this there is nothing to gain.
constexpr std::uint64_t kCompactBytesMin = std::uint64_t{1} << 20;

using EntryBytes = std::array<std::byte, kEntryBytes>;

template <typename T>
void Put(EntryBytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <typename T>
T Get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

EntryBytes Encode(const RemovedExtent& removal) {
  EntryBytes bytes{};
  Put(bytes, 0, static_cast<std::uint32_t>(removal.kind));
  Put(bytes, 8, removal.segment);
  Put(bytes, 16, removal.generation);
  Put(bytes, 24, removal.begin);
  Put(bytes, 32, removal.end);
  Put(bytes, kChecksumAt, static_cast<std::uint64_t>(XXH3_64bits(bytes.data(), kChecksumAt)));
  return bytes;
}

bool Decode(std::span<const std::byte> bytes, RemovedExtent& removal) {
  if (Get<std::uint64_t>(bytes, kChecksumAt) != XXH3_64bits(bytes.data(), kChecksumAt)) return false;
  const auto kind = Get<std::uint32_t>(bytes, 0);
  removal = {static_cast<RemovedExtent::Kind>(kind), Get<std::uint64_t>(bytes, 8), Get<std::uint64_t>(bytes, 16),
             Get<std::uint64_t>(bytes, 24), Get<std::uint64_t>(bytes, 32)};
  return kind == 1 || kind == 2;
}

}  // namespace

absl::StatusOr<RemovalLogContents> ReadRemovalLog(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::unique_ptr<File>> file = fs.Open(path, {});
  if (!file.ok()) return file.status();
  absl::StatusOr<std::uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  std::vector<std::byte> bytes(*size);
  if (absl::Status s = ReadFull(**file, 0, bytes); !s.ok()) return s;
  RemovalLogContents contents;
  if (bytes.size() < kHead.size() || std::memcmp(bytes.data(), kHead.data(), kHead.size()) != 0) {
    contents.head_damaged = true;
    return contents;
  }
  contents.bytes = kHead.size();
  for (; contents.bytes + kEntryBytes <= bytes.size(); contents.bytes += kEntryBytes) {
    RemovedExtent removal;
    if (Decode(std::span(bytes).subspan(contents.bytes, kEntryBytes), removal)) {
      contents.removals.push_back(removal);
    } else {
      ++contents.damaged;
    }
  }
  return contents;
}

absl::Status WriteRemovalLog(FileSystem& fs, const std::string& path, std::span<const RemovedExtent> removals) {
  std::string text(kHead);
  for (const RemovedExtent& removal : removals) {
    const EntryBytes entry = Encode(removal);
    text.append(reinterpret_cast<const char*>(entry.data()), entry.size());
  }
  return ReplaceFile(fs, path, text);
}

absl::StatusOr<std::unique_ptr<RemovalLog>> RemovalLog::Open(FileSystem* fs, const std::string& path,
                                                             bool after_crash) {
  absl::StatusOr<RemovalLogContents> contents = ReadRemovalLog(*fs, path);
  if (!contents.ok() && !absl::IsNotFound(contents.status())) return contents.status();
  if (!contents.ok() || contents->head_damaged) {
    if (contents.ok()) spdlog::error("{} is damaged and begun anew: a rebuilt index may hold evicted blocks", path);
    if (absl::Status s = WriteRemovalLog(*fs, path, {}); !s.ok()) return s;
  } else if (after_crash && contents->damaged > 0) {
    spdlog::warn("{}: {} entries were lost with the power; a rebuilt index may hold the blocks that they removed", path,
                 contents->damaged);
    if (absl::Status s = WriteRemovalLog(*fs, path, contents->removals); !s.ok()) return s;
    contents->bytes = kHead.size() + contents->removals.size() * kEntryBytes;
  }
  auto log = std::unique_ptr<RemovalLog>(new RemovalLog(fs, path));
  log->bytes_ = log->compacted_bytes_ = contents.ok() && !contents->head_damaged ? contents->bytes : kHead.size();
  if (absl::Status s = log->Reopen(); !s.ok()) return s;
  const absl::StatusOr<std::uint64_t> size = log->file_->Size();
  if (!size.ok()) return size.status();
  if (*size > log->bytes_) {
    if (absl::Status s = log->file_->Resize(log->bytes_); !s.ok()) return s;
  }
  return log;
}

absl::Status RemovalLog::Reopen() {
  file_.reset();
  absl::StatusOr<std::unique_ptr<File>> file = fs_.Open(path_, {});
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  return absl::OkStatus();
}

void RemovalLog::Append(std::span<const RemovedExtent> removals) {
  if (removals.empty()) return;
  std::vector<std::byte> bytes;
  bytes.reserve(removals.size() * kEntryBytes);
  for (const RemovedExtent& removal : removals) {
    const EntryBytes entry = Encode(removal);
    bytes.insert(bytes.end(), entry.begin(), entry.end());
  }
  absl::Status written = file_ == nullptr ? Reopen() : absl::OkStatus();
  if (written.ok()) written = WriteFull(*file_, bytes_, bytes);
  if (written.ok()) {
    bytes_ += bytes.size();
  } else if (!std::exchange(complained_, true)) {
    spdlog::warn("{}: a rebuilt index may hold some blocks that were evicted", std::string(written.message()));
  }
}

bool RemovalLog::wants_compaction() const { return bytes_ > 2 * compacted_bytes_ + kCompactBytesMin; }

absl::Status RemovalLog::Compact(const std::function<bool(std::uint64_t, std::uint64_t)>& current) {
  absl::StatusOr<RemovalLogContents> contents = ReadRemovalLog(fs_, path_);
  if (!contents.ok()) return contents.status();
  const std::size_t before = contents->removals.size();
  std::erase_if(contents->removals, [&](const RemovedExtent& r) { return !current(r.segment, r.generation); });
  compacted_bytes_ = bytes_;
  // Damaged entries stay, for fsck to find, while nothing else calls for a new file.
  if (contents->removals.size() == before) return absl::OkStatus();
  if (absl::Status s = WriteRemovalLog(fs_, path_, contents->removals); !s.ok()) return s;
  bytes_ = compacted_bytes_ = kHead.size() + contents->removals.size() * kEntryBytes;
  return Reopen();
}

}  // namespace kvist

#include "tests/power_cut/power_ledger.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace kvist {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlockBytes = 4096;  // what a device writes whole

std::string Parent(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

PowerLedger::WriteId PowerLedger::BeginWrite(const std::string& path, std::uint64_t offset,
                                             std::vector<std::byte> before) {
  absl::MutexLock lock(&mutex_);
  writes_.emplace(next_, Write{path, offset, std::move(before)});
  return next_++;
}

void PowerLedger::EndWrite(WriteId id) {
  absl::MutexLock lock(&mutex_);
  writes_.at(id).ended = true;
}

std::vector<PowerLedger::WriteId> PowerLedger::Ended(const std::string& path) const {
  absl::MutexLock lock(&mutex_);
  std::vector<WriteId> ended;
  for (const auto& [id, write] : writes_) {
    if (write.ended && write.path == path) ended.push_back(id);
  }
  return ended;
}

void PowerLedger::Forget(const std::vector<WriteId>& writes) {
  absl::MutexLock lock(&mutex_);
  for (const WriteId id : writes) writes_.erase(id);
}

void PowerLedger::Appendable(const std::string& path, std::uint64_t synced) {
  absl::MutexLock lock(&mutex_);
  appends_[path] = {synced, synced};
}

void PowerLedger::Appended(const std::string& path, std::uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  appends_[path].size += bytes;
}

void PowerLedger::Truncated(const std::string& path, std::uint64_t size) {
  absl::MutexLock lock(&mutex_);
  Appends& file = appends_[path];
  file = {size, std::min(file.synced, size)};
}

std::uint64_t PowerLedger::AppendedSize(const std::string& path) const {
  absl::MutexLock lock(&mutex_);
  const auto it = appends_.find(path);
  return it == appends_.end() ? 0 : it->second.size;
}

void PowerLedger::AppendsSynced(const std::string& path, std::uint64_t size) {
  absl::MutexLock lock(&mutex_);
  Appends& file = appends_[path];
  file.synced = std::max(file.synced, size);
}

void PowerLedger::EntryCreated(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  created_.insert(path);
}

void PowerLedger::EntryRenamed(const std::string& from, const std::string& to, std::optional<std::string> replaced) {
  absl::MutexLock lock(&mutex_);
  renamed_[to] = {from, std::move(replaced)};
  created_.erase(from);
  if (auto file = appends_.extract(from)) {
    file.key() = to;
    appends_.erase(to);
    appends_.insert(std::move(file));
  }
}

void PowerLedger::EntryRemoved(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  created_.erase(path);
  renamed_.erase(path);
  appends_.erase(path);
  std::erase_if(writes_, [&](const auto& write) { return write.second.path == path && write.second.ended; });
}

void PowerLedger::EntriesSynced(const std::string& path) {
  const std::string directory = path.ends_with('/') ? Parent(path) : path;
  absl::MutexLock lock(&mutex_);
  std::erase_if(created_, [&](const std::string& entry) { return Parent(entry) == directory; });
  std::erase_if(renamed_, [&](const auto& entry) { return Parent(entry.first) == directory; });
}

void PowerLedger::Image(const std::string& directory, const std::string& into, std::mt19937_64& random) const {
  absl::MutexLock lock(&mutex_);  // nothing becomes durable meanwhile
  // A file may go while this runs.
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    const fs::path target = into / fs::relative(entry.path(), directory);
    std::error_code gone;
    if (entry.is_directory(gone)) {
      fs::create_directories(target);
    } else {
      fs::create_directories(target.parent_path());
      fs::copy_file(entry.path(), target, gone);
    }
  }
  const auto image_of = [&](const std::string& path) { return into + path.substr(directory.size()); };
  const auto in_image = [&](const std::string& path) {
    return path.starts_with(directory + "/") && fs::exists(image_of(path));
  };
  const auto coin = [&](unsigned sides) { return random() % sides == 0; };

  // The newest first: what of it is kept lies over what came before.
  std::set<std::pair<std::string, std::uint64_t>> kept;
  for (auto it = writes_.rbegin(); it != writes_.rend(); ++it) {
    const Write& write = it->second;
    if (!in_image(write.path)) continue;
    const unsigned how = random() % 3;  // all is kept; all is lost; each block for itself
    std::fstream file(image_of(write.path), std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t at = 0; at < write.before.size(); at += kBlockBytes) {
      const std::pair<std::string, std::uint64_t> block(write.path, (write.offset + at) / kBlockBytes);
      if (how == 0 || (how == 2 && coin(2))) kept.insert(block);
      if (kept.contains(block)) continue;
      file.seekp(static_cast<std::streamoff>(write.offset + at));
      file.write(reinterpret_cast<const char*>(write.before.data()) + at,
                 static_cast<std::streamsize>(std::min<std::uint64_t>(kBlockBytes, write.before.size() - at)));
    }
  }
  for (const auto& [path, file] : appends_) {
    if (!in_image(path)) continue;
    const std::uint64_t size = std::min<std::uint64_t>(file.size, fs::file_size(image_of(path)));
    const std::uint64_t keep = size > file.synced ? file.synced + random() % (size - file.synced + 1) : size;
    fs::resize_file(image_of(path), keep);
    if (coin(4)) fs::resize_file(image_of(path), size);  // the size got there, the rest did not: zeros
  }
  for (const auto& [to, rename] : renamed_) {
    if (!in_image(to) || coin(2)) continue;
    fs::rename(image_of(to), image_of(rename.from));
    if (rename.replaced) std::ofstream(image_of(to), std::ios::binary) << *rename.replaced;
  }
  for (const std::string& path : created_) {
    if (in_image(path) && coin(2)) fs::remove(image_of(path));
  }
}

}  // namespace kvist

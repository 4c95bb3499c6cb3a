#include "cachestore/movement/shared_reader.h"

#include <algorithm>
#include <utility>

namespace kvist {

bool SharedReader::MayRead(const NamespaceId& ns) const { return !closed_ && !gates_.contains(ns); }

void SharedReader::CountPresent(const NamespaceId& ns, std::vector<BlockKey> keys, Done<std::size_t> done) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_->Monotonic();
    const auto missing = std::find_if(keys.begin(), keys.end(), [&](const BlockKey& key) {
      mutex_.AssertHeld();
      const auto it = absent_.find(key);
      return it != absent_.end() && it->second > now;
    });
    keys.erase(MayRead(ns) ? missing : keys.begin(), keys.end());
  }
  if (keys.empty()) return std::move(done)(0);
  std::vector<BlockKey> asked = keys;
  tier_->CountPresent(
      ns, std::move(keys), options_.timeout,
      [this, asked = std::move(asked), done = std::move(done)](absl::StatusOr<std::size_t> count) mutable {
        if (count.ok() && *count < asked.size()) NoteAbsent(asked[*count]);
        std::move(done)(count.value_or(0));
      });
}

void SharedReader::Get(const ObjectName& name, OwnedBytes into, absl::Duration time_left, DoneStatus done) {
  bool may_read = false;
  {
    absl::MutexLock lock(&mutex_);
    may_read = MayRead(name.ns);
  }
  if (!may_read) return std::move(done)(absl::UnavailableError("the namespace is being dropped, or the store closed"));
  const absl::Duration timeout = std::min(options_.timeout, time_left);
  if (timeout <= absl::ZeroDuration())
    return std::move(done)(absl::DeadlineExceededError("no time is left for the shared tier"));
  tier_->Get(name, std::move(into), timeout,
             [this, key = name.key, done = std::move(done)](absl::Status status) mutable {
               if (absl::IsNotFound(status)) NoteAbsent(key);
               std::move(done)(std::move(status));
             });
}

void SharedReader::NoteAbsent(const BlockKey& key) {
  absl::MutexLock lock(&mutex_);
  if (absent_.size() >= kAbsentMax) absent_.clear();
  absent_[key] = clock_->Monotonic() + options_.absent_age;
}

void SharedReader::CloseGate(const std::vector<NamespaceId>& namespaces) {
  absl::MutexLock lock(&mutex_);
  for (const NamespaceId& ns : namespaces) ++gates_[ns];
}

void SharedReader::OpenGate(const std::vector<NamespaceId>& namespaces) {
  absl::MutexLock lock(&mutex_);
  for (const NamespaceId& ns : namespaces) {
    if (const auto it = gates_.find(ns); it != gates_.end() && --it->second == 0) gates_.erase(it);
  }
}

void SharedReader::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace kvist

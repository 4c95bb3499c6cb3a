#include "src/client/staging_area.h"

#include <iterator>
#include <utility>

#include "fmt/format.h"

namespace kvist::client {

struct StagingArea::Slot {
  Slot(std::shared_ptr<StagingArea> owner, std::uint64_t at) : area(std::move(owner)), offset(at) {}
  ~Slot() { area->Free(offset); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  std::shared_ptr<StagingArea> area;
  std::uint64_t offset;
};

StagingArea::StagingArea(protocol::Mapping memory) : memory_(std::move(memory)) {
  const std::uint64_t whole = memory_.bytes().size() / kSlotAlignment * kSlotAlignment;
  if (whole > 0) free_[0] = whole;
}

absl::StatusOr<WriteGrant> StagingArea::Allocate(const NamespaceId& ns, std::uint64_t bytes) {
  const std::uint64_t reserved = (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  if (bytes == 0 || reserved < bytes) return absl::InvalidArgumentError("a grant of this size is not possible");
  std::uint64_t offset = 0;
  {
    absl::MutexLock lock(&mutex_);
    auto it = free_.begin();
    while (it != free_.end() && it->second < reserved) ++it;
    if (it == free_.end()) {
      return absl::ResourceExhaustedError(
          fmt::format("no {} bytes free in the staging area of {} bytes ({} slots in use): wait for commits to "
                      "complete, or raise limits.staging_per_client in kvistd's configuration",
                      bytes, memory_.bytes().size(), used_.size()));
    }
    offset = it->first;
    const std::uint64_t rest = it->second - reserved;
    free_.erase(it);
    if (rest > 0) free_[offset + reserved] = rest;
    used_[offset] = {.reserved = reserved, .bytes = bytes, .ns = ns};
  }
  return WriteGrant(memory_.writable().subspan(offset, bytes), std::make_shared<Slot>(shared_from_this(), offset));
}

std::optional<std::uint64_t> StagingArea::OffsetOf(const WriteGrant& grant, const NamespaceId& ns) const {
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.bytes().data());
  const auto at = reinterpret_cast<std::uintptr_t>(grant.payload().data());
  if (grant.slot() == nullptr || at < base) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  const auto it = used_.find(at - base);
  if (it == used_.end() || it->second.bytes != grant.payload().size() || it->second.ns != ns) return std::nullopt;
  return it->first;
}

void StagingArea::Free(std::uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  const auto used = used_.find(offset);
  if (used == used_.end()) return;
  auto it = free_.emplace(offset, used->second.reserved).first;
  used_.erase(used);
  if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it != free_.begin()) {
    const auto previous = std::prev(it);
    if (previous->first + previous->second == it->first) {
      previous->second += it->second;
      free_.erase(it);
    }
  }
}

}  // namespace kvist::client

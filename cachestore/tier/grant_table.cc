#include "cachestore/tier/grant_table.h"

#include <utility>

namespace kvist {

WriteGrant GrantTable::Issue(DramBlockRef block) {
  const std::span<std::byte> payload = block->payload();
  auto slot = std::make_shared<Slot>(shared_from_this(), std::move(block));
  absl::MutexLock lock(&mutex_);
  issued_.insert(slot.get());
  return WriteGrant(payload, std::move(slot));
}

DramBlockRef GrantTable::Take(const WriteGrant& grant) {
  absl::MutexLock lock(&mutex_);
  if (issued_.erase(grant.slot().get()) == 0) return nullptr;
  return std::move(static_cast<Slot*>(grant.slot().get())->block);
}

void GrantTable::Forget(const Slot* slot) {
  absl::MutexLock lock(&mutex_);
  issued_.erase(slot);
}

}  // namespace kvist

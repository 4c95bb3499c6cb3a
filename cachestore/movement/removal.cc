#include "cachestore/movement/removal.h"

#include <utility>

namespace kvist {

void Removal::Drop(std::vector<NamespaceId> namespaces, Done<DropResult> done) {
  auto set = std::make_shared<const Set>(namespaces.begin(), namespaces.end());
  const auto matches = [set](const NamespaceId& ns) { return set->contains(ns); };
  // The order matters: out of DRAM first, so that WriteBack takes on no more of them; then its waiting ones; then
  // wait for those already with the NVMe tier, and only then drop there.
  std::vector<DramBlockRef> dropped = dram_->Drop(matches);
  write_back_->Cancel(matches);
  write_back_->Flush([this, set, dropped = std::move(dropped), done = std::move(done)](const absl::Status&) mutable {
    worker_->Post([this, set, dropped = std::move(dropped), done = std::move(done)]() mutable {
      std::move(done)(DropBelow(*set, dropped));
    });
  });
}

absl::StatusOr<DropResult> Removal::DropBelow(const Set& namespaces, const std::vector<DramBlockRef>& dropped) {
  DropResult result;
  for (const DramBlockRef& block : dropped) {
    if (nvme_->Find(block->key())) continue;  // counted below
    ++result.blocks;
    result.bytes += block->shape().payload_bytes();
  }
  std::vector<BlockKey> pinned;
  nvme_->ForEach([&](const NvmeBlock& block) {
    if (block.pins > 0 && namespaces.contains(block.ns)) pinned.push_back(block.key);
  });
  for (const BlockKey& key : pinned) dram_->SetPins(key, 0);
  absl::Status status;
  for (const NamespaceId& ns : namespaces) {
    const absl::StatusOr<DropResult> below = nvme_->DropNamespace(ns);
    status.Update(below.status());
    if (!below.ok()) continue;
    result.blocks += below->blocks;
    result.bytes += below->bytes;
  }
  // What a promotion or a commit brought in while this ran lost its copy below.
  dram_->Drop([&](const NamespaceId& ns) { return namespaces.contains(ns); });
  if (!status.ok()) return status;
  return result;
}

}  // namespace kvist

#include "cachestore/movement/removal.h"

#include <utility>

#include "cachestore/movement/join.h"
#include "fmt/format.h"

namespace kvist {

void Removal::Drop(std::vector<NamespaceId> namespaces, Done<DropResult> done) {
  auto set = std::make_shared<const Set>(namespaces.begin(), namespaces.end());
  if (shared_.tier == nullptr) return DropHere(set, std::move(done));
  // Before DRAM is emptied: what a read from the shared tier brings is then older than the drop.
  shared_.reader->CloseGate(namespaces);
  auto here = std::make_shared<absl::StatusOr<DropResult>>(DropResult{});
  // Both parts, whichever is last.
  auto both =
      std::make_shared<Join>([this, namespaces, here, done = std::move(done)](const absl::Status& shared) mutable {
        shared_.reader->OpenGate(namespaces);
        shared_.write_back->OpenGate(namespaces);
        if (!here->ok() || shared.ok()) return std::move(done)(*here);
        std::move(done)(absl::UnavailableError(
            fmt::format("dropped here ({} blocks), but not in the shared tier: repeat it when that is back: {}",
                        (*here)->blocks, std::string(shared.message()))));
      });
  shared_.write_back->CloseGate(namespaces, [this, namespaces, both](const absl::Status&) {
    DropShared(namespaces, [both](const absl::Status& status) { both->Report(status); });
  });
  DropHere(set, [here, both](absl::StatusOr<DropResult> result) { *here = std::move(result); });
}

void Removal::DropShared(std::vector<NamespaceId> namespaces, DoneStatus done) {
  const auto join = std::make_shared<Join>(std::move(done));
  for (const NamespaceId& ns : namespaces) {
    shared_.tier->DropNamespace(ns, [join](const absl::Status& status) { join->Report(status); });
  }
}

void Removal::DropHere(const std::shared_ptr<const Set>& set, Done<DropResult> done) {
  const auto matches = [set](const NamespaceId& ns) { return set->contains(ns); };
  // The order matters: out of DRAM first, so that WriteBack takes on no more of them; then its waiting ones; then
  // wait for those already with the NVMe tier, and only then drop there.
  std::vector<DramBlockRef> dropped = dram_->Drop(matches);
  write_back_->Cancel(matches);
  write_back_->Flush([this, set, dropped = std::move(dropped), done = std::move(done)](const absl::Status&) mutable {
    // The worker, which also ends calls in time, must not wait for a large index to be read.
    nvme_->WhenLoaded([this, set, dropped = std::move(dropped), done = std::move(done)]() mutable {
      worker_->Post([this, set, dropped = std::move(dropped), done = std::move(done)]() mutable {
        absl::StatusOr<DropResult> result = DropBelow(*set, dropped);
        dropped.clear();  // whoever waits finds their memory free
        std::move(done)(std::move(result));
      });
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

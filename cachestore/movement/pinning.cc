#include "cachestore/movement/pinning.h"

#include <utility>

#include "cachestore/movement/join.h"

namespace kvist {

Pinning::Pinning(std::shared_ptr<DramTier> dram, NvmeTier* nvme, WriteBack* write_back, Worker* worker)
    : dram_(std::move(dram)), nvme_(nvme), write_back_(write_back), worker_(worker) {
  nvme_->ForEachLoaded([this](const NvmeBlock& block) {
    if (block.pins > 0) dram_->SetPins(block.key, block.pins);
  });
}

void Pinning::Pin(std::vector<BlockKey> chain, Done<std::size_t> done) {
  auto written = std::make_shared<Join>([this, chain, completion = std::move(done)](const absl::Status&) mutable {
    worker_->Post([this, keys = std::move(chain), apply_done = std::move(completion)]() mutable {
      std::move(apply_done)(Apply(keys, Change::kAdd));
    });
  });
  for (const BlockKey& key : chain) {
    if (nvme_->Find(key)) continue;
    if (const DramBlockRef block = dram_->Find(key); block != nullptr) {
      write_back_->Enqueue(block, [written](const absl::Status&) {});
    }
  }
}

void Pinning::Unpin(std::vector<BlockKey> chain, Done<std::size_t> done) {
  worker_->Post([this, keys = std::move(chain), completion = std::move(done)]() mutable {
    std::move(completion)(Apply(keys, Change::kRemove));
  });
}

absl::StatusOr<std::size_t> Pinning::Apply(const std::vector<BlockKey>& chain, Change change) {
  std::size_t reached = 0;
  for (const BlockKey& key : chain) {
    const std::uint32_t before = dram_->Pins(key);
    if (change == Change::kRemove && before == 0) {
      ++reached;
      continue;
    }
    const std::uint32_t pins = change == Change::kAdd ? before + 1 : before - 1;
    const DramBlockRef block = dram_->Find(key);
    absl::Status status = absl::NotFoundError("");
    if (nvme_->Find(key)) status = nvme_->SetPins(key, pins);
    if (absl::IsNotFound(status)) {
      if (block == nullptr) break;  // gone from both tiers since it was matched
      dram_->SetPins(key, pins);
      dram_->SetState(*block, BlockState::kDramOnly);
    } else if (status.ok()) {
      dram_->SetPins(key, pins);
    } else {
      return status;
    }
    ++reached;
  }
  return reached;
}

}  // namespace kvist

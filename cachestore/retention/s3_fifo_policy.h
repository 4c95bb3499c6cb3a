// S3FifoPolicy: S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP '23)
// with the prefix rule. Blocks enter a small queue, a tenth of all; those used at least twice before they reach its end
// go on to the main queue, the others leave and are remembered as ghosts. A ghost that returns enters the main queue,
// where each use buys one more round.
//
// The prefix rule: a block that reaches the end of its queue but may not leave (resident children, or pinned) steps out
// of the queue, and back in at that same end once it may.
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cachestore/retention/block_forest.h"
#include "cachestore/retention/eviction_policy.h"
#include "cachestore/retention/ghost_table.h"

namespace kvist {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(std::size_t expected_blocks);

  void Insert(const BlockKey& key, const BlockPlace& place) override;
  void Touch(const BlockKey& key) override;
  void Erase(const BlockKey& key) override;
  void Pin(const BlockKey& key) override;
  void Unpin(const BlockKey& key) override;
  std::optional<BlockKey> Victim() override;
  bool Contains(const BlockKey& key) const override { return forest_.Find(key) != Forest::kNone; }
  bool HasChildren(const BlockKey& key) const override;
  std::size_t size() const override { return forest_.resident(); }
  std::size_t MemoryBytes() const override;

 private:
  enum QueueName : std::uint8_t { kSmall = 0, kMain = 1 };
  struct Extra {
    std::uint32_t older = ~std::uint32_t{0};    // towards the end
    std::uint32_t younger = ~std::uint32_t{0};
    std::uint8_t uses : 2 = 0;
    std::uint8_t queue : 1 = kSmall;
    std::uint8_t linked : 1 = 0;  // 0: it stepped out
  };
  using Forest = BlockForest<Extra>;
  using Slot = Forest::Slot;
  struct Queue {
    Slot oldest = Forest::kNone;
    Slot youngest = Forest::kNone;
    std::size_t blocks = 0;  // those that stepped out too
  };

  void PushYoung(Slot slot);
  void PushOld(Slot slot);
  void Unlink(Slot slot);
  void StepBackIn(Slot slot);

  Forest forest_;
  GhostTable ghosts_;
  std::array<Queue, 2> queues_;
};

}  // namespace kvist

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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

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
  // It knows no time: blocks of an earlier life come back in the order they are inserted.
  std::uint64_t NewestUse() const override { return 0; }
  std::uint64_t LastUse(Slot) const override { return 0; }
  std::size_t MemoryBytes() const override;

 private:
  enum QueueName : std::uint8_t { kSmall = 0, kMain = 1 };
  // Links within a queue.
  Slot& Older(Slot slot) { return forest_[slot].policy[0]; }  // towards the end
  Slot& Younger(Slot slot) { return forest_[slot].policy[1]; }
  // The policy's bits of a node.
  struct Bits {
    std::uint16_t uses : 2 = 0;
    std::uint16_t queue : 1 = kSmall;
    std::uint16_t linked : 1 = 0;  // 0: it stepped out
    std::uint16_t : 12;
  };
  Bits BitsOf(Slot slot) const { return std::bit_cast<Bits>(forest_[slot].policy_bits); }
  void SetBits(Slot slot, Bits bits) { forest_[slot].policy_bits = std::bit_cast<std::uint16_t>(bits); }

  struct Queue {
    Slot oldest = BlockForest::kNone;
    Slot youngest = BlockForest::kNone;
    std::size_t blocks = 0;  // those that stepped out too
  };

  void SetLinked(Slot slot, bool linked);
  void PushYoung(Slot slot);
  void PushOld(Slot slot);
  void Unlink(Slot slot);
  void StepBackIn(Slot slot);

  GhostTable ghosts_;
  std::array<Queue, 2> queues_;
};

}  // namespace kvist

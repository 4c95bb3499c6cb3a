// A store that people keep KV blocks in today, as far as a comparison needs it: put blocks so that they outlive a power
// failure, and read them back with nothing of them in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvist::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string_view name() const = 0;
  // `blocks` of `block_bytes` each lie one after the other in `source`. All are durable when this returns. Every round
  // has keys of its own.
  virtual void PutDurable(int round, std::span<const std::byte> source, std::size_t block_bytes) = 0;
  // Forgets what is in memory; not timed.
  virtual void Cool(int round, std::size_t blocks) = 0;
  // All blocks of the round into `target`.
  virtual void Get(int round, std::span<std::byte> target, std::size_t block_bytes) = 0;
};

// One file a block, written under another name and renamed, read and written by several threads.
std::unique_ptr<Peer> MakeFilesPeer(const std::string& directory);
// RocksDB with blob files, direct reads, and a synced batch for as many blocks as are written at once.
std::unique_ptr<Peer> MakeBlobDbPeer(const std::string& directory);

}  // namespace kvist::bench

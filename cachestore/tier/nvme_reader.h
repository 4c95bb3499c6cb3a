// The tier's read path: one asynchronous transfer straight into the caller's record, verified where it lands.
// Private to the tier. Thread safety: any thread.
#pragma once

#include <atomic>
#include <functional>

#include "cachestore/tier/nvme_core.h"

namespace kvist {

class NvmeReader {
 public:
  // `core` must outlive this. `news` is called when a read has left deletes to flush.
  NvmeReader(NvmeCore* core, std::function<void()> news) : core_(*core), news_(std::move(news)) {}
  // Waits for the reads in flight; refuses those that completions begin meanwhile.
  ~NvmeReader();

  // As NvmeTier::Read.
  void Read(const BlockKey& key, std::span<std::byte> record, DoneStatus done);

 private:
  struct Transfer {
    BlockKey key;
    BlockEntry entry;
    Segment* segment = nullptr;
    std::span<std::byte> record;
    DoneStatus done;
    IoRequest io;
  };
  void Finish(std::unique_ptr<Transfer> transfer, const absl::Status& io);

  NvmeCore& core_;
  const std::function<void()> news_;
  std::atomic<std::uint64_t> in_flight_ = 0;  // reads whose completion has not returned
  std::atomic<bool> closing_ = false;
};

}  // namespace kvist

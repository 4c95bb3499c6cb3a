#include "cachestore/tier/nvme_reader.h"

#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"

namespace kvist {
namespace {

// Closing waits for transfers that take milliseconds.
constexpr absl::Duration kClosePollInterval = absl::Microseconds(200);

}  // namespace

NvmeReader::~NvmeReader() {
  closing_ = true;
  while (in_flight_ > 0) absl::SleepFor(kClosePollInterval);
  core_.read_io.reset();
}

void NvmeReader::Read(const BlockKey& key, std::span<std::byte> record, DoneStatus done) {
  auto transfer = std::make_unique<Transfer>();
  absl::Status refused;
  ++in_flight_;
  if (closing_) {
    refused = absl::UnavailableError("the NVMe tier is closing");
  } else {
    absl::ReaderMutexLock lock(&core_.mutex);
    const std::optional<BlockEntry> entry = core_.summary.Find(key);
    Segment* segment = entry ? core_.space.Find(entry->extent) : nullptr;
    if (segment == nullptr) {
      refused = absl::NotFoundError("not resident");
    } else if (record.size() < entry->record_bytes ||
               reinterpret_cast<std::uintptr_t>(record.data()) % kRecordAlignment != 0) {
      refused =
          absl::InvalidArgumentError(fmt::format("a record of {} bytes needs as much memory, aligned to {}; got {}",
                                                 entry->record_bytes, kRecordAlignment, record.size()));
    } else {
      // From here on the segment's space cannot be reused.
      segment->readers.fetch_add(1, std::memory_order_relaxed);
      transfer->key = key;
      transfer->entry = *entry;
      transfer->segment = segment;
    }
  }
  if (!refused.ok()) {
    std::move(done)(std::move(refused));
    --in_flight_;
    return;
  }
  Transfer* t = transfer.release();  // owned by its completion
  t->record = record.first(t->entry.record_bytes);
  t->done = std::move(done);
  t->io.kind = IoRequest::Kind::kRead;
  t->io.file = t->segment->file.get();
  t->io.offset = t->entry.extent.offset;
  t->io.data = t->record.data();
  t->io.length = t->record.size();
  t->io.done = [this, t](const absl::Status& status) { Finish(std::unique_ptr<Transfer>(t), status); };
  IoRequest* request = &t->io;
  core_.read_io->Submit({&request, 1});
}

void NvmeReader::Finish(std::unique_ptr<Transfer> transfer, const absl::Status& io) {
  absl::Status status = io.ok() ? VerifyRecord(transfer->record, transfer->key, transfer->entry) : io;
  if (absl::IsOutOfRange(status)) status = absl::DataLossError(std::string(status.message()));
  const bool news = !status.ok() && core_.DropBad(transfer->key, transfer->entry.extent, status);
  // Takes no lock: the one who waits for the last reader of an emptied segment polls instead.
  transfer->segment->readers.fetch_sub(1, std::memory_order_release);
  if (news) news_();
  DoneStatus done = std::move(transfer->done);
  transfer.reset();
  std::move(done)(std::move(status));
  --in_flight_;
}

}  // namespace kvist

#include "cachestore/fsck/segment_scan.h"

#include <algorithm>
#include <utility>

namespace kvist {
namespace {

// Large enough for the disk's full speed.
constexpr std::uint64_t kWindowBytes = std::uint64_t{4} << 20;

}  // namespace

absl::StatusOr<std::span<const std::byte>> SegmentWindow::View(std::uint64_t offset, std::uint64_t length) {
  if (length > bytes_ || offset > bytes_ - length) return absl::OutOfRangeError("beyond the end of the file");
  if (offset < begin_ || offset + length > begin_ + length_) {
    // A bad sector should take no more with it than it must.
    for (const std::uint64_t want : {std::max(length, std::min(kWindowBytes, bytes_ - offset)), length}) {
      buffer_.resize(std::max<std::uint64_t>(buffer_.size(), want));
      const absl::Status read = ReadFull(file_, offset, std::span(buffer_).first(want));
      begin_ = offset;
      length_ = read.ok() ? want : 0;
      if (read.ok()) break;
      if (want == length) return read;
    }
  }
  return std::span<const std::byte>(buffer_).subspan(offset - begin_, length);
}

absl::Status JudgeRecord(std::span<const std::byte> record, const RecordHeader& header, const KeyHasher& hasher) {
  if (absl::Status s = VerifyRecordPayload(record, header.shape); !s.ok()) return s;
  if (!RecordTailIsZero(record, header.shape)) return absl::DataLossError("block record: bytes behind the payload");
  if (hasher.Next(header.parent, RecordTokens(record)) != header.key) {
    return absl::DataLossError("block record: the key is not that of its parent and tokens");
  }
  return absl::OkStatus();
}

void ScanSegment(SegmentWindow& window, std::uint64_t segment, std::span<const std::uint64_t> starts,
                 const KeyHasher& hasher, const std::function<void(FoundRecord)>& visit,
                 const std::function<void(std::uint64_t)>& progress) {
  std::uint64_t at = 0;
  while (at + kRecordAlignment <= window.bytes()) {
    std::uint64_t next = at + kRecordAlignment;
    const auto front = window.View(at, kRecordAlignment);
    const std::uint64_t bytes = front.ok() ? PeekRecordBytes(*front) : 0;
    const auto record =
        bytes == 0 ? absl::StatusOr<std::span<const std::byte>>(absl::NotFoundError("")) : window.View(at, bytes);
    if (record.ok()) {
      const absl::StatusOr<RecordHeader> header = ReadRecordHeader(*record);
      if (header.ok() && header->extent.segment == segment && header->extent.offset == at) {
        FoundRecord found{*header, JudgeRecord(*record, *header, hasher)};
        if (found.verdict.ok()) {
          const auto start = std::upper_bound(starts.begin(), starts.end(), at);
          next = start == starts.end() ? at + bytes : std::min(at + bytes, *start);
        }
        visit(std::move(found));
      }
    }
    at = next;
    progress(at);
  }
}

}  // namespace kvist

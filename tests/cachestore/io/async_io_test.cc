// Both engines against real files, and short transfers against a real pipe.
#include "cachestore/io/async_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cachestore/io/fault_file_system.h"
#include "cachestore/io/file.h"
#include "cachestore/io/foreground_reads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr std::size_t kUnit = kDirectAlignment;

struct AlignedFree {
  void operator()(std::byte* p) const { std::free(p); }
};
struct Buffer {
  explicit Buffer(std::size_t n, int fill = 0)
      : memory(static_cast<std::byte*>(std::aligned_alloc(kUnit, n))), bytes(memory.get(), n) {
    std::memset(memory.get(), fill, n);
  }
  std::unique_ptr<std::byte, AlignedFree> memory;
  std::span<std::byte> bytes;
};

IoRequest Request(IoRequest::Kind kind, File& file, std::uint64_t offset, std::span<std::byte> data) {
  IoRequest r;
  r.kind = kind;
  r.file = &file;
  r.offset = offset;
  r.data = data.data();
  r.length = data.size();
  return r;
}

absl::Status RunOne(AsyncIo& io, IoRequest request) {
  IoRequest* p = &request;
  return RunAll(io, {&p, 1})[0];
}

class AsyncIoTest : public ::testing::TestWithParam<AsyncIoOptions::Backend> {
 protected:
  AsyncIoTest() {
    std::string pattern = ::testing::TempDir() + "/kvist-io-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    file_ = fs_->Open(root_ + "/data", {.create = true, .direct = false}).value();
  }
  ~AsyncIoTest() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<AsyncIo> NewIo(std::uint32_t depth = 8, std::uint32_t threads = 2) {
    return NewAsyncIo({.backend = GetParam(), .queue_depth = depth, .threads = threads}).value();
  }

  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  std::string root_;
  std::unique_ptr<File> file_;
};

INSTANTIATE_TEST_SUITE_P(Backends, AsyncIoTest,
                         ::testing::Values(AsyncIoOptions::Backend::kUring, AsyncIoOptions::Backend::kThreads),
                         [](const auto& test) {
                           return test.param == AsyncIoOptions::Backend::kUring ? "Uring" : "Threads";
                         });

TEST_P(AsyncIoTest, IsTheBackendAskedFor) {
  EXPECT_EQ(NewIo()->name(), GetParam() == AsyncIoOptions::Backend::kUring ? "io_uring" : "threads");
}

TEST_P(AsyncIoTest, TransfersManyMoreThanItsDepth) {
  auto io = NewIo(4, 2);
  constexpr std::size_t kCount = 200;
  std::vector<Buffer> out;
  std::vector<IoRequest> requests;
  std::vector<IoRequest*> pointers;
  for (std::size_t i = 0; i < kCount; ++i) {
    out.emplace_back(kUnit, static_cast<int>(i + 1));
    requests.push_back(Request(IoRequest::Kind::kWrite, *file_, i * kUnit, out[i].bytes));
  }
  for (IoRequest& r : requests) pointers.push_back(&r);
  for (const absl::Status& s : RunAll(*io, pointers)) EXPECT_EQ(s, absl::OkStatus());
  EXPECT_EQ(RunOne(*io, Request(IoRequest::Kind::kSyncData, *file_, 0, {})), absl::OkStatus());

  std::vector<Buffer> in;
  requests.clear();
  pointers.clear();
  for (std::size_t i = 0; i < kCount; ++i) {
    in.emplace_back(kUnit);
    requests.push_back(Request(IoRequest::Kind::kRead, *file_, i * kUnit, in[i].bytes));
  }
  for (IoRequest& r : requests) pointers.push_back(&r);
  for (const absl::Status& s : RunAll(*io, pointers)) EXPECT_EQ(s, absl::OkStatus());
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(std::memcmp(in[i].bytes.data(), out[i].bytes.data(), kUnit), 0);
}

TEST_P(AsyncIoTest, ABackgroundEngineWritesOnWhileReadsAreWaitedFor) {
  const auto reads = std::make_shared<ForegroundReads>();
  const auto io = NewAsyncIo({.backend = GetParam(), .queue_depth = 8, .reads = reads, .background = true}).value();
  constexpr std::size_t kCount = 6;
  constexpr std::size_t kBytes = (std::size_t{3} << 20) / 2 + 3 * kUnit;  // no multiple of any piece
  std::vector<Buffer> out;
  std::vector<IoRequest> requests;
  std::vector<IoRequest*> pointers;
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t at = 0; at < kBytes; ++at) {
      if (at == 0) out.emplace_back(kBytes);
      out[i].bytes[at] = static_cast<std::byte>(at / 977 + i);
    }
    requests.push_back(Request(IoRequest::Kind::kWrite, *file_, i * kBytes, out[i].bytes));
  }
  for (IoRequest& r : requests) pointers.push_back(&r);
  reads->Begin();  // and it never ends
  for (const absl::Status& s : RunAll(*io, pointers)) EXPECT_EQ(s, absl::OkStatus());
  EXPECT_EQ(RunOne(*io, Request(IoRequest::Kind::kSyncData, *file_, 0, {})), absl::OkStatus());
  for (std::size_t i = 0; i < kCount; ++i) {
    Buffer in(kBytes);
    ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kRead, *file_, i * kBytes, in.bytes)), absl::OkStatus());
    EXPECT_EQ(std::memcmp(in.bytes.data(), out[i].bytes.data(), kBytes), 0) << i;
  }
}

TEST_P(AsyncIoTest, OnlyAForegroundEnginesReadsAreWaitedFor) {
  if (GetParam() == AsyncIoOptions::Backend::kThreads) GTEST_SKIP() << "the pool has no queue that could be yielded";
  const auto reads = std::make_shared<ForegroundReads>();
  EXPECT_FALSE(reads->Likely());
  Buffer data(kUnit, 1);
  for (const bool background : {true, false}) {
    const auto io = NewAsyncIo({.backend = GetParam(), .reads = reads, .background = background}).value();
    ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file_, 0, data.bytes)), absl::OkStatus());
    EXPECT_FALSE(reads->Likely());
    IoRequest read = Request(IoRequest::Kind::kRead, *file_, 0, data.bytes);
    bool likely = false;
    absl::Notification done;
    read.done = [&](const absl::Status&) {
      likely = reads->Likely();
      done.Notify();
    };
    IoRequest* pointer = &read;
    io->Submit({&pointer, 1});
    done.WaitForNotification();
    EXPECT_EQ(likely, !background);
  }
  while (reads->Likely()) std::this_thread::yield();  // a while after the last one
}

TEST_P(AsyncIoTest, ReportsTheEndOfAFile) {
  auto io = NewIo();
  Buffer unit(kUnit, 1);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file_, 0, unit.bytes)), absl::OkStatus());
  Buffer two(2 * kUnit);
  const absl::Status status = RunOne(*io, Request(IoRequest::Kind::kRead, *file_, 0, two.bytes));
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
}

TEST_P(AsyncIoTest, ReportsErrorsByNameAndGoesOn) {
  auto io = NewIo();
  auto direct = fs_->Open(root_ + "/direct", {.create = true, .direct = true});
  if (!direct.ok()) GTEST_SKIP() << direct.status();
  Buffer unit(kUnit, 1);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, **direct, 0, unit.bytes)), absl::OkStatus());
  const absl::Status status = RunOne(*io, Request(IoRequest::Kind::kRead, **direct, 0, unit.bytes.subspan(1, 100)));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/direct"));
  EXPECT_EQ(RunOne(*io, Request(IoRequest::Kind::kRead, **direct, 0, unit.bytes)), absl::OkStatus());
}

TEST_P(AsyncIoTest, CompletionsMaySubmitAgain) {
  auto io = NewIo(2, 1);
  Buffer unit(kUnit, 1);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file_, 0, unit.bytes)), absl::OkStatus());
  absl::Notification finished;
  std::atomic<int> left = 100;
  IoRequest request = Request(IoRequest::Kind::kRead, *file_, 0, unit.bytes);
  std::function<void(const absl::Status&)> again = [&](const absl::Status& s) {
    EXPECT_EQ(s, absl::OkStatus());
    if (--left == 0) {
      finished.Notify();
      return;
    }
    request.done = again;
    IoRequest* p = &request;
    io->Submit({&p, 1});
  };
  request.done = again;
  IoRequest* p = &request;
  io->Submit({&p, 1});
  finished.WaitForNotification();
}

TEST_P(AsyncIoTest, CompletesEverythingBeforeItIsGone) {
  std::atomic<int> done = 0;
  Buffer unit(kUnit, 1);
  std::vector<IoRequest> requests(100);
  {
    auto io = NewIo(4, 2);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i] = Request(IoRequest::Kind::kWrite, *file_, i * kUnit, unit.bytes);
      requests[i].done = [&](const absl::Status&) { ++done; };
      IoRequest* p = &requests[i];
      io->Submit({&p, 1});
    }
  }
  EXPECT_EQ(done, 100);
}

TEST_P(AsyncIoTest, TakesRequestsFromManyThreads) {
  auto io = NewIo(8, 2);
  Buffer unit(kUnit, 5);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file_, 0, unit.bytes)), absl::OkStatus());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        Buffer in(kUnit);
        EXPECT_EQ(RunOne(*io, Request(IoRequest::Kind::kRead, *file_, 0, in.bytes)), absl::OkStatus());
        EXPECT_EQ(in.bytes[77], std::byte{5});
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_P(AsyncIoTest, UsesARegisteredBufferAndOthersBesideIt) {
  auto io = NewIo();
  Buffer arena(16 * kUnit, 9);
  EXPECT_EQ(io->RegisterBuffer(arena.bytes), absl::OkStatus());
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file_, 0, arena.bytes)), absl::OkStatus());
  std::memset(arena.bytes.data(), 0, arena.bytes.size());
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kRead, *file_, 0, arena.bytes)), absl::OkStatus());
  EXPECT_EQ(arena.bytes.back(), std::byte{9});
  Buffer other(kUnit);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kRead, *file_, 0, other.bytes)), absl::OkStatus());
  EXPECT_EQ(other.bytes[0], std::byte{9});
}

// A pipe transfers what it has: real short reads and writes.
class PipeFile final : public File {
 public:
  explicit PipeFile(int fd) : fd_(fd) {}
  ~PipeFile() override { ::close(fd_); }
  absl::StatusOr<std::size_t> ReadAt(std::uint64_t, std::span<std::byte> into) override {
    const ssize_t n = ::read(fd_, into.data(), into.size());
    if (n < 0) return absl::InternalError("read");
    return static_cast<std::size_t>(n);
  }
  absl::StatusOr<std::size_t> WriteAt(std::uint64_t, std::span<const std::byte> from) override {
    const ssize_t n = ::write(fd_, from.data(), from.size());
    if (n < 0) return absl::InternalError("write");
    return static_cast<std::size_t>(n);
  }
  absl::Status SyncData() override { return absl::OkStatus(); }
  absl::Status Allocate(std::uint64_t) override { return absl::OkStatus(); }
  absl::Status Resize(std::uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::uint64_t> Size() const override { return 0; }
  int fd() const override { return fd_; }
  const std::string& path() const override { return path_; }

 private:
  int fd_;
  std::string path_ = "pipe";
};

TEST_P(AsyncIoTest, CompletesShortTransfers) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  PipeFile reader(fds[0]);
  PipeFile writer(fds[1]);
  auto io = NewIo();
  constexpr std::size_t kBytes = 1 << 20;  // more than a pipe holds
  Buffer in(kBytes);
  absl::Notification finished;
  absl::Status status;
  IoRequest read = Request(IoRequest::Kind::kRead, reader, 0, in.bytes);
  read.done = [&](const absl::Status& s) {
    status = s;
    finished.Notify();
  };
  IoRequest* p = &read;
  io->Submit({&p, 1});
  std::vector<std::byte> out(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) out[i] = static_cast<std::byte>(i * 7 >> 3);
  for (std::size_t at = 0; at < kBytes;) {
    const std::size_t piece = std::min<std::size_t>(kBytes - at, 10'007);
    const ssize_t n = ::write(writer.fd(), out.data() + at, piece);
    ASSERT_GT(n, 0);
    at += static_cast<std::size_t>(n);
  }
  finished.WaitForNotification();
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(std::memcmp(in.bytes.data(), out.data(), kBytes), 0);
}

TEST_P(AsyncIoTest, PassesInjectedFaultsOn) {
  FaultFileSystem faults(fs_.get(), 3, GetParam());
  auto file = faults.Open(root_ + "/faulty", {.create = true, .direct = false}).value();
  auto io = faults.NewAsyncIo({}).value();
  Buffer unit(2 * kUnit, 1);
  ASSERT_EQ(RunOne(*io, Request(IoRequest::Kind::kWrite, *file, 0, unit.bytes)), absl::OkStatus());
  faults.Add({.op = FaultOp::kRead, .skip = 1, .count = 2});
  const auto read = [&] { return RunOne(*io, Request(IoRequest::Kind::kRead, *file, 0, unit.bytes)); };
  EXPECT_EQ(read(), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(read()));
  EXPECT_TRUE(absl::IsUnavailable(read()));
  EXPECT_EQ(read(), absl::OkStatus());
  faults.Add({.op = FaultOp::kRead, .effect = FaultEffect::kFlipBit, .bit = 8 * 100});
  EXPECT_EQ(read(), absl::OkStatus());
  EXPECT_EQ(unit.bytes[100], std::byte{0});
  EXPECT_EQ(unit.bytes[101], std::byte{1});
  faults.Add({.op = FaultOp::kSyncData, .path_contains = "other"});
  EXPECT_EQ(RunOne(*io, Request(IoRequest::Kind::kSyncData, *file, 0, {})), absl::OkStatus());
  faults.Add({.op = FaultOp::kWrite, .effect = FaultEffect::kHalfError, .error = ENOSPC});
  Buffer twos(2 * kUnit, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(RunOne(*io, Request(IoRequest::Kind::kWrite, *file, 0, twos.bytes))));
  EXPECT_EQ(read(), absl::OkStatus());
  EXPECT_EQ(unit.bytes[0], std::byte{2});
  EXPECT_EQ(unit.bytes[kUnit], std::byte{1});
  EXPECT_EQ(faults.fired(), 4u);
}

}  // namespace
}  // namespace kvist

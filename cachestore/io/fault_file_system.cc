#include "cachestore/io/fault_file_system.h"

#include <algorithm>
#include <utility>

#include "cachestore/io/errno_status.h"
#include "fmt/format.h"

namespace kvist {
namespace {

using Strike = FaultFileSystem::Strike;

absl::Status Injected(const Strike& strike, const std::string& path) {
  return ErrnoStatus(strike.error, fmt::format("injected fault on {}", path));
}

std::size_t Half(std::size_t length) { return length / 2 / kDirectAlignment * kDirectAlignment; }

void Flip(std::span<std::byte> bytes, std::uint64_t bit) {
  if (bytes.empty()) return;
  bit %= bytes.size() * 8;
  bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
}

// A page-aligned copy with one bit flipped: direct writes need the alignment, and the caller's memory is its own.
class FlippedCopy {
 public:
  FlippedCopy(std::span<const std::byte> from, std::uint64_t bit)
      : memory_(std::make_unique<std::byte[]>(from.size() + kDirectAlignment)) {
    void* at = memory_.get();
    std::size_t space = from.size() + kDirectAlignment;
    bytes_ = {static_cast<std::byte*>(std::align(kDirectAlignment, from.size(), at, space)), from.size()};
    std::copy(from.begin(), from.end(), bytes_.begin());
    Flip(bytes_, bit);
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::span<std::byte> bytes_;
};

class FaultFile final : public File {
 public:
  FaultFile(FaultFileSystem* faults, std::unique_ptr<File> base) : faults_(*faults), base_(std::move(base)) {}

  absl::StatusOr<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> into) override {
    const std::optional<Strike> strike = faults_.Next(FaultOp::kRead, path());
    if (!strike) return base_->ReadAt(offset, into);
    switch (strike->effect) {
      case FaultEffect::kError:
      case FaultEffect::kHalfError:
        return Injected(*strike, path());
      case FaultEffect::kShort:
        return base_->ReadAt(offset, Half(into.size()) > 0 ? into.first(Half(into.size())) : into);
      case FaultEffect::kFlipBit:
        break;
    }
    absl::StatusOr<std::size_t> n = base_->ReadAt(offset, into);
    if (n.ok()) Flip(into.first(*n), strike->bit);
    return n;
  }

  absl::StatusOr<std::size_t> WriteAt(std::uint64_t offset, std::span<const std::byte> from) override {
    const std::optional<Strike> strike = faults_.Next(FaultOp::kWrite, path());
    if (!strike) return base_->WriteAt(offset, from);
    const std::size_t half = Half(from.size());
    switch (strike->effect) {
      case FaultEffect::kError:
        return Injected(*strike, path());
      case FaultEffect::kHalfError:
        (void)WriteFull(*base_, offset, from.first(half));
        return Injected(*strike, path());
      case FaultEffect::kShort:
        return base_->WriteAt(offset, half > 0 ? from.first(half) : from);
      case FaultEffect::kFlipBit:
        break;
    }
    return base_->WriteAt(offset, FlippedCopy(from, strike->bit).bytes());
  }

  absl::Status SyncData() override {
    return Guarded(FaultOp::kSyncData, [&] { return base_->SyncData(); });
  }
  absl::Status Allocate(std::uint64_t bytes) override {
    return Guarded(FaultOp::kAllocate, [&] { return base_->Allocate(bytes); });
  }
  absl::Status Resize(std::uint64_t bytes) override {
    return Guarded(FaultOp::kResize, [&] { return base_->Resize(bytes); });
  }
  absl::StatusOr<std::uint64_t> Size() const override { return base_->Size(); }
  int fd() const override { return base_->fd(); }
  const std::string& path() const override { return base_->path(); }

 private:
  template <typename Call>
  absl::Status Guarded(FaultOp op, Call call) {
    if (const std::optional<Strike> strike = faults_.Next(op, path())) return Injected(*strike, path());
    return call();
  }

  FaultFileSystem& faults_;
  std::unique_ptr<File> base_;
};

FaultOp OpOf(IoRequest::Kind kind) {
  switch (kind) {
    case IoRequest::Kind::kRead:
      return FaultOp::kRead;
    case IoRequest::Kind::kWrite:
      return FaultOp::kWrite;
    case IoRequest::Kind::kSyncData:
      break;
  }
  return FaultOp::kSyncData;
}

// Strikes whole requests of an engine that works on descriptors, below File.
class FaultAsyncIo final : public AsyncIo {
 public:
  FaultAsyncIo(FaultFileSystem* faults, std::unique_ptr<AsyncIo> base) : faults_(*faults), base_(std::move(base)) {}

  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) {
      const std::optional<Strike> strike = faults_.Next(OpOf(request->kind), request->file->path());
      if (strike && strike->effect != FaultEffect::kShort) Change(request, *strike);
    }
    base_->Submit(requests);
  }

  absl::Status RegisterBuffer(std::span<std::byte> memory) override { return base_->RegisterBuffer(memory); }
  std::string_view name() const override { return base_->name(); }

 private:
  // A struck request still goes through the engine, so that `done` runs on an I/O thread, as ever.
  static void Change(IoRequest* request, const Strike& strike) {
    auto done = std::move(request->done);
    if (strike.effect == FaultEffect::kFlipBit) {
      if (request->kind == IoRequest::Kind::kWrite) {
        auto copy = std::make_shared<FlippedCopy>(std::span(request->data, request->length), strike.bit);
        request->data = copy->bytes().data();
        request->done = [copy, done = std::move(done)](const absl::Status& status) mutable { done(status); };
      } else {
        const std::span<std::byte> into(request->data, request->length);
        request->done = [into, bit = strike.bit, done = std::move(done)](const absl::Status& status) mutable {
          Flip(into, bit);
          done(status);
        };
      }
      return;
    }
    const absl::Status error = Injected(strike, request->file->path());
    request->done = [error, done = std::move(done)](const absl::Status&) mutable { done(error); };
    if (request->kind == IoRequest::Kind::kSyncData) return;
    if (strike.effect == FaultEffect::kHalfError && Half(request->length) > 0) {
      request->length = Half(request->length);
    } else if (request->kind == IoRequest::Kind::kWrite) {
      request->kind = IoRequest::Kind::kSyncData;  // touches no data
    }
  }

  FaultFileSystem& faults_;
  std::unique_ptr<AsyncIo> base_;
};

}  // namespace

FaultFileSystem::FaultFileSystem(FileSystem* base, std::uint64_t seed, AsyncIoOptions::Backend backend)
    : base_(*base), backend_(backend), random_(seed) {}
FaultFileSystem::~FaultFileSystem() = default;

void FaultFileSystem::Add(FaultRule rule) {
  absl::MutexLock lock(&mutex_);
  rules_.push_back({std::move(rule), 0, 0});
}

void FaultFileSystem::Clear() {
  absl::MutexLock lock(&mutex_);
  rules_.clear();
}

std::uint64_t FaultFileSystem::fired() const {
  absl::MutexLock lock(&mutex_);
  return fired_;
}

std::optional<Strike> FaultFileSystem::Next(FaultOp op, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  for (State& state : rules_) {
    const FaultRule& rule = state.rule;
    if (rule.op != op || path.find(rule.path_contains) == std::string::npos) continue;
    if (state.seen++ < rule.skip || state.done >= rule.count) continue;
    if (std::uniform_real_distribution<double>()(random_) >= rule.probability) continue;
    ++state.done;
    ++fired_;
    return Strike{rule.effect, rule.error, rule.bit >= 0 ? static_cast<std::uint64_t>(rule.bit) : random_()};
  }
  return std::nullopt;
}

absl::Status FaultFileSystem::Error(FaultOp op, const std::string& path) {
  if (const std::optional<Strike> strike = Next(op, path)) return Injected(*strike, path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> FaultFileSystem::Open(const std::string& path, const OpenOptions& options) {
  if (absl::Status e = Error(options.direct ? FaultOp::kOpenDirect : FaultOp::kOpen, path); !e.ok()) return e;
  absl::StatusOr<std::unique_ptr<File>> file = base_.Open(path, options);
  if (!file.ok()) return file;
  return std::make_unique<FaultFile>(this, *std::move(file));
}

absl::Status FaultFileSystem::CreateDirectory(const std::string& path) {
  if (absl::Status e = Error(FaultOp::kCreateDirectory, path); !e.ok()) return e;
  return base_.CreateDirectory(path);
}

absl::StatusOr<std::vector<std::string>> FaultFileSystem::List(const std::string& directory) {
  if (absl::Status e = Error(FaultOp::kList, directory); !e.ok()) return e;
  return base_.List(directory);
}

absl::StatusOr<bool> FaultFileSystem::Exists(const std::string& path) { return base_.Exists(path); }

absl::StatusOr<FileInfo> FaultFileSystem::Stat(const std::string& path) {
  if (absl::Status e = Error(FaultOp::kStat, path); !e.ok()) return e;
  return base_.Stat(path);
}

absl::Status FaultFileSystem::SetModified(const std::string& path, absl::Time modified) {
  return base_.SetModified(path, modified);
}

absl::Status FaultFileSystem::Rename(const std::string& from, const std::string& to) {
  if (absl::Status e = Error(FaultOp::kRename, from); !e.ok()) return e;
  return base_.Rename(from, to);
}

absl::Status FaultFileSystem::Remove(const std::string& path) {
  if (absl::Status e = Error(FaultOp::kRemove, path); !e.ok()) return e;
  return base_.Remove(path);
}

absl::Status FaultFileSystem::RemoveDirectory(const std::string& path) {
  if (absl::Status e = Error(FaultOp::kRemove, path); !e.ok()) return e;
  return base_.RemoveDirectory(path);
}

absl::Status FaultFileSystem::SyncDirectory(const std::string& directory) {
  if (absl::Status e = Error(FaultOp::kSyncDirectory, directory); !e.ok()) return e;
  return base_.SyncDirectory(directory);
}

absl::StatusOr<std::uint64_t> FaultFileSystem::FreeBytes(const std::string& directory) {
  if (absl::Status e = Error(FaultOp::kFreeBytes, directory); !e.ok()) return e;
  return base_.FreeBytes(directory);
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultFileSystem::Lock(const std::string& path) {
  if (absl::Status e = Error(FaultOp::kLock, path); !e.ok()) return e;
  return base_.Lock(path);
}

absl::StatusOr<std::unique_ptr<AsyncIo>> FaultFileSystem::NewAsyncIo(const AsyncIoOptions& options) {
  AsyncIoOptions chosen = options;
  if (chosen.backend == AsyncIoOptions::Backend::kAuto) chosen.backend = backend_;
  absl::StatusOr<std::unique_ptr<AsyncIo>> io = base_.NewAsyncIo(chosen);
  // The pool works through File: its faults strike there already.
  if (!io.ok() || (*io)->name() == "threads") return io;
  return std::make_unique<FaultAsyncIo>(this, *std::move(io));
}

}  // namespace kvist

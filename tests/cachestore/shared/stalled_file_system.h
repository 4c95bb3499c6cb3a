// A file system whose server has gone, as a hard NFS mount has it: calls don't return until the test lets them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/async_io.h"
#include "cachestore/io/file.h"

namespace kvist {

class StalledFileSystem final : public FileSystem {
 public:
  // From now on every call whose path contains `part` is stuck.
  void Stall(std::string part = "") { gate_->Shut(std::move(part), false); }
  // Only opening, reading and writing of such files; not the calls on directories and names.
  void StallFiles(std::string part) { gate_->Shut(std::move(part), true); }
  void Release() {
    absl::MutexLock lock(&gate_->mutex);
    gate_->stalled = false;
  }
  // Returns once so many calls are stuck.
  void AwaitStuck(std::size_t calls) {
    absl::MutexLock lock(&gate_->mutex);
    const auto reached = [&] {
      gate_->mutex.AssertHeld();
      return gate_->stuck >= calls;
    };
    gate_->mutex.Await(absl::Condition(&reached));
  }

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    gate_->PassFile(path);
    absl::StatusOr<std::unique_ptr<File>> file = base_->Open(path, options);
    if (!file.ok()) return file;
    return std::make_unique<StalledFile>(gate_, *std::move(file));
  }
  absl::Status CreateDirectory(const std::string& path) override {
    gate_->Pass(path);
    return base_->CreateDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    gate_->Pass(directory);
    return base_->List(directory);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override {
    gate_->Pass(path);
    return base_->Exists(path);
  }
  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    gate_->Pass(path);
    return base_->Stat(path);
  }
  absl::Status SetModified(const std::string& path, absl::Time modified) override {
    gate_->Pass(path);
    return base_->SetModified(path, modified);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    gate_->Pass(from);
    return base_->Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    gate_->Pass(path);
    return base_->Remove(path);
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    gate_->Pass(path);
    return base_->RemoveDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& directory) override {
    gate_->Pass(directory);
    return base_->SyncDirectory(directory);
  }
  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& directory) override { return base_->FreeBytes(directory); }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override { return base_->Lock(path); }
  absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) override {
    absl::StatusOr<std::unique_ptr<AsyncIo>> io = base_->NewAsyncIo(options);
    if (!io.ok()) return io;
    return std::make_unique<StalledIo>(gate_, *std::move(io));
  }

 private:
  struct Gate {
    absl::Mutex mutex;
    bool stalled ABSL_GUARDED_BY(mutex) = false;
    std::string part ABSL_GUARDED_BY(mutex);
    bool only_files ABSL_GUARDED_BY(mutex) = false;
    std::size_t stuck ABSL_GUARDED_BY(mutex) = 0;

    void Shut(std::string of, bool files) {
      absl::MutexLock lock(&mutex);
      stalled = true;
      only_files = files;
      part = std::move(of);
    }
    void Pass(const std::string& path) {
      absl::MutexLock lock(&mutex);
      if (!only_files) PassLocked(path);
    }
    void PassFile(const std::string& path) {
      absl::MutexLock lock(&mutex);
      PassLocked(path);
    }
    void PassLocked(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      if (!stalled || path.find(part) == std::string::npos) return;
      ++stuck;
      mutex.Await(absl::Condition(
          +[](bool* on) { return !*on; }, &stalled));
      --stuck;
    }
  };

  class StalledFile final : public File {
   public:
    StalledFile(std::shared_ptr<Gate> gate, std::unique_ptr<File> base)
        : gate_(std::move(gate)), base_(std::move(base)) {}
    absl::StatusOr<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> into) override {
      gate_->PassFile(path());
      return base_->ReadAt(offset, into);
    }
    absl::StatusOr<std::size_t> WriteAt(std::uint64_t offset, std::span<const std::byte> from) override {
      gate_->PassFile(path());
      return base_->WriteAt(offset, from);
    }
    absl::Status SyncData() override {
      gate_->PassFile(path());
      return base_->SyncData();
    }
    absl::Status Allocate(std::uint64_t bytes) override { return base_->Allocate(bytes); }
    absl::Status Resize(std::uint64_t bytes) override { return base_->Resize(bytes); }
    absl::StatusOr<std::uint64_t> Size() const override { return base_->Size(); }
    int fd() const override { return base_->fd(); }
    const std::string& path() const override { return base_->path(); }

   private:
    const std::shared_ptr<Gate> gate_;
    const std::unique_ptr<File> base_;
  };

  // Submit is what gets stuck.
  class StalledIo final : public AsyncIo {
   public:
    StalledIo(std::shared_ptr<Gate> gate, std::unique_ptr<AsyncIo> base)
        : gate_(std::move(gate)), base_(std::move(base)) {}
    void Submit(std::span<IoRequest* const> requests) override {
      for (const IoRequest* request : requests) gate_->PassFile(request->file->path());
      base_->Submit(requests);
    }
    absl::Status RegisterBuffer(std::span<std::byte> memory) override { return base_->RegisterBuffer(memory); }
    std::string_view name() const override { return base_->name(); }

   private:
    const std::shared_ptr<Gate> gate_;
    const std::unique_ptr<AsyncIo> base_;
  };

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  const std::unique_ptr<FileSystem> base_ = NewPosixFileSystem();
};

}  // namespace kvist

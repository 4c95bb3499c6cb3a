// The store's own files, every write and sync told to the ledger.
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "tests/power_cut/power_cut.h"

namespace kvist {
namespace {

// Direct files read only whole blocks into aligned memory; past the end, and for lack of blocks, it was zeros.
std::vector<std::byte> Before(const std::string& path, std::uint64_t offset, std::size_t length) {
  std::vector<std::byte> before(length);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(before.data()), static_cast<std::streamsize>(length));
  return before;
}

std::optional<std::string> Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class LedgerFile final : public File {
 public:
  LedgerFile(PowerLedger* ledger, std::unique_ptr<File> base) : ledger_(*ledger), base_(std::move(base)) {}

  absl::StatusOr<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> into) override {
    return base_->ReadAt(offset, into);
  }
  absl::StatusOr<std::size_t> WriteAt(std::uint64_t offset, std::span<const std::byte> from) override {
    const auto id = ledger_.BeginWrite(path(), offset, Before(path(), offset, from.size()));
    auto written = base_->WriteAt(offset, from);
    ledger_.EndWrite(id);
    return written;
  }
  absl::Status SyncData() override {
    const auto covered = ledger_.Ended(path());
    absl::Status status = base_->SyncData();
    if (status.ok()) ledger_.Forget(covered);
    return status;
  }
  absl::Status Allocate(std::uint64_t bytes) override { return base_->Allocate(bytes); }
  absl::Status Resize(std::uint64_t bytes) override { return base_->Resize(bytes); }
  absl::StatusOr<std::uint64_t> Size() const override { return base_->Size(); }
  int fd() const override { return base_->fd(); }
  const std::string& path() const override { return base_->path(); }

 private:
  PowerLedger& ledger_;
  const std::unique_ptr<File> base_;
};

// An engine that works on descriptors, below File.
class LedgerAsyncIo final : public AsyncIo {
 public:
  LedgerAsyncIo(PowerLedger* ledger, std::unique_ptr<AsyncIo> base) : ledger_(*ledger), base_(std::move(base)) {}

  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) Follow(request);
    base_->Submit(requests);
  }
  absl::Status RegisterBuffer(std::span<std::byte> memory) override { return base_->RegisterBuffer(memory); }
  std::string_view name() const override { return base_->name(); }

 private:
  void Follow(IoRequest* request) {
    const std::string& path = request->file->path();
    if (request->kind == IoRequest::Kind::kWrite) {
      const auto id = ledger_.BeginWrite(path, request->offset, Before(path, request->offset, request->length));
      request->done = [this, id, done = std::move(request->done)](const absl::Status& status) mutable {
        ledger_.EndWrite(id);
        done(status);
      };
    } else if (request->kind == IoRequest::Kind::kSyncData) {
      request->done = [this, covered = ledger_.Ended(path),
                       done = std::move(request->done)](const absl::Status& status) mutable {
        if (status.ok()) ledger_.Forget(covered);
        done(status);
      };
    }
  }

  PowerLedger& ledger_;
  const std::unique_ptr<AsyncIo> base_;
};

class LedgerFileSystem final : public FileSystem {
 public:
  LedgerFileSystem(FileSystem* base, PowerLedger* ledger) : base_(*base), ledger_(*ledger) {}

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    const absl::StatusOr<bool> there = base_.Exists(path);
    auto file = base_.Open(path, options);
    if (!file.ok()) return file;
    if (options.create && there.ok() && !*there) ledger_.EntryCreated(path);
    return std::make_unique<LedgerFile>(&ledger_, *std::move(file));
  }
  absl::Status CreateDirectory(const std::string& path) override { return base_.CreateDirectory(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override { return base_.List(path); }
  absl::StatusOr<bool> Exists(const std::string& path) override { return base_.Exists(path); }
  absl::StatusOr<FileInfo> Stat(const std::string& path) override { return base_.Stat(path); }
  absl::Status SetModified(const std::string& path, absl::Time time) override { return base_.SetModified(path, time); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    auto replaced = Content(to);
    absl::Status status = base_.Rename(from, to);
    if (status.ok()) ledger_.EntryRenamed(from, to, std::move(replaced));
    return status;
  }
  absl::Status Remove(const std::string& path) override {
    absl::Status status = base_.Remove(path);
    if (status.ok()) ledger_.EntryRemoved(path);
    return status;
  }
  absl::Status RemoveDirectory(const std::string& path) override { return base_.RemoveDirectory(path); }
  absl::Status SyncDirectory(const std::string& directory) override {
    absl::Status status = base_.SyncDirectory(directory);
    if (status.ok()) ledger_.EntriesSynced(directory);
    return status;
  }
  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) override { return base_.FreeBytes(path); }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override { return base_.Lock(path); }
  absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) override {
    auto io = base_.NewAsyncIo(options);
    // The pool of threads works through File, which tells already.
    if (!io.ok() || (*io)->name() == "threads") return io;
    return std::make_unique<LedgerAsyncIo>(&ledger_, *std::move(io));
  }

 private:
  FileSystem& base_;
  PowerLedger& ledger_;
};

}  // namespace

std::unique_ptr<FileSystem> NewLedgerFileSystem(FileSystem* base, PowerLedger* ledger) {
  return std::make_unique<LedgerFileSystem>(base, ledger);
}

}  // namespace kvist

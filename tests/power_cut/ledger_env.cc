// RocksDB's files, every append, sync and change of entries told to the ledger.
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "tests/power_cut/power_cut.h"

namespace kvist {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

class LedgerWritable final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  LedgerWritable(PowerLedger* ledger, std::string path, std::unique_ptr<rocksdb::FSWritableFile> base)
      : FSWritableFileOwnerWrapper(std::move(base)), ledger_(*ledger), path_(std::move(path)) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    ledger_.Appended(path_, data.size());
    return target()->Append(data, options, debug);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo& info,
                  IODebugContext* debug) override {
    ledger_.Appended(path_, data.size());
    return target()->Append(data, options, info, debug);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    ledger_.Truncated(path_, size);
    return target()->Truncate(size, options, debug);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    const std::uint64_t size = ledger_.AppendedSize(path_);
    IOStatus status = target()->Sync(options, debug);
    if (status.ok()) ledger_.AppendsSynced(path_, size);
    return status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    const std::uint64_t size = ledger_.AppendedSize(path_);
    IOStatus status = target()->Fsync(options, debug);
    if (status.ok()) ledger_.AppendsSynced(path_, size);
    return status;
  }

 private:
  PowerLedger& ledger_;
  const std::string path_;
};

class LedgerDirectory final : public rocksdb::FSDirectoryWrapper {
 public:
  LedgerDirectory(PowerLedger* ledger, std::string path, std::unique_ptr<rocksdb::FSDirectory> base)
      : FSDirectoryWrapper(std::move(base)), ledger_(*ledger), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Told(FSDirectoryWrapper::Fsync(options, debug));
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& how) override {
    return Told(FSDirectoryWrapper::FsyncWithDirOptions(options, debug, how));
  }

 private:
  IOStatus Told(IOStatus status) {
    if (status.ok()) ledger_.EntriesSynced(path_);
    return status;
  }

  PowerLedger& ledger_;
  const std::string path_;
};

class LedgerFs final : public rocksdb::FileSystemWrapper {
 public:
  explicit LedgerFs(PowerLedger* ledger) : FileSystemWrapper(rocksdb::FileSystem::Default()), ledger_(*ledger) {}
  const char* Name() const override { return "KvistPowerLedger"; }

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus status = target()->NewWritableFile(path, options, &file, debug);
    if (!status.ok()) return status;
    ledger_.EntryCreated(path);
    ledger_.Appendable(path, 0);
    *result = std::make_unique<LedgerWritable>(&ledger_, path, std::move(file));
    return status;
  }
  IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus status = target()->ReopenWritableFile(path, options, &file, debug);
    if (!status.ok()) return status;
    std::error_code absent;
    ledger_.Appendable(path, std::filesystem::file_size(path, absent));
    *result = std::make_unique<LedgerWritable>(&ledger_, path, std::move(file));
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    IOStatus status = target()->NewDirectory(path, options, &directory, debug);
    if (status.ok()) *result = std::make_unique<LedgerDirectory>(&ledger_, path, std::move(directory));
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    std::optional<std::string> replaced;
    if (std::ifstream file(to, std::ios::binary); file) replaced.emplace(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    IOStatus status = target()->RenameFile(from, to, options, debug);
    if (status.ok()) ledger_.EntryRenamed(from, to, std::move(replaced));
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = target()->DeleteFile(path, options, debug);
    if (status.ok()) ledger_.EntryRemoved(path);
    return status;
  }

 private:
  PowerLedger& ledger_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> NewLedgerEnv(PowerLedger* ledger) {
  return rocksdb::NewCompositeEnv(std::make_shared<LedgerFs>(ledger));
}

}  // namespace kvist

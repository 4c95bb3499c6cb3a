#include "cachestore/index/block_index.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cachestore/tier/store_files.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

constexpr std::string_view kMetaFormat = "format";
constexpr std::string_view kMetaSecret = "secret";
constexpr std::string_view kMetaNewestTime = "newest_time_ms";
constexpr std::string_view kMetaNewestSequence = "newest_sequence";

// 1 % false positives; filters cost 1.25 bytes a block.
constexpr double kBloomBitsPerKey = 10;
// A share of the index's memory for write buffers, so that loading cannot crowd them out.
constexpr std::uint64_t kWriteBufferShare = 2;
// Bounds replay time after a crash and the disk space of logs.
constexpr std::uint64_t kLogBytesMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kWriteBufferBytes = std::uint64_t{4} << 20;
constexpr std::size_t kManifestPreallocationBytes = std::size_t{64} << 10;
constexpr int kOpenFilesMax = 256;
constexpr std::size_t kInfoLogFiles = 4;
constexpr std::size_t kInfoLogBytesMax = std::size_t{4} << 20;

rocksdb::Slice AsSlice(std::string_view text) { return {text.data(), text.size()}; }
std::string_view AsView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

constexpr std::string_view kRebuildAdvice =
    "the index is damaged or gone: `kvist fsck DIR --rebuild-index` makes it anew from the segments";

absl::Status FromRocks(const rocksdb::Status& status, std::string_view what, const std::string& directory) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = fmt::format("index {}: {}: {}", directory, what, status.ToString());
  if (status.IsNoSpace()) {
    return absl::ResourceExhaustedError(text + " (free space on that file system or lower the capacity)");
  }
  if (status.IsCorruption()) {
    return absl::DataLossError(fmt::format("{} ({})", text, kRebuildAdvice));
  }
  if (text.find("Permission denied") != std::string::npos || text.find("Read-only file system") != std::string::npos) {
    return absl::PermissionDeniedError(text + " (give this user write access to the store directory)");
  }
  if (status.IsBusy() || text.find("lock hold by current process") != std::string::npos) {
    return absl::FailedPreconditionError(text + " (close the other user of this store)");
  }
  return absl::UnavailableError(text);
}

rocksdb::Options DatabaseOptions(const BlockIndexOptions& options, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::Options o;
  if (options.env != nullptr) o.env = options.env;
  o.create_if_missing = options.create;
  o.create_missing_column_families = true;
  // Of whole files, so that no byte of one is unguarded.
  o.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  o.paranoid_checks = true;
  o.max_open_files = kOpenFilesMax;
  o.max_total_wal_size = kLogBytesMax;
  o.max_background_jobs = 2;
  o.keep_log_file_num = kInfoLogFiles;
  o.max_log_file_size = kInfoLogBytesMax;
  o.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  o.compression = rocksdb::kNoCompression;  // keys and digests do not compress
  // RocksDB's own attempts to leave an error state end after a while; Apply's do not.
  o.max_bgerror_resume_count = 1;

  const std::uint64_t write_buffers = options.memory_bytes / kWriteBufferShare;
  o.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(write_buffers, cache);
  // Each log is preallocated at this size: 40,000 blocks' entries, and small enough for a small file system.
  o.write_buffer_size = std::min(kWriteBufferBytes, write_buffers);
  o.manifest_preallocation_size = kManifestPreallocationBytes;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBitsPerKey));
  table.whole_key_filtering = true;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return o;
}

class RocksBlockIndex final : public BlockIndex {
 public:
  explicit RocksBlockIndex(BlockIndexOptions options) : options_(std::move(options)) {}

  ~RocksBlockIndex() override {
    if (db_ == nullptr) return;
    // What was applied without a sync outlives a later power failure too.
    if (!looking_) (void)db_->SyncWAL();
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
    const rocksdb::Status closed = db_->Close();
    if (!closed.ok()) spdlog::warn("index {}: close: {}", options_.directory, closed.ToString());
  }

  absl::Status OpenDatabase(bool to_look) {
    looking_ = to_look;
    std::error_code ignored;
    if (!options_.create && !std::filesystem::exists(options_.directory + "/CURRENT", ignored)) {
      return absl::DataLossError(fmt::format("index {} is not there ({})", options_.directory, kRebuildAdvice));
    }
    cache_ = rocksdb::NewLRUCache(options_.memory_bytes);
    rocksdb::Options o = DatabaseOptions(options_, cache_);
    if (to_look) o.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const char* name : {"default", "blocks", "namespaces", "segments", "meta"}) families.emplace_back(name, o);
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened = to_look
                                       ? rocksdb::DB::OpenForReadOnly(o, options_.directory, families, &handles_, &db)
                                       : rocksdb::DB::Open(o, options_.directory, families, &handles_, &db);
    if (!opened.ok()) return FromRocks(opened, "open", options_.directory);
    db_.reset(db);
    return LoadMeta();
  }

  const KeyHasher::Secret& secret() const override { return secret_; }
  absl::Time newest_time() const override { return newest_time_; }
  std::uint64_t newest_sequence() const override { return newest_sequence_; }
  std::uint64_t last_change() const override { return db_->GetLatestSequenceNumber(); }
  std::uint64_t undecodable() const override { return undecodable_.load(std::memory_order_relaxed); }

  absl::Status Apply(const IndexBatch& batch, IndexSync sync) override {
    if (batch.empty()) return absl::OkStatus();
    rocksdb::WriteBatch out;
    for (const BlockKey& key : batch.delete_blocks) out.Delete(Blocks(), EncodeDigest(key));
    for (const auto& [key, entry] : batch.put_blocks) out.Put(Blocks(), EncodeDigest(key), EncodeBlockEntry(entry));
    for (const auto& [id, entry] : batch.put_namespaces) {
      out.Put(Namespaces(), EncodeDigest(id), EncodeNamespaceEntry(entry));
    }
    for (const std::uint64_t id : batch.delete_segments) out.Delete(Segments(), EncodeU64(id));
    for (const auto& [id, entry] : batch.put_segments) out.Put(Segments(), EncodeU64(id), EncodeSegmentEntry(entry));
    if (batch.newest_time) {
      const auto ms = static_cast<std::uint64_t>(absl::ToUnixMillis(*batch.newest_time));
      out.Put(Meta(), AsSlice(kMetaNewestTime), EncodeU64(ms));
    }
    if (batch.newest_sequence) out.Put(Meta(), AsSlice(kMetaNewestSequence), EncodeU64(*batch.newest_sequence));
    return Write(&out, sync);
  }

  absl::Status Verify() override {
    const rocksdb::ReadOptions read;
    rocksdb::Status status = db_->VerifyFileChecksums(read);
    if (status.ok()) status = db_->VerifyChecksum(read);
    return FromRocks(status, "verify", options_.directory);
  }

  absl::Status ForEachBlock(const std::function<bool(const BlockKey&, const BlockEntry&)>& visit) override {
    return Scan(Blocks(), [&](std::string_view key, std::string_view value) {
      const absl::StatusOr<BlockKey> id = DecodeDigest(key);
      const absl::StatusOr<BlockEntry> entry = DecodeBlockEntry(value);
      if (!id.ok() || !entry.ok()) return Seen::kUndecodable;
      return visit(*id, *entry) ? Seen::kGoOn : Seen::kStop;
    });
  }

  absl::StatusOr<std::vector<std::pair<BlockKey, BlockEntry>>> FindBlocks(std::span<const BlockKey> keys) override {
    std::vector<std::string> encoded;
    encoded.reserve(keys.size());
    std::vector<rocksdb::Slice> slices;
    for (const BlockKey& key : keys) slices.emplace_back(encoded.emplace_back(EncodeDigest(key)));
    std::vector<rocksdb::PinnableSlice> values(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db_->MultiGet(rocksdb::ReadOptions(), Blocks(), keys.size(), slices.data(), values.data(), statuses.data());
    std::vector<std::pair<BlockKey, BlockEntry>> found;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (statuses[i].IsNotFound()) continue;
      if (!statuses[i].ok()) return FromRocks(statuses[i], "read", options_.directory);
      const absl::StatusOr<BlockEntry> entry = DecodeBlockEntry(AsView(values[i]));
      if (entry.ok()) found.emplace_back(keys[i], *entry);
    }
    return found;
  }

  void EndReads() override { cache_->EraseUnRefEntries(); }

  absl::Status ForEachNamespace(const std::function<void(const NamespaceId&, NamespaceEntry)>& visit) override {
    return Scan(Namespaces(), [&](std::string_view key, std::string_view value) {
      const absl::StatusOr<NamespaceId> id = DecodeDigest(key);
      absl::StatusOr<NamespaceEntry> entry = DecodeNamespaceEntry(value);
      if (!id.ok() || !entry.ok()) return Seen::kUndecodable;
      visit(*id, *std::move(entry));
      return Seen::kGoOn;
    });
  }

  absl::Status ForEachSegment(const std::function<void(std::uint64_t, const SegmentEntry&)>& visit) override {
    return Scan(Segments(), [&](std::string_view key, std::string_view value) {
      const absl::StatusOr<std::uint64_t> id = DecodeU64(key);
      const absl::StatusOr<SegmentEntry> entry = DecodeSegmentEntry(value);
      if (!id.ok() || !entry.ok()) return Seen::kUndecodable;
      visit(*id, *entry);
      return Seen::kGoOn;
    });
  }

 private:
  enum class Seen : std::uint8_t { kGoOn, kStop, kUndecodable };

  rocksdb::ColumnFamilyHandle* Blocks() const { return handles_[1]; }
  rocksdb::ColumnFamilyHandle* Namespaces() const { return handles_[2]; }
  rocksdb::ColumnFamilyHandle* Segments() const { return handles_[3]; }
  rocksdb::ColumnFamilyHandle* Meta() const { return handles_[4]; }

  absl::Status Write(rocksdb::WriteBatch* batch, IndexSync sync) {
    rocksdb::WriteOptions write;
    write.sync = sync == IndexSync::kYes;
    if (stuck_.load(std::memory_order_relaxed)) {
      const rocksdb::Status resumed = db_->Resume();
      if (!resumed.ok()) return FromRocks(resumed, "resume after an earlier error", options_.directory);
      stuck_ = false;
    }
    const rocksdb::Status written = db_->Write(write, batch);
    if (!written.ok()) stuck_ = true;
    return FromRocks(written, "write", options_.directory);
  }

  template <typename Visit>
  absl::Status Scan(rocksdb::ColumnFamilyHandle* family, Visit visit) {
    rocksdb::ReadOptions read;
    read.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read, family));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const Seen seen = visit(AsView(it->key()), AsView(it->value()));
      if (seen == Seen::kStop) return absl::OkStatus();
      if (seen == Seen::kUndecodable) undecodable_.fetch_add(1, std::memory_order_relaxed);
    }
    return FromRocks(it->status(), "read", options_.directory);
  }

  absl::StatusOr<std::optional<std::string>> GetMeta(std::string_view key) {
    std::string value;
    const rocksdb::Status got = db_->Get(rocksdb::ReadOptions(), Meta(), AsSlice(key), &value);
    if (got.IsNotFound()) return std::optional<std::string>();
    if (!got.ok()) return FromRocks(got, "read", options_.directory);
    return std::optional<std::string>(std::move(value));
  }

  absl::Status LoadMeta() {
    absl::StatusOr<std::optional<std::string>> format = GetMeta(kMetaFormat);
    if (!format.ok()) return format.status();
    if (!*format && options_.create && !looking_) return CreateMeta();
    if (!*format) return absl::DataLossError(fmt::format("index {} is empty ({})", options_.directory, kRebuildAdvice));
    const absl::StatusOr<std::uint64_t> version = DecodeU64(**format);
    if (!version.ok()) return version.status();
    if (*version != kFormatVersion) {
      return absl::FailedPreconditionError(
          fmt::format("index {} has format version {}, this program reads {}; use the program that wrote it or choose "
                      "another directory",
                      options_.directory, *version, kFormatVersion));
    }
    absl::StatusOr<std::optional<std::string>> secret = GetMeta(kMetaSecret);
    if (!secret.ok()) return secret.status();
    if (!*secret || (*secret)->size() != secret_.size()) {
      return absl::DataLossError(
          fmt::format("index {} has lost its copy of the secret ({})", options_.directory, kRebuildAdvice));
    }
    std::memcpy(secret_.data(), (*secret)->data(), secret_.size());
    absl::StatusOr<std::optional<std::string>> newest = GetMeta(kMetaNewestTime);
    if (!newest.ok()) return newest.status();
    if (*newest) {
      const absl::StatusOr<std::uint64_t> ms = DecodeU64(**newest);
      if (ms.ok()) newest_time_ = absl::FromUnixMillis(static_cast<std::int64_t>(*ms));
    }
    absl::StatusOr<std::optional<std::string>> sequence = GetMeta(kMetaNewestSequence);
    if (!sequence.ok()) return sequence.status();
    if (*sequence) newest_sequence_ = DecodeU64(**sequence).value_or(0);
    return absl::OkStatus();
  }

  // Format and secret become durable together: there is no half-made index.
  absl::Status CreateMeta() {
    const absl::StatusOr<KeyHasher::Secret> secret = options_.secret ? *options_.secret : NewSecret();
    if (!secret.ok()) return secret.status();
    secret_ = *secret;
    rocksdb::WriteBatch batch;
    batch.Put(Meta(), AsSlice(kMetaFormat), EncodeU64(kFormatVersion));
    batch.Put(Meta(), AsSlice(kMetaSecret),
              rocksdb::Slice(reinterpret_cast<const char*>(secret_.data()), secret_.size()));
    return Write(&batch, IndexSync::kYes);
  }

  const BlockIndexOptions options_;
  std::shared_ptr<rocksdb::Cache> cache_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  KeyHasher::Secret secret_{};
  absl::Time newest_time_ = absl::InfinitePast();
  std::uint64_t newest_sequence_ = 0;
  bool looking_ = false;
  std::atomic<std::uint64_t> undecodable_ = 0;
  std::atomic<bool> stuck_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlockIndex>> BlockIndex::Open(const BlockIndexOptions& options) {
  auto index = std::make_unique<RocksBlockIndex>(options);
  if (absl::Status status = index->OpenDatabase(/*to_look=*/false); !status.ok()) return status;
  return index;
}

absl::StatusOr<std::unique_ptr<BlockIndex>> BlockIndex::OpenToCheck(const BlockIndexOptions& options) {
  BlockIndexOptions existing = options;
  existing.create = false;
  auto index = std::make_unique<RocksBlockIndex>(existing);
  if (absl::Status status = index->OpenDatabase(/*to_look=*/true); !status.ok()) return status;
  return index;
}

absl::Status BlockIndex::Destroy(const std::string& directory) {
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("remove the index {}: {}", directory, error.message()));
}

}  // namespace kvist

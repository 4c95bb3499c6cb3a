#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/store/peer.h"
#include "bench/store/support.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kBatchBlocks = 16;

class BlobDbPeer final : public Peer {
 public:
  explicit BlobDbPeer(std::string directory) : directory_(std::move(directory)) { Open(); }

  std::string_view name() const override { return "blobdb"; }

  void PutDurable(int round, std::span<const std::byte> source, std::size_t block_bytes) override {
    const std::size_t blocks = source.size() / block_bytes;
    for (std::size_t begin = 0; begin < blocks; begin += kBatchBlocks) {
      rocksdb::WriteBatch batch;
      for (std::size_t block = begin; block < std::min(blocks, begin + kBatchBlocks); ++block) {
        Expect(batch.Put(Key(round, block),
                         {reinterpret_cast<const char*>(source.data()) + block * block_bytes, block_bytes}));
      }
      rocksdb::WriteOptions synced;
      synced.sync = true;
      Expect(db_->Write(synced, &batch));
    }
  }

  void Cool(int, std::size_t) override {
    Expect(db_->Flush({}));  // out of the memtable, into blob files
    db_.reset();
    Open();
  }

  void Get(int round, std::span<std::byte> target, std::size_t block_bytes) override {
    const std::size_t blocks = target.size() / block_bytes;
    for (std::size_t begin = 0; begin < blocks; begin += kBatchBlocks) {
      const std::size_t count = std::min(kBatchBlocks, blocks - begin);
      std::vector<std::string> keys;
      for (std::size_t i = 0; i < count; ++i) keys.push_back(Key(round, begin + i));
      const std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
      std::vector<rocksdb::PinnableSlice> values(count);
      std::vector<rocksdb::Status> statuses(count);
      rocksdb::ReadOptions read;
      read.async_io = true;
      db_->MultiGet(read, db_->DefaultColumnFamily(), count, slices.data(), values.data(), statuses.data());
      for (std::size_t i = 0; i < count; ++i) {
        Expect(statuses[i]);
        std::memcpy(target.data() + (begin + i) * block_bytes, values[i].data(), block_bytes);
      }
    }
  }

 private:
  static std::string Key(int round, std::size_t block) { return fmt::format("{:08}-{:08}", round, block); }
  static void Expect(const rocksdb::Status& status) {
    if (!status.ok()) Fail("RocksDB: " + status.ToString());
  }
  void Open() {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.enable_blob_files = true;
    options.min_blob_size = 4096;
    options.use_direct_reads = true;
    options.compression = rocksdb::kNoCompression;
    options.max_background_jobs = 2;
    rocksdb::DB* db = nullptr;
    Expect(rocksdb::DB::Open(options, directory_, &db));
    db_.reset(db);
  }

  const std::string directory_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

std::unique_ptr<Peer> MakeBlobDbPeer(const std::string& directory) { return std::make_unique<BlobDbPeer>(directory); }

}  // namespace kvist::bench

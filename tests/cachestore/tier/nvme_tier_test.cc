// The tier as its users see it, on disk and on tmpfs, with io_uring and with the pool of threads.
#include "cachestore/tier/nvme_tier.h"

#include <sys/stat.h>

#include "tests/cachestore/tier/nvme_fixture.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

struct Place {
  std::string name;
  std::string root;
  AsyncIoOptions::Backend backend;
};

class NvmeTierTest : public NvmeFixture, public ::testing::WithParamInterface<Place> {
 protected:
  NvmeTierTest() : NvmeFixture(GetParam().root) { options_.file_system = &faults_; }
  ~NvmeTierTest() override { tier_.reset(); }

  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  FaultFileSystem faults_{posix_.get(), 1, GetParam().backend};
};

INSTANTIATE_TEST_SUITE_P(Places, NvmeTierTest,
                         ::testing::Values(Place{"DiskUring", ::testing::TempDir(), AsyncIoOptions::Backend::kUring},
                                           Place{"DiskThreads", ::testing::TempDir(),
                                                 AsyncIoOptions::Backend::kThreads},
                                           Place{"TmpfsUring", "/dev/shm", AsyncIoOptions::Backend::kUring},
                                           Place{"TmpfsThreads", "/dev/shm", AsyncIoOptions::Backend::kThreads}),
                         [](const auto& test) { return test.param.name; });

TEST_P(NvmeTierTest, ReturnsWhatWasWritten) {
  Open();
  EXPECT_FALSE(Resident(1));
  ASSERT_EQ(Write(1), absl::OkStatus());
  ASSERT_EQ(Write(2, 1), absl::OkStatus());
  EXPECT_EQ(Check(1), absl::OkStatus());
  EXPECT_EQ(Check(2, 1), absl::OkStatus());
  const std::optional<NvmeBlock> found = tier_->Find(TestBlock::Key(2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->parent, TestBlock::Key(1));
  EXPECT_EQ(found->record_bytes, TestBlock::RecordBytes());
  EXPECT_EQ(found->expires_unix_s, kTestExpiry);
  EXPECT_TRUE(absl::IsNotFound(Check(3)));
  EXPECT_EQ(tier_->Stats().tier.blocks, 2u);
}

TEST_P(NvmeTierTest, KeepsAllAcrossReopen) {
  Open();
  const KeyHasher::Secret secret = tier_->secret();
  ASSERT_EQ(tier_->PutNamespace({{{7, 7}, TestSpec()}, absl::Hours(5)}), absl::OkStatus());
  for (std::uint64_t i = 0; i < 25; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  ASSERT_EQ(tier_->SetPins(TestBlock::Key(3), 2), absl::OkStatus());
  Open();
  EXPECT_EQ(tier_->secret(), secret);
  const auto namespaces = tier_->Namespaces();
  ASSERT_EQ(namespaces.size(), 1u);
  EXPECT_EQ(namespaces[0].ns.spec, TestSpec());
  EXPECT_EQ(namespaces[0].ttl, absl::Hours(5));
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
  EXPECT_EQ(tier_->Find(TestBlock::Key(3))->pins, 2u);
  EXPECT_EQ(tier_->Stats().tier.bytes, 25 * kTestShape.payload_bytes());
  // And goes on in the segment it stopped in.
  const std::size_t segments = SegmentFiles().size();
  for (std::uint64_t i = 25; i < 30; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  EXPECT_EQ(SegmentFiles().size(), segments);
  Open();
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeTierTest, WritesManyAtOnceAndReadsThemBackAtOnce) {
  Open();
  constexpr std::uint64_t kBlocks = 60;
  std::vector<std::unique_ptr<TestBlock>> blocks;
  std::vector<absl::Status> results(kBlocks, absl::UnknownError("not done"));
  absl::BlockingCounter pending(kBlocks);
  for (std::uint64_t i = 0; i < kBlocks; ++i) blocks.push_back(std::make_unique<TestBlock>(i));
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    tier_->Write(blocks[i]->block, blocks[i]->record.bytes(), [&, i](absl::Status s) {
      results[i] = std::move(s);
      pending.DecrementCount();
    });
  }
  pending.Wait();
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());

  std::vector<AlignedBuffer> into;
  for (std::uint64_t i = 0; i < kBlocks; ++i) into.emplace_back(TestBlock::RecordBytes());
  tier_->RegisterBuffer(into[0].bytes());
  absl::BlockingCounter reading(kBlocks);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    tier_->Read(TestBlock::Key(i), into[i].bytes(), [&, i](absl::Status s) {
      results[i] = std::move(s);
      reading.DecrementCount();
    });
  }
  reading.Wait();
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(results[i], absl::OkStatus());
    EXPECT_TRUE(RecordTokensEqual(into[i].bytes(), blocks[i]->tokens));
    EXPECT_EQ(std::memcmp(into[i].bytes().data(), blocks[i]->record.bytes().data(), TestBlock::RecordBytes()), 0);
  }
}

TEST_P(NvmeTierTest, SaysAlreadyExistsForAResidentBlockAndForOneBeingWritten) {
  Open();
  TestBlock a(1);
  TestBlock b(1);
  absl::Status first;
  absl::Status second;
  absl::BlockingCounter pending(2);
  tier_->Write(a.block, a.record.bytes(), [&](absl::Status s) {
    first = std::move(s);
    pending.DecrementCount();
  });
  tier_->Write(b.block, b.record.bytes(), [&](absl::Status s) {
    second = std::move(s);
    pending.DecrementCount();
  });
  pending.Wait();
  EXPECT_EQ(first, absl::OkStatus());
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_TRUE(absl::IsAlreadyExists(Write(1)));
  EXPECT_EQ(tier_->Stats().tier.blocks, 1u);
  EXPECT_EQ(tier_->Stats().bytes_written, TestBlock::RecordBytes());
}

TEST_P(NvmeTierTest, DropsCorruptBlocksWhereverTheCorruptionIs) {
  Open();
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Close();
  const std::string segment = SegmentFiles().at(0);
  const std::uint64_t bytes = TestBlock::RecordBytes();
  FlipByte(segment, 0);                  // block 0: the start of its header
  FlipByte(segment, bytes + bytes / 2);  // block 1: the middle of its payload
  FlipByte(segment, 3 * bytes - 64);     // block 2: its last 64 bytes
  Open();
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(Resident(i));
    EXPECT_TRUE(absl::IsDataLoss(Check(i))) << i << Check(i);
    EXPECT_FALSE(Resident(i));
    EXPECT_TRUE(absl::IsNotFound(Check(i)));
  }
  EXPECT_EQ(Check(3), absl::OkStatus());
  EXPECT_EQ(tier_->Stats().corrupt_blocks, 3u);
  // The block can be stored again, and the drop is durable.
  ASSERT_EQ(Write(1), absl::OkStatus());
  EXPECT_EQ(Check(1), absl::OkStatus());
  Open();
  EXPECT_FALSE(Resident(0));
  EXPECT_EQ(Check(1), absl::OkStatus());
  EXPECT_FALSE(Resident(2));
  EXPECT_EQ(Check(3), absl::OkStatus());
}

TEST_P(NvmeTierTest, MissesWhatLayInADeletedSegment) {
  Open();
  for (std::uint64_t i = 0; i < 25; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Close();
  std::filesystem::remove(SegmentFiles().at(1));
  Open();
  for (std::uint64_t i = 0; i < 25; ++i) {
    EXPECT_EQ(Resident(i), i / 10 != 1) << i;
    EXPECT_EQ(Check(i).code(), i / 10 != 1 ? absl::StatusCode::kOk : absl::StatusCode::kNotFound) << i;
  }
  ASSERT_EQ(Write(12), absl::OkStatus());
  EXPECT_EQ(Check(12), absl::OkStatus());
}

TEST_P(NvmeTierTest, MissesWhatLayBeyondTheEndOfATruncatedSegment) {
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Close();
  std::filesystem::resize_file(SegmentFiles().at(0), 4 * TestBlock::RecordBytes() + 4096);
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Resident(i), i < 4) << i;
  EXPECT_EQ(Check(3), absl::OkStatus());
  for (std::uint64_t i = 4; i < 10; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeTierTest, MissesWhatIsTruncatedWhileOpen) {
  Open();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  std::filesystem::resize_file(SegmentFiles().at(0), TestBlock::RecordBytes() + 4096);
  EXPECT_EQ(Check(0), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(Check(1))) << Check(1);
  EXPECT_TRUE(absl::IsDataLoss(Check(2)));
  EXPECT_EQ(tier_->Stats().corrupt_blocks, 2u);
}

TEST_P(NvmeTierTest, MissesASwappedSegment) {
  Open();
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Close();
  // Whole, valid records, but of another place.
  const std::vector<std::string> files = SegmentFiles();
  std::filesystem::copy_file(files.at(1), files.at(0), std::filesystem::copy_options::overwrite_existing);
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(absl::IsDataLoss(Check(i))) << i;
  for (std::uint64_t i = 10; i < 20; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeTierTest, DoesNotStartEmptyWhenTheIndexIsGone) {
  Open();
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Close();
  const std::vector<std::string> before = SegmentFiles();
  for (const bool format_too : {false, true}) {
    std::filesystem::remove_all(options_.directory + "/index");
    if (format_too) std::filesystem::remove(options_.directory + "/FORMAT");
    const absl::Status status = TryOpen();
    ASSERT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--rebuild-index"));
    EXPECT_EQ(SegmentFiles(), before);
  }
}

TEST_P(NvmeTierTest, RestoresTheSecretFromTheIndexAndRefusesAnotherStores) {
  Open();
  ASSERT_EQ(Write(1), absl::OkStatus());
  const KeyHasher::Secret secret = tier_->secret();
  Close();
  const std::string file = options_.directory + "/SECRET";
  FlipByte(file, 100);
  Open();
  EXPECT_EQ(tier_->secret(), secret);
  Close();
  std::filesystem::remove(file);
  Open();
  EXPECT_EQ(tier_->secret(), secret);
  EXPECT_EQ(Check(1), absl::OkStatus());
  Close();
  const std::string good = root_ + "/SECRET";
  std::filesystem::copy(file, good);
  options_.directory = root_ + "/other";
  Open();
  EXPECT_NE(tier_->secret(), secret);
  Close();
  std::filesystem::copy_file(good, options_.directory + "/SECRET", std::filesystem::copy_options::overwrite_existing);
  const absl::Status status = TryOpen();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("different stores"));
}

TEST_P(NvmeTierTest, ADamagedFormatIsNotTakenForAnotherVersion) {
  Open();
  ASSERT_EQ(Write(1), absl::OkStatus());
  Close();
  const std::string file = options_.directory + "/FORMAT";
  for (std::uint64_t at = 0; at < std::filesystem::file_size(file); ++at) {
    FlipByte(file, at);
    const absl::Status status = TryOpen();
    EXPECT_TRUE(absl::IsDataLoss(status)) << at << " " << status;
    FlipByte(file, at);
  }
  Open();
  EXPECT_EQ(Check(1), absl::OkStatus());
}

TEST_P(NvmeTierTest, RemovesWhatAnInterruptedReplacementLeft) {
  Open();
  Close();
  const std::string paths[] = {options_.directory + "/SECRET.tmp",
                               options_.directory + "/namespaces/" + NamespaceId{7, 7}.ToHex() + ".tmp"};
  for (const std::string& path : paths) std::ofstream(path) << "half";
  Open();
  for (const std::string& path : paths) EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

TEST_P(NvmeTierTest, RestoresNamespaceFilesFromTheIndex) {
  Open();
  const NvmeTier::StoredNamespace stored{{{7, 7}, TestSpec()}, absl::Hours(5)};
  ASSERT_EQ(tier_->PutNamespace(stored), absl::OkStatus());
  ASSERT_EQ(Write(1), absl::OkStatus());
  ASSERT_TRUE(tier_->DropNamespace({7, 7}).ok());
  ASSERT_EQ(Write(2), absl::OkStatus());
  Close();
  const std::string file = options_.directory + "/namespaces/" + NamespaceId{7, 7}.ToHex();
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (const bool gone : {false, true}) {
    if (gone) {
      std::filesystem::remove(file);
    } else {
      FlipByte(file, 40);
    }
    Open();
    ASSERT_EQ(tier_->Namespaces().size(), 1u);
    EXPECT_EQ(tier_->Namespaces()[0].ns.spec, TestSpec());
    EXPECT_EQ(tier_->Namespaces()[0].ttl, absl::Hours(5));
    EXPECT_EQ(Check(2), absl::OkStatus());
    Close();
    std::ifstream again(file, std::ios::binary);
    EXPECT_EQ(std::string((std::istreambuf_iterator<char>(again)), {}), bytes);
  }
}

TEST_P(NvmeTierTest, RefusesASecondOpenerByPid) {
  Open();
  NvmeTierOptions same = options_;
  const auto second = NvmeTier::Open(same);
  ASSERT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(::getpid())));
  ASSERT_EQ(Write(1), absl::OkStatus());
  EXPECT_EQ(Check(1), absl::OkStatus());
}

TEST_P(NvmeTierTest, RefusesAnotherFormatVersionAndTouchesNothing) {
  std::filesystem::create_directories(options_.directory);
  std::ofstream(options_.directory + "/FORMAT") << "kvist store, format 999\n";
  const absl::Status status = TryOpen();
  ASSERT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("999"));
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(options_.directory)) names.push_back(e.path().filename());
  EXPECT_THAT(names, ::testing::ElementsAre("FORMAT"));
}

TEST_P(NvmeTierTest, RefusesADirectoryThatIsSomethingElse) {
  std::filesystem::create_directories(options_.directory);
  std::ofstream(options_.directory + "/thesis.tex") << "years of work";
  EXPECT_TRUE(absl::IsFailedPrecondition(TryOpen())) << TryOpen();
  std::filesystem::remove_all(options_.directory);
  std::ofstream(options_.directory) << "a file";
  const absl::Status status = TryOpen();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a directory"));
  options_.directory = "/proc/nowhere/store";
  EXPECT_FALSE(TryOpen().ok());
}

TEST_P(NvmeTierTest, CompletesADirectoryWhoseCreationWasInterrupted) {
  // FORMAT is written last: whatever else is there, nothing was ever acknowledged.
  std::filesystem::create_directories(options_.directory + "/index");
  std::filesystem::create_directories(options_.directory + "/segments");
  std::ofstream(options_.directory + "/LOCK") << "999999\n";
  std::ofstream(options_.directory + "/FORMAT.tmp") << "kvist sto";
  std::ofstream(options_.directory + "/segments/probe.tmp") << "";
  std::ofstream(options_.directory + "/segments/seg-00000001") << "half";
  Open();
  ASSERT_EQ(Write(1), absl::OkStatus());
  Open();
  EXPECT_EQ(Check(1), absl::OkStatus());
}

TEST_P(NvmeTierTest, RefusesMemoryThatCannotHoldARecord) {
  Open();
  ASSERT_EQ(Write(1), absl::OkStatus());
  AlignedBuffer small(4096);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadInto(*tier_, TestBlock::Key(1), small.bytes())));
  AlignedBuffer big(2 * TestBlock::RecordBytes());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadInto(*tier_, TestBlock::Key(1), big.bytes().subspan(8))));
  TestBlock block(2);
  block.block.record_bytes -= 4096;
  EXPECT_TRUE(absl::IsInvalidArgument(WriteBlock(*tier_, block)));
  RecordShape huge = kTestShape;
  huge.layer_bytes = options_.segment_bytes;
  EXPECT_TRUE(absl::IsInvalidArgument(tier_->PutNamespace({{{7, 7}, TestSpec(huge)}, std::nullopt})));
  EXPECT_EQ(Check(1), absl::OkStatus());
}

TEST_P(NvmeTierTest, DropsBlocksDurably) {
  Open();
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  const std::vector<BlockKey> keys = {TestBlock::Key(1), TestBlock::Key(99)};
  const auto dropped = tier_->Drop(keys);
  ASSERT_EQ(dropped.status(), absl::OkStatus());
  EXPECT_EQ(dropped->blocks, 1u);
  EXPECT_FALSE(Resident(1));
  Open();
  EXPECT_FALSE(Resident(1));
  EXPECT_EQ(Check(2), absl::OkStatus());
  const auto all = tier_->DropNamespace({7, 7});
  ASSERT_EQ(all.status(), absl::OkStatus());
  EXPECT_EQ(all->blocks, 5u);
  Open();
  EXPECT_EQ(tier_->Stats().tier.blocks, 0u);
}

TEST_P(NvmeTierTest, AWriteInFlightDoesNotSurviveADrop) {
  Open();
  std::vector<std::unique_ptr<TestBlock>> blocks;
  for (std::uint64_t i = 0; i < 40; ++i) blocks.push_back(std::make_unique<TestBlock>(i));
  absl::BlockingCounter pending(40);
  for (auto& b : blocks) {
    tier_->Write(b->block, b->record.bytes(), [&](absl::Status) { pending.DecrementCount(); });
  }
  ASSERT_EQ(tier_->DropNamespace({7, 7}).status(), absl::OkStatus());
  pending.Wait();
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_FALSE(Resident(i)) << i;
  Open();
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_FALSE(Resident(i)) << i;
}

TEST_P(NvmeTierTest, ExpiresWhatIsDueButNotPinnedOnesNorAncestorsOfLivingOnes) {
  Open();
  const auto write = [&](std::uint64_t i, std::optional<std::uint64_t> parent, std::int64_t expires) {
    TestBlock block(i, parent, kTestShape, expires);
    ASSERT_EQ(WriteBlock(*tier_, block), absl::OkStatus());
  };
  write(1, std::nullopt, 100);  // has a living grandchild
  write(2, 1, 100);
  write(3, 2, 300);
  write(4, 2, 100);             // due
  write(5, std::nullopt, 100);  // due, with a due child
  write(6, 5, 100);
  write(7, std::nullopt, 100);  // pinned
  ASSERT_EQ(tier_->SetPins(TestBlock::Key(7), 1), absl::OkStatus());
  EXPECT_EQ(tier_->DropExpired(100).value(), 0u);
  EXPECT_EQ(tier_->DropExpired(101).value(), 3u);
  Open();
  for (const std::uint64_t i : {1, 2, 3, 7}) EXPECT_TRUE(Resident(i)) << i;
  for (const std::uint64_t i : {4, 5, 6}) EXPECT_FALSE(Resident(i)) << i;
  const std::vector<BlockKey> touched = {TestBlock::Key(3)};
  tier_->Touch(touched, 1000);
  EXPECT_EQ(tier_->DropExpired(500).value(), 0u);
  ASSERT_EQ(tier_->SetPins(TestBlock::Key(7), 0), absl::OkStatus());
  EXPECT_EQ(tier_->DropExpired(1001).value(), 4u);
  EXPECT_EQ(tier_->Stats().expired_blocks, 4u);  // of this process
}

TEST_P(NvmeTierTest, RemembersTouchesAcrossReopen) {
  Open();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  const std::vector<BlockKey> touched = {TestBlock::Key(1)};
  tier_->Touch(touched, kTestExpiry + 7);
  EXPECT_EQ(FlushTier(*tier_), absl::OkStatus());
  Open();
  EXPECT_EQ(tier_->Find(TestBlock::Key(1))->expires_unix_s, kTestExpiry + 7);
  EXPECT_EQ(tier_->Find(TestBlock::Key(2))->expires_unix_s, kTestExpiry);
}

TEST_P(NvmeTierTest, RemembersTheNewestTime) {
  Open();
  EXPECT_EQ(tier_->newest_time(), absl::InfinitePast());
  ASSERT_EQ(Write(1), absl::OkStatus());
  const absl::Time then = clock_.Wall();
  Open();
  EXPECT_EQ(tier_->newest_time(), then);
}

TEST_P(NvmeTierTest, RefusesWritesBeyondTheQueueLimitAtOnce) {
  options_.write_queue_limit = 4;
  Open();
  std::vector<std::unique_ptr<TestBlock>> blocks;
  for (std::uint64_t i = 0; i < 50; ++i) blocks.push_back(std::make_unique<TestBlock>(i));
  std::atomic<int> refused = 0;
  std::atomic<int> stored = 0;
  absl::BlockingCounter pending(50);
  absl::Notification go;
  // Holds the writer's thread in a completion, so that the queue fills.
  TestBlock first(1000);
  absl::Notification held;
  tier_->Write(first.block, first.record.bytes(), [&](absl::Status) {
    held.Notify();
    go.WaitForNotification();
  });
  held.WaitForNotification();
  for (auto& b : blocks) {
    tier_->Write(b->block, b->record.bytes(), [&](absl::Status s) {
      ++(absl::IsResourceExhausted(s) ? refused : stored);
      pending.DecrementCount();
    });
  }
  EXPECT_EQ(refused, 46);
  go.Notify();
  pending.Wait();
  EXPECT_EQ(stored, 4);
}

}  // namespace
}  // namespace kvist

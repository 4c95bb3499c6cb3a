#include "cachestore/shared/directory_tier.h"

#include "cachestore/shared/shared_folder.h"
#include "tests/cachestore/shared/shared_fixture.h"
#include "tests/cachestore/shared/stalled_file_system.h"

namespace kvist {
namespace {

constexpr absl::Duration kLong = absl::Minutes(5);  // never reached
constexpr absl::Duration kSoon = absl::Milliseconds(20);

class DirectoryTierTest : public ::testing::Test {
 protected:
  ~DirectoryTierTest() override { disk_->Release(); }  // before the fixture's members go

  DirectoryTierOptions Options() {
    DirectoryTierOptions options;
    options.directory = directory_.path();
    options.threads = 4;
    options.open_timeout = kLong;
    options.write_timeout = kLong;
    options.drop_timeout = kLong;
    options.sweep_timeout = kLong;
    options.close_timeout = kSoon;
    options.bucket_list_age = absl::ZeroDuration();
    options.health = {.timeouts_to_open = 100};
    options.file_system = disk_;
    options.clock = &clock_;
    return options;
  }
  void Open() {
    auto tier = DirectoryTier::Open(Options(), std::nullopt);
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
  }
  absl::Status Put(const TestObject& object) {
    return AwaitStatus([&](DoneStatus done) {
      tier_->Put(object.name, object.record(), clock_.Wall() + absl::Hours(72), std::move(done));
    });
  }
  absl::Status Get(const TestObject& object, const std::shared_ptr<AlignedBuffer>& into, absl::Duration timeout) {
    return AwaitStatus([&](DoneStatus done) {
      tier_->Get(object.name, {into->bytes(), into}, timeout, std::move(done));
    });
  }

  TestDirectory directory_;
  FakeClock clock_;
  std::shared_ptr<StalledFileSystem> disk_ = std::make_shared<StalledFileSystem>();
  std::unique_ptr<ObjectTier> tier_;
};

TEST_F(DirectoryTierTest, GetsWhatWasPutAndCounts) {
  Open();
  const TestObject object(1);
  const auto into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  EXPECT_TRUE(absl::IsNotFound(Get(object, into, kLong)));
  ASSERT_TRUE(Put(object).ok());
  ASSERT_TRUE(Get(object, into, kLong).ok());
  EXPECT_TRUE(object.Equals(into->bytes()));
  const auto count = Await<std::size_t>([&](Done<std::size_t> done) {
    tier_->CountPresent(kObjectNs, {object.name.key, TestObject(2).name.key}, kLong, std::move(done));
  });
  EXPECT_EQ(*count, 1u);
  const ObjectTierStats stats = tier_->Stats();
  EXPECT_TRUE(stats.available);
  EXPECT_EQ(stats.read_bytes, kObjectShape.record_bytes());
  EXPECT_EQ(stats.written_bytes, kObjectShape.record_bytes());
  EXPECT_EQ(stats.written_objects, 1u);
  EXPECT_EQ(stats.errors + stats.timeouts + stats.corrupt_objects, 0u);
}

TEST_F(DirectoryTierTest, AStalledReadTimesOutAndNeverWritesIntoMemoryUsedAgain) {
  Open();
  const TestObject object(1);
  ASSERT_TRUE(Put(object).ok());
  auto into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  const std::weak_ptr<AlignedBuffer> memory = into;
  disk_->Stall();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get(object, into, kSoon)));
  into.reset();
  EXPECT_FALSE(memory.expired()) << "held for as long as the thread is stuck";
  EXPECT_EQ(tier_->Stats().timeouts, 1u);
  disk_->Release();
  while (!memory.expired()) std::this_thread::yield();
  into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  EXPECT_TRUE(Get(object, into, kLong).ok()) << "it is back";
}

TEST_F(DirectoryTierTest, ClosesWhileTheFolderHangsAndKeepsWritersMemory) {
  Open();
  std::weak_ptr<AlignedBuffer> memory;
  disk_->Stall("incoming");
  absl::Status status;
  {
    const TestObject object(1);
    memory = object.memory;
    tier_->Put(object.name, object.record(), clock_.Wall() + absl::Hours(72),
               [&](const absl::Status& ended) { status = ended; });
  }
  disk_->AwaitStuck(1);
  tier_.reset();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_FALSE(memory.expired());
  disk_->Release();
  while (!memory.expired()) std::this_thread::yield();
}

TEST_F(DirectoryTierTest, AHangingFolderKeepsNobodyFromOpeningForLong) {
  disk_->Stall();
  DirectoryTierOptions options = Options();
  options.open_timeout = kSoon;
  EXPECT_TRUE(absl::IsDeadlineExceeded(DirectoryTier::Open(options, std::nullopt).status()))
      << "a new store needs the secret";
  KeyHasher::Secret own{};
  own[3] = std::byte{3};
  auto tier = DirectoryTier::Open(options, own);
  ASSERT_TRUE(tier.ok()) << "one that has it can wait: " << tier.status();
  tier_ = *std::move(tier);
  EXPECT_EQ(tier_->secret(), own);
  EXPECT_FALSE(tier_->Stats().available);
  disk_->Release();
  const TestObject object(1);
  const auto into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  ASSERT_TRUE(Put(object).ok()) << "entered when it is there";
  ASSERT_TRUE(Get(object, into, kLong).ok());
  EXPECT_TRUE(tier_->Stats().available);
}

TEST_F(DirectoryTierTest, AFolderOfAnotherClusterThatComesLateIsNotUsed) {
  Open();
  const TestObject object(1);
  ASSERT_TRUE(Put(object).ok());
  tier_.reset();
  disk_->Stall();
  DirectoryTierOptions options = Options();
  options.open_timeout = kSoon;
  tier_ = DirectoryTier::Open(options, KeyHasher::Secret{}).value();
  disk_->Release();
  const auto into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  EXPECT_TRUE(absl::IsUnavailable(Get(object, into, kLong)));
  EXPECT_TRUE(absl::IsUnavailable(Put(TestObject(2))));
  EXPECT_FALSE(tier_->Stats().available);
  tier_.reset();
  const absl::Status refused = DirectoryTier::Open(Options(), KeyHasher::Secret{}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
}

TEST_F(DirectoryTierTest, AFolderWithoutPermissionIsAnErrorAndWorksAgainAfterwards) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may do anything";
  Open();
  const TestObject object(1);
  ASSERT_TRUE(Put(object).ok());
  const auto into = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::none);
  EXPECT_TRUE(absl::IsPermissionDenied(Get(object, into, kLong)));
  EXPECT_FALSE(tier_->Stats().available);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(Get(object, into, kLong).ok());
  EXPECT_TRUE(tier_->Stats().available);
}

}  // namespace
}  // namespace kvist

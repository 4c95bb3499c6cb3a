#include "cachestore/shared/shared_folder.h"

#include <fstream>
#include <thread>

#include "cachestore/io/fault_file_system.h"
#include "cachestore/shared/folder_layout.h"
#include "tests/cachestore/shared/shared_fixture.h"

namespace kvist {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SharedFolderTest : public ::testing::Test {
 protected:
  SharedFolderTest() : folder_(Make()) { secret_ = folder_->Enter(std::nullopt).value(); }

  std::unique_ptr<SharedFolder> Make(bool sync = true) {
    return std::make_unique<SharedFolder>(
        faults_,
        SharedFolder::Options{.directory = directory_.path(), .sync = sync, .bucket_list_age = absl::ZeroDuration()});
  }
  absl::Status Put(const TestObject& object, absl::Duration life = absl::Hours(72)) {
    return folder_->Put(object.name, object.record(), now_ + life, now_);
  }
  absl::Status Get(const TestObject& object, SharedFolder* from = nullptr) {
    std::fill(read_.bytes().begin(), read_.bytes().end(), std::byte{0xee});
    const absl::Status status = (from ? from : folder_.get())->Get(object.name, read_.bytes(), now_);
    EXPECT_TRUE(!status.ok() || object.Equals(read_.bytes())) << "other bytes than were put";
    return status;
  }
  std::size_t Objects() { return FilesBelow(directory_.path() + "/objects").size(); }
  std::string ObjectFile() { return FilesBelow(directory_.path() + "/objects").at(0); }

  TestDirectory directory_;
  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  std::shared_ptr<FaultFileSystem> faults_ = std::make_shared<FaultFileSystem>(posix_.get(), 1);
  std::unique_ptr<SharedFolder> folder_;
  KeyHasher::Secret secret_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  AlignedBuffer read_{kObjectShape.record_bytes()};
};

TEST_F(SharedFolderTest, AllWhoEnterGetOneSecret) {
  TestDirectory fresh;
  std::vector<KeyHasher::Secret> secrets(8);
  std::vector<std::thread> founders;
  for (KeyHasher::Secret& secret : secrets) {
    founders.emplace_back([&] {
      SharedFolder folder(faults_, {.directory = fresh.path()});
      const auto entered = folder.Enter(std::nullopt);
      ASSERT_TRUE(entered.ok()) << entered.status();
      secret = *entered;
    });
  }
  for (std::thread& founder : founders) founder.join();
  for (const KeyHasher::Secret& secret : secrets) EXPECT_EQ(secret, secrets[0]);
  EXPECT_NE(secrets[0], secret_) << "another folder, another secret";
}

TEST_F(SharedFolderTest, AStoreWithASecretFoundsWithItOrIsRefused) {
  TestDirectory fresh;
  SharedFolder first(faults_, {.directory = fresh.path()});
  EXPECT_EQ(*first.Enter(secret_), secret_);
  SharedFolder again(faults_, {.directory = fresh.path()});
  EXPECT_EQ(*again.Enter(secret_), secret_);
  KeyHasher::Secret other = secret_;
  other[0] ^= std::byte{1};
  SharedFolder stranger(faults_, {.directory = fresh.path()});
  const absl::Status refused = stranger.Enter(other).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("empty directory"));
}

TEST_F(SharedFolderTest, RefusesWhatIsNoSharedFolderAndLeavesItAlone) {
  TestDirectory foreign;
  std::ofstream(foreign.path() + "/thesis.tex") << "x";
  SharedFolder folder(faults_, {.directory = foreign.path()});
  EXPECT_TRUE(absl::IsFailedPrecondition(folder.Enter(std::nullopt).status()));
  EXPECT_THAT(FilesBelow(foreign.path()), SizeIs(1));

  std::ofstream(directory_.path() + "/cluster/FORMAT") << "kvist shared folder, format 9\n";
  const absl::Status other = Make()->Enter(std::nullopt).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr("format 9"));

  SharedFolder missing(faults_, {.directory = directory_.path() + "/nowhere"});
  EXPECT_TRUE(absl::IsUnavailable(missing.Enter(std::nullopt).status()));
  EXPECT_FALSE(fs::exists(directory_.path() + "/nowhere")) << "an unmounted path is not made";
}

TEST_F(SharedFolderTest, ADamagedSecretIsNeitherUsedNorReplaced) {
  std::fstream file(directory_.path() + "/cluster/SECRET", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(17);
  file.put('\x5a');
  file.close();
  EXPECT_TRUE(absl::IsDataLoss(Make()->Enter(std::nullopt).status()));
  EXPECT_TRUE(absl::IsDataLoss(Make()->Enter(secret_).status()));
  fs::remove(directory_.path() + "/cluster/SECRET");
  EXPECT_TRUE(absl::IsUnavailable(Make()->Enter(secret_).status()));
}

TEST_F(SharedFolderTest, GivesBackExactlyWhatWasPut) {
  for (const bool sync : {true, false}) {
    folder_ = Make(sync);
    const TestObject object(sync ? 1 : 2);
    EXPECT_TRUE(absl::IsNotFound(Get(object)));
    ASSERT_TRUE(Put(object).ok());
    EXPECT_TRUE(Get(object).ok());
    EXPECT_TRUE(absl::IsNotFound(Get(TestObject(9))));
    EXPECT_TRUE(absl::IsNotFound(Get(TestObject(sync ? 1 : 2, {8, 8})))) << "the key of another namespace";
    EXPECT_THAT(FilesBelow(directory_.path() + "/incoming"), IsEmpty());
  }
}

TEST_F(SharedFolderTest, TwoWritersOfOneNameLeaveOneWholeObject) {
  auto other = Make();
  ASSERT_TRUE(other->Enter(std::nullopt).ok());
  const TestObject object(1);
  std::thread racer([&] {
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(other->Put(object.name, object.record(), now_ + absl::Hours(1), now_).ok());
  });
  std::size_t reads = 0;
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(Put(object, absl::Hours(1)).ok());
    reads += Get(object).ok() ? 1 : 0;
  }
  racer.join();
  EXPECT_EQ(reads, 50u) << "all or nothing, and it was there";
  EXPECT_EQ(Objects(), 1u);
}

TEST_F(SharedFolderTest, WhatDoesNotVerifyIsAMissAndGone) {
  const TestObject object(1);
  const std::size_t bytes = kObjectShape.record_bytes();
  const std::vector<std::function<void(const std::string&)>> damages = {
      [&](const std::string& file) { fs::resize_file(file, bytes - 4096); },
      [&](const std::string& file) { fs::resize_file(file, 0); },
      [&](const std::string& file) { fs::resize_file(file, bytes + 1); },
      [&](const std::string& file) {
        std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(static_cast<std::streamoff>(bytes) - 9);
        f.put('\x77');
      },
      [&](const std::string& file) {
        std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(130);  // the token ids
        f.put('\x77');
      },
      [&](const std::string& file) {  // another block's object under this one's name
        const TestObject foreign(2);
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char*>(foreign.memory->bytes().data()), static_cast<std::streamoff>(bytes));
      },
      [&](const std::string& file) {  // another namespace's
        const TestObject foreign(1, {8, 8});
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char*>(foreign.memory->bytes().data()), static_cast<std::streamoff>(bytes));
      },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(Put(object).ok());
    const std::string file = ObjectFile();
    const auto modified = fs::last_write_time(file);
    damages[i](file);
    fs::last_write_time(file, modified);
    const absl::Status status = Get(object);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_EQ(Objects(), 0u) << "so that a good one can take its place";
    EXPECT_TRUE(absl::IsNotFound(Get(object)));
  }
}

TEST_F(SharedFolderTest, FaultsOfTheFileSystemAreErrorsOrMissesNeverWrongBytes) {
  const TestObject object(1);
  const std::vector<FaultRule> of_put = {
      {.op = FaultOp::kOpen, .error = EIO, .path_contains = "incoming"},
      {.op = FaultOp::kWrite, .error = ENOSPC},
      {.op = FaultOp::kWrite, .effect = FaultEffect::kHalfError, .error = ENOSPC, .skip = 1},
      {.op = FaultOp::kSyncData, .error = EIO},
      {.op = FaultOp::kRename, .error = EACCES},
      {.op = FaultOp::kCreateDirectory, .error = ENOSPC},
  };
  for (std::size_t i = 0; i < of_put.size(); ++i) {
    SCOPED_TRACE(i);
    const std::uint64_t before = faults_->fired();
    faults_->Add(of_put[i]);
    EXPECT_FALSE(Put(object).ok());
    EXPECT_EQ(faults_->fired(), before + 1);
    faults_->Clear();
    EXPECT_TRUE(absl::IsNotFound(Get(object)));
    EXPECT_THAT(FilesBelow(directory_.path() + "/incoming"), IsEmpty()) << "nothing half written is left";
  }
  faults_->Add({.op = FaultOp::kWrite, .effect = FaultEffect::kShort, .count = 3});
  ASSERT_TRUE(Put(object).ok()) << "short writes go on";
  faults_->Clear();
  EXPECT_TRUE(Get(object).ok());

  faults_->Add({.op = FaultOp::kRead, .effect = FaultEffect::kShort, .count = 3});
  EXPECT_TRUE(Get(object).ok()) << "short reads go on";
  for (const FaultOp op : {FaultOp::kOpen, FaultOp::kRead, FaultOp::kStat, FaultOp::kList}) {
    faults_->Clear();
    faults_->Add({.op = op, .error = EIO});
    EXPECT_TRUE(absl::IsUnavailable(Get(object)));
  }
  faults_->Clear();
  EXPECT_TRUE(Get(object).ok()) << "an error is no reason to remove it";
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Put(object).ok());
    faults_->Add({.op = FaultOp::kRead, .effect = FaultEffect::kFlipBit});
    EXPECT_TRUE(absl::IsDataLoss(Get(object)));
    faults_->Clear();
    faults_->Add({.op = FaultOp::kWrite, .effect = FaultEffect::kFlipBit});
    ASSERT_TRUE(Put(object).ok());
    faults_->Clear();
    EXPECT_TRUE(absl::IsDataLoss(Get(object)));
  }
}

TEST_F(SharedFolderTest, CountsAChainAsFarAsItGoes) {
  std::vector<BlockKey> chain;
  for (std::uint64_t i = 0; i < 40; ++i) chain.push_back(TestObject(i).name.key);
  for (std::size_t have = 0; have < chain.size(); ++have) {
    EXPECT_EQ(*folder_->CountPresent(kObjectNs, chain, now_), have);
    ASSERT_TRUE(Put(TestObject(have)).ok());
  }
  EXPECT_EQ(*folder_->CountPresent(kObjectNs, chain, now_), chain.size());
  EXPECT_EQ(*folder_->CountPresent({8, 8}, chain, now_), 0u);
  EXPECT_EQ(*folder_->CountPresent(kObjectNs, {}, now_), 0u);
  faults_->Add({.op = FaultOp::kStat, .error = EIO});
  EXPECT_TRUE(absl::IsUnavailable(folder_->CountPresent(kObjectNs, chain, now_).status()));
}

TEST_F(SharedFolderTest, ExpiresToTheSecondAndByWholeBuckets) {
  const TestObject brief(1);
  const TestObject lasting(2);
  const TestObject eternal(3);
  ASSERT_TRUE(Put(brief, absl::Minutes(5)).ok());
  ASSERT_TRUE(Put(lasting, absl::Hours(72)).ok());
  ASSERT_TRUE(Put(eternal, absl::InfiniteDuration()).ok());
  now_ += absl::Minutes(5) - absl::Seconds(1);
  EXPECT_TRUE(Get(brief).ok());
  now_ += absl::Seconds(1);
  EXPECT_TRUE(absl::IsNotFound(Get(brief)));
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_EQ(Objects(), 3u) << "its bucket isn't over";
  now_ = *ParseBucketName(BucketName(now_)) + kExpiryGrace - absl::Seconds(1);
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_EQ(Objects(), 3u) << "grace for other machines' clocks";
  now_ += absl::Seconds(1);
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_EQ(Objects(), 2u);
  EXPECT_THAT(FilesBelow(directory_.path() + "/trash"), IsEmpty());
  EXPECT_TRUE(Get(lasting).ok());
  now_ += absl::Hours(24 * 365);
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_TRUE(absl::IsNotFound(Get(lasting)));
  EXPECT_TRUE(Get(eternal).ok());
  EXPECT_EQ(Objects(), 1u);
}

TEST_F(SharedFolderTest, ARefreshMovesAnObjectToALaterBucket) {
  const TestObject object(1);
  EXPECT_TRUE(absl::IsNotFound(folder_->Refresh(object.name, now_ + absl::Hours(1), now_)));
  ASSERT_TRUE(Put(object, absl::Hours(2)).ok());
  const std::string early = ObjectFile();
  ASSERT_TRUE(folder_->Refresh(object.name, now_ + absl::Hours(1), now_).ok()) << "never shortens";
  ASSERT_TRUE(folder_->Refresh(object.name, now_ + absl::Hours(100), now_).ok());
  EXPECT_NE(ObjectFile(), early);
  EXPECT_EQ(Objects(), 1u);
  now_ += absl::Hours(100) - absl::Seconds(1);
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_TRUE(Get(object).ok());
  now_ += absl::Seconds(1);
  EXPECT_TRUE(absl::IsNotFound(Get(object)));
  EXPECT_TRUE(absl::IsNotFound(folder_->Refresh(object.name, now_ + absl::Hours(1), now_))) << "expired is gone";
  ASSERT_TRUE(Put(object, absl::Hours(1)).ok()) << "and can be put again";
  EXPECT_TRUE(Get(object).ok());
}

TEST_F(SharedFolderTest, ReadersFindAnObjectWhileItMoves) {
  const TestObject object(1);
  ASSERT_TRUE(Put(object, absl::Hours(1)).ok());
  auto other = Make();
  ASSERT_TRUE(other->Enter(std::nullopt).ok());
  int missed = 0;
  for (int day = 1; day <= 100; ++day) {
    std::thread mover([&, day] { EXPECT_TRUE(other->Refresh(object.name, now_ + day * absl::Hours(24), now_).ok()); });
    missed += Get(object).ok() ? 0 : 1;
    mover.join();
  }
  EXPECT_EQ(missed, 0);
}

TEST_F(SharedFolderTest, ConcurrentSweepersAndReadersAgree) {
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(Put(TestObject(i), absl::Hours(i < 50 ? 1 : 72)).ok());
  const absl::Time later = now_ + absl::Hours(50);
  std::vector<std::thread> sweepers;
  for (int i = 0; i < 3; ++i) {
    sweepers.emplace_back([&] {
      auto folder = Make();
      ASSERT_TRUE(folder->Enter(std::nullopt).ok());
      EXPECT_TRUE(folder->Sweep(later).ok());
    });
  }
  for (std::uint64_t i = 50; i < 100; ++i) EXPECT_TRUE(Get(TestObject(i)).ok());
  for (std::thread& sweeper : sweepers) sweeper.join();
  EXPECT_EQ(Objects(), 50u);
}

TEST_F(SharedFolderTest, ASweepIsBoundedAndTheNextGoesOn) {
  constexpr std::size_t kMany = SharedFolder::kSweepEntriesMax + 100;
  const std::string rubbish = directory_.path() + "/trash/many";
  fs::create_directory(rubbish);
  for (std::size_t i = 0; i < kMany; ++i) std::ofstream(rubbish + "/" + std::to_string(i)) << "";
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_THAT(FilesBelow(directory_.path() + "/trash"), SizeIs(100));
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_FALSE(fs::exists(rubbish));
}

TEST_F(SharedFolderTest, LeftoversOfDeadWritersGoAndThoseOfLiveOnesStay) {
  const std::string dead = directory_.path() + "/incoming/0123456789abcdef";
  fs::create_directories(dead);
  const std::int64_t old = absl::ToUnixSeconds(now_ - SharedFolder::kLeftoverAge - kExpiryGrace);
  std::ofstream(dead + "/" + std::to_string(old) + "-1") << "half";
  const std::string live = directory_.path() + "/incoming/fedcba9876543210";
  fs::create_directories(live);
  std::ofstream(live + "/" + std::to_string(old + 60) + "-1") << "half";
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_THAT(FilesBelow(live), SizeIs(1));
  ASSERT_TRUE(Put(TestObject(1)).ok()) << "a writer whose directory was swept makes it again";
  EXPECT_TRUE(Get(TestObject(1)).ok());
}

TEST_F(SharedFolderTest, DropsANamespaceWholly) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(Put(TestObject(i), absl::Hours(static_cast<int>(i) * 20 + 1)).ok());
    ASSERT_TRUE(Put(TestObject(i, {8, 8})).ok());
  }
  ASSERT_TRUE(folder_->DropNamespace(kObjectNs).ok());
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsNotFound(Get(TestObject(i))));
    EXPECT_TRUE(Get(TestObject(i, {8, 8})).ok());
  }
  ASSERT_TRUE(folder_->Sweep(now_).ok());
  EXPECT_THAT(FilesBelow(directory_.path() + "/trash"), IsEmpty());
  EXPECT_TRUE(folder_->DropNamespace(kObjectNs).ok()) << "again is nothing";
  ASSERT_TRUE(Put(TestObject(1)).ok());
  EXPECT_TRUE(Get(TestObject(1)).ok());
}

TEST_F(SharedFolderTest, AVanishedFolderIsAMissAndNothingIsWrittenInItsPlace) {
  const TestObject object(1);
  ASSERT_TRUE(Put(object).ok());
  const std::string away = directory_.path() + "-away";
  fs::rename(directory_.path(), away);
  EXPECT_FALSE(Get(object).ok());
  EXPECT_FALSE(Put(TestObject(2)).ok());
  EXPECT_FALSE(fs::exists(directory_.path()));
  fs::create_directory(directory_.path());  // a mount point, unmounted
  EXPECT_FALSE(Get(object).ok());
  EXPECT_TRUE(absl::IsUnavailable(Put(TestObject(2))));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  fs::remove(directory_.path());
  fs::rename(away, directory_.path());
  EXPECT_TRUE(Get(object).ok());
  EXPECT_TRUE(Put(TestObject(2)).ok());
}

TEST(FolderLayout, BucketNamesSortByTimeAndParse) {
  const absl::Time noon = absl::FromUnixSeconds(1'800'014'400);
  std::string last;
  for (int hour = 0; hour < 200; ++hour) {
    const absl::Time expires = noon + absl::Hours(hour) + absl::Milliseconds(hour);
    const std::string name = BucketName(expires);
    EXPECT_GE(name, last);
    EXPECT_GE(*ParseBucketName(name), expires);
    EXPECT_LE(*ParseBucketName(name) - expires, kBucketWidth);
    last = name;
  }
  EXPECT_EQ(BucketName(absl::InfiniteFuture()), "never");
  EXPECT_GT(BucketName(absl::InfiniteFuture()), last);
  EXPECT_EQ(*ParseBucketName("never"), absl::InfiniteFuture());
  EXPECT_EQ(BucketName(absl::UnixEpoch() - absl::Hours(5)), "000000086400");
  for (const char* bad : {"", "12", "00000008640x", "-00000086400", "0000000864000", "NEVER"}) {
    EXPECT_FALSE(ParseBucketName(bad)) << bad;
  }
}

}  // namespace
}  // namespace kvist

// A really full file system (D15, D16): a small tmpfs, mounted in a mount namespace of its own by a child process.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "tests/cachestore/tier/nvme_fixture.h"

namespace kvist {
namespace {

constexpr int kSkip = 77;
constexpr std::uint64_t kBlocks = 5000;

class NvmeFullDisk : public NvmeFixture {
 protected:
  // Runs `work` in a child that sees a 64 MiB tmpfs at root_; its return value is the child's.
  template <typename Work>
  int InSmallFileSystem(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      if ((::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", root_.c_str(), "tmpfs", 0, "size=64m") != 0) {
        ::_exit(kSkip);
      }
      work();
      tier_.reset();
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Takes all that is left.
  void FillUp() {
    std::ofstream ballast(root_ + "/ballast", std::ios::binary | std::ios::app);
    const std::string page(4096, 'x');
    while (ballast.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
    }
  }
  void MakeSpace() { std::filesystem::remove(root_ + "/ballast"); }
};

TEST_F(NvmeFullDisk, PutsFailAsFullAndResumeUnaided) {
  const int result = InSmallFileSystem([&] {
    options_.capacity_bytes = std::uint64_t{128} << 20;
    options_.segment_bytes = std::uint64_t{1} << 20;
    Open();
    std::vector<bool> stored(kBlocks);
    std::uint64_t next = 0;
    // Full of segments: the index still works.
    absl::Status status;
    while (next < kBlocks && status.ok()) {
      status = Write(next);
      stored[next++] = status.ok();
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_GT(next, 1000u);
    EXPECT_EQ(tier_->Drop(std::vector<BlockKey>{TestBlock::Key(0)}).status(), absl::OkStatus());
    stored[0] = false;
    // Full to the brim: nothing may be acknowledged that the index does not hold.
    FillUp();
    for (int i = 0; i < 50; ++i) {
      stored[next] = Write(next).ok();
      ++next;
    }
    for (std::uint64_t i = 0; i < next; ++i) {
      EXPECT_EQ(Resident(i), stored[i]) << i;
      EXPECT_EQ(Check(i).ok(), stored[i]) << i;
    }
    // A drop that cannot be made durable says so; later it is.
    std::vector<BlockKey> many;
    for (std::uint64_t i = 1; i < 200; ++i) many.push_back(TestBlock::Key(i));
    const bool dropped = tier_->Drop(many).ok();
    for (std::uint64_t i = 1; i < 200; ++i) EXPECT_FALSE(Resident(i));
    MakeSpace();
    EXPECT_EQ(FlushTier(*tier_), absl::OkStatus()) << "after a drop that " << (dropped ? "worked" : "failed");
    for (std::uint64_t i = 1; i < 200; ++i) stored[i] = false;
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(Write(next), absl::OkStatus());
      stored[next++] = true;
    }
    Open();
    for (std::uint64_t i = 0; i < next; ++i) EXPECT_EQ(Check(i).ok(), stored[i]) << i << Check(i);
    EXPECT_EQ(tier_->Stats().corrupt_blocks, 0u);
  });
  if (result == kSkip) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(result, 0);
}

TEST_F(NvmeFullDisk, RefusesToOpenAStoreItCannotCreateAndOpensItLater) {
  const int result = InSmallFileSystem([&] {
    FillUp();
    const absl::Status status = TryOpen();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("free space"));
    MakeSpace();
    Open();
    EXPECT_EQ(Write(1), absl::OkStatus());
    EXPECT_EQ(Check(1), absl::OkStatus());
  });
  if (result == kSkip) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace kvist

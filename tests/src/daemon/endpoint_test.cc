#include "src/daemon/endpoint.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/src/testing/raw_client.h"
#include "tests/src/testing/scratch.h"

namespace kvist::daemon {
namespace {

using ::testing::HasSubstr;

TEST(Endpoint, MakesASocketThatOnlyItsUserMayUse) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("new/dir/s");
  auto endpoint = Endpoint::Reserve(path);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto socket = endpoint->Listen();
  ASSERT_TRUE(socket.ok()) << socket.status();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(scratch.path("new/dir").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(testing::RawClient(path).connected());
}

TEST(Endpoint, LeavesNothingBehind) {
  const testing::Scratch scratch;
  {
    auto endpoint = Endpoint::Reserve(scratch.path("s"));
    ASSERT_TRUE(endpoint.ok() && endpoint->Listen().ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("")));
}

TEST(Endpoint, RefusesASecondOneOnTheSamePath) {
  const testing::Scratch scratch;
  auto first = Endpoint::Reserve(scratch.path("s"));
  ASSERT_TRUE(first.ok());
  const auto second = Endpoint::Reserve(scratch.path("s"));
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another kvistd"));
}

TEST(Endpoint, ReplacesAStaleSocketButNotALiveOne) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("s");
  {
    auto endpoint = Endpoint::Reserve(path);
    ASSERT_TRUE(endpoint.ok());
    const auto socket = endpoint->Listen();
    ASSERT_TRUE(socket.ok());
    // Someone without our lock file serves there.
    ::unlink((path + ".lock").c_str());
    const auto other = Endpoint::Reserve(path);
    EXPECT_TRUE(absl::IsFailedPrecondition(other.status())) << other.status();
    EXPECT_TRUE(testing::RawClient(path).connected()) << "the live socket stays";
    std::filesystem::rename(path, path + ".kept");
  }
  std::filesystem::rename(path + ".kept", path);  // as after a kill: a socket file nobody serves
  auto endpoint = Endpoint::Reserve(path);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto socket = endpoint->Listen();
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(testing::RawClient(path).connected());
}

TEST(Endpoint, NeverTouchesWhatIsNoSocket) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("s");
  std::ofstream(path) << "precious";
  const auto endpoint = Endpoint::Reserve(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(endpoint.status()));
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("not a socket"));
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "precious");
  // A link to it is no socket either, and a file at the lock's place is not emptied or removed.
  std::filesystem::create_symlink(path, scratch.path("link"));
  EXPECT_FALSE(Endpoint::Reserve(scratch.path("link")).ok());
  std::ofstream(scratch.path("t.lock")) << "precious";
  { EXPECT_TRUE(Endpoint::Reserve(scratch.path("t")).ok()); }
  EXPECT_EQ(std::filesystem::file_size(scratch.path("t.lock")), 8u);
}

TEST(Endpoint, DoesNotRemoveASocketThatIsNoLongerItsOwn) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("s");
  {
    auto endpoint = Endpoint::Reserve(path);
    ASSERT_TRUE(endpoint.ok() && endpoint->Listen().ok());
    std::filesystem::rename(path, scratch.path("moved"));
    std::ofstream(path) << "another's";
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Endpoint, NamesAPathThatIsTooLong) {
  const auto endpoint = Endpoint::Reserve("/tmp/" + std::string(200, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(endpoint.status()));
}

}  // namespace
}  // namespace kvist::daemon

#include "src/client/open_store.h"

#include <fstream>

#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/local_server.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

OpenStoreOptions SmallOptions() {
  OpenStoreOptions options;
  options.local = testing::SmallStore("");
  return options;
}

TEST(OpenStore, OpensADirectoryEmbeddedAndASocketRemote) {
  const testing::Scratch scratch;
  for (const std::string& url : {"local:" + scratch.path("store"), scratch.path("store")}) {
    auto store = OpenStore(url, SmallOptions());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(dynamic_cast<RemoteStore*>(store->get()), nullptr);
  }
  const auto server = testing::LocalServer::Start(scratch.path("s"), testing::SmallStore(scratch.path("store")));
  ASSERT_TRUE(server.ok()) << server.status();
  auto store = OpenStore("unix:" + scratch.path("s"));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_NE(dynamic_cast<RemoteStore*>(store->get()), nullptr);
}

TEST(OpenStore, SaysHowToStartADaemonThatIsNotThere) {
  const testing::Scratch scratch;
  const auto store = OpenStore("unix:" + scratch.path("nothing"));
  EXPECT_TRUE(absl::IsUnavailable(store.status()));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("kvistd --config"));
}

TEST(OpenStore, NamesWhatIsWrongWithAUrl) {
  const testing::Scratch scratch;
  EXPECT_THAT(std::string(OpenStore("tcp:host:1").status().message()), HasSubstr("unknown scheme"));
  EXPECT_THAT(std::string(OpenStore("http://x").status().message()), HasSubstr("unknown scheme"));
  EXPECT_THAT(std::string(OpenStore("local:").status().message()), HasSubstr("no directory"));
  EXPECT_FALSE(OpenStore("").ok());
  std::ofstream(scratch.path("file")) << "x";
  EXPECT_THAT(std::string(OpenStore(scratch.path("file")).status().message()), HasSubstr("not a directory"));
  EXPECT_THAT(std::string(OpenStore("unix:/" + std::string(200, 'x')).status().message()), HasSubstr("shorter"));
  const auto server = testing::LocalServer::Start(scratch.path("s"), testing::SmallStore(scratch.path("store")));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(std::string(OpenStore(scratch.path("s")).status().message()), HasSubstr("unix:"));
}

}  // namespace
}  // namespace kvist

#include "src/daemon/config.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "src/daemon/config_value.h"

namespace kvist::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Fault(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto config = ParseConfig(text, "kvistd.toml", overrides);
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(ConfigValue, ReadsSizes) {
  EXPECT_EQ(*ParseBytes("4GiB"), std::uint64_t{4} << 30);
  EXPECT_EQ(*ParseBytes("1.5 KiB"), 1536u);
  EXPECT_EQ(*ParseBytes("2MB"), 2'000'000u);
  EXPECT_EQ(*ParseBytes("0B"), 0u);
  for (const char* bad : {"", "4", "GiB", "-1GiB", "4 gib", "4GiB x", "1e3MiB", "nan", "9999999TiB", "inf", "4G"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1536}, std::uint64_t{1} << 40}) {
    EXPECT_EQ(*ParseBytes(BytesText(bytes)), bytes);
  }
}

TEST(ConfigValue, ReadsDurations) {
  EXPECT_EQ(*ParseDuration("72h"), absl::Hours(72));
  EXPECT_EQ(*ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("3d"), absl::Hours(72));
  EXPECT_EQ(*ParseDuration("inf"), absl::InfiniteDuration());
  for (const char* bad : {"", "72", "h", "-1h", "72 hours", "1h30m"}) EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  for (const absl::Duration d : {absl::Hours(72), absl::Milliseconds(1500), absl::InfiniteDuration()}) {
    EXPECT_EQ(*ParseDuration(DurationText(d)), d);
  }
}

TEST(ConfigValue, ExpandsOnlyWhatItKnows) {
  ::setenv("HOME", "/home/u", 1);
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(*ExpandPath("~/x"), "/home/u/x");
  EXPECT_EQ(*ExpandPath("${HOME}/a${CACHE_DIR}"), "/home/u/a/cache");
  EXPECT_EQ(*ExpandPath("a~/$HOME"), "a~/$HOME");
  EXPECT_FALSE(ExpandPath("${PATH}/x").ok());
  EXPECT_FALSE(ExpandPath("${HOME").ok());
  EXPECT_FALSE(ExpandPath("").ok());
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(*ExpandPath("${CACHE_DIR}"), "/home/u/.cache");
}

TEST(Config, ShippedFileHoldsEveryKeyWithItsDefault) {
  const auto shipped = LoadConfig(KVIST_CONFIG_FILE, {});
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  EXPECT_EQ(PrintConfig(*shipped), PrintConfig(DaemonConfig()));
  std::ifstream file(KVIST_CONFIG_FILE);
  std::ostringstream text;
  text << file.rdbuf();
  std::istringstream printed(PrintConfig(*shipped));
  for (std::string line; std::getline(printed, line);) {
    if (const auto equals = line.find(" = "); equals != line.npos && line[0] != '#') {
      EXPECT_THAT(text.str(), HasSubstr("\n" + line.substr(0, equals + 3)));
    }
  }
}

TEST(Config, PrintedFileLoadsAsTheSame) {
  const auto config = ParseConfig("", "x",
                                  {"store.dram=32MiB", "store.dram=64MiB", "store.ttl=inf", "daemon.threads=5",
                                   "daemon.socket=/a \"quoted\" path"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dram_bytes, std::uint64_t{64} << 20);
  const auto again = ParseConfig(PrintConfig(*config), "x", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(PrintConfig(*again), PrintConfig(*config));
  EXPECT_EQ(again->socket, "/a \"quoted\" path");
}

TEST(Config, ReadsTheSharedFolder) {
  const auto config = ParseConfig("[shared]\ndirectory = \"/mnt/kv\"\nsync = false\n", "x", {"shared.timeout=500ms"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shared_directory, "/mnt/kv");
  EXPECT_FALSE(config->shared_sync);
  EXPECT_EQ(config->shared_timeout, absl::Milliseconds(500));
  const auto none = ParseConfig("[shared]\ndirectory = \"/mnt/kv\"\n", "x", {"shared.directory=", "shared.sync=true"});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->shared_directory, "");
  EXPECT_THAT(Fault("[shared]\nsync = 1\n"), HasSubstr("neither true nor false"));
  EXPECT_THAT(Fault("", {"shared.sync=yes"}), HasSubstr("neither true nor false"));
}

TEST(Config, NamesFileLineAndKeyOfAFault) {
  EXPECT_THAT(Fault("[store]\n\ndramm = \"1GiB\"\n"),
              AllOf(HasSubstr("kvistd.toml:3"), HasSubstr("unknown key \"store.dramm\""), HasSubstr("store.dram")));
  EXPECT_THAT(Fault("[store]\ndram = \"1 Gib\"\n"), AllOf(HasSubstr("kvistd.toml:2: store.dram"), HasSubstr("Gib")));
  EXPECT_THAT(Fault("[store]\ndram = 4\n"), HasSubstr("no unit"));
  EXPECT_THAT(Fault("[store]\ndram = true\n"), HasSubstr("must be a text or a whole number"));
  EXPECT_THAT(Fault("[stores]\n"), AllOf(HasSubstr("kvistd.toml:1"), HasSubstr("unknown section")));
  EXPECT_THAT(Fault("dram = \"1GiB\"\n"), HasSubstr("unknown key \"dram\""));
  EXPECT_THAT(Fault("[store]\ndram = \"1GiB\"\ndram = \"2GiB\"\n"), HasSubstr("kvistd.toml:3"));
  EXPECT_THAT(Fault("[store\n"), HasSubstr("kvistd.toml:1"));
  EXPECT_THAT(Fault("[daemon]\nthreads = 0\n"), HasSubstr("from 1 to 64"));
  EXPECT_THAT(Fault("[daemon]\nlog_level = \"loud\"\n"), HasSubstr("not a level"));
  EXPECT_THAT(Fault("[daemon]\nsocket = \"${NOPE}/s\"\n"), HasSubstr("unknown variable"));
  EXPECT_THAT(Fault("[store]\nsegment = \"1TiB\"\n"), HasSubstr("larger than store.nvme"));
  EXPECT_THAT(Fault("[store]\nttl = \"0s\"\n"), HasSubstr("more than nothing"));
}

TEST(Config, NamesTheOverrideOfAFault) {
  EXPECT_THAT(Fault("", {"store.dram"}), HasSubstr("--set store.dram"));
  EXPECT_THAT(Fault("", {"store.nope=1"}), HasSubstr("unknown key"));
  EXPECT_THAT(Fault("", {"store.dram=1"}), HasSubstr("no unit"));
  EXPECT_TRUE(absl::IsNotFound(LoadConfig("/nonexistent/kvistd.toml", {}).status()));
}

}  // namespace
}  // namespace kvist::daemon

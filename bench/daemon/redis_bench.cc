#include "bench/daemon/redis_bench.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "bench/daemon/prompt.h"
#include "fmt/format.h"

namespace kvist::bench {
namespace {

constexpr int kRounds = 9;
constexpr double kGoal = 1;  // ahead

class Redis {
 public:
  explicit Redis(const std::string& directory) : socket_(directory + "/redis.sock"), context_(nullptr, &redisFree) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes with us, however that is
      ::execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_.c_str(), "--save", "",
               "--appendonly", "no", "--dir", directory.c_str(), "--logfile", "/dev/null", nullptr);
      ::_exit(127);
    }
    for (int attempt = 0; attempt < 200 && (context_ == nullptr || context_->err != 0); ++attempt) {
      absl::SleepFor(absl::Milliseconds(50));
      context_.reset(redisConnectUnix(socket_.c_str()));
    }
    if (context_ == nullptr || context_->err != 0) Fail("redis-server does not answer (is it installed?)");
  }
  ~Redis() {
    context_.reset();
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  void Set(int round, std::span<const std::byte> source) {
    const std::size_t bytes = source.size() / kPromptBlocks;
    for (std::size_t i = 0; i < kPromptBlocks; ++i) {
      redisAppendCommand(context_.get(), "SET %s %b", Key(round, i).c_str(), source.data() + i * bytes, bytes);
    }
    for (std::size_t i = 0; i < kPromptBlocks; ++i) Reply([](const redisReply&) {});
  }
  void Get(int round, std::span<std::byte> target) {
    const std::size_t bytes = target.size() / kPromptBlocks;
    for (std::size_t i = 0; i < kPromptBlocks; ++i) redisAppendCommand(context_.get(), "GET %s", Key(round, i).c_str());
    for (std::size_t i = 0; i < kPromptBlocks; ++i) {
      Reply([&](const redisReply& reply) {
        if (reply.type != REDIS_REPLY_STRING || reply.len != bytes) Fail("Redis has lost a block");
        std::memcpy(target.data() + i * bytes, reply.str, bytes);
      });
    }
  }

 private:
  static std::string Key(int round, std::size_t block) { return fmt::format("{}-{}", round, block); }

  template <typename Use>
  void Reply(Use use) {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK)
      Fail(fmt::format("Redis does not reply: {}", context_->errstr));
    const std::unique_ptr<void, decltype(&freeReplyObject)> owned(reply, &freeReplyObject);
    use(*static_cast<redisReply*>(reply));
  }

  const std::string socket_;
  pid_t pid_ = -1;
  std::unique_ptr<redisContext, decltype(&redisFree)> context_;
};

}  // namespace

void RedisFigures(const std::string& directory, RemoteStore* store, const Namespace& ns, Figures& figures) {
  Redis redis(directory);
  const std::size_t bytes = kPromptBlocks * ns.spec.payload_bytes();
  std::vector<std::byte> source(bytes);
  std::vector<std::byte> target(bytes, std::byte{1});
  std::vector<double> put;
  std::vector<double> get;
  std::vector<double> set;
  std::vector<double> redis_get;
  for (int round = 0; round < kRounds; ++round) {
    std::memset(source.data(), round + 1, source.size());
    set.push_back(Seconds([&] { redis.Set(round, source); }));
    put.push_back(Seconds([&] { PutPrompt(store, ns, round, source); }));
    redis_get.push_back(Seconds([&] { redis.Get(round, target); }));
    if (target != source) Fail("Redis' bytes differ");
    std::memset(target.data(), 0, target.size());
    get.push_back(Seconds([&] { GetPrompt(store, ns, round, target); }));
    if (target != source) Fail("the bytes differ");
  }
  const double mib = static_cast<double>(bytes) / (1 << 20);
  std::printf("put of %zu blocks through the daemon: %.0f MiB/s, Redis %.0f MiB/s; get %.0f MiB/s, Redis %.0f MiB/s\n",
              kPromptBlocks, mib / Median(put), mib / Median(set), mib / Median(get), mib / Median(redis_get));
  figures.AtLeast("daemon_put_vs_redis", Median(set) / Median(put), kGoal);
  figures.AtLeast("daemon_get_vs_redis", Median(redis_get) / Median(get), kGoal);
}

}  // namespace kvist::bench

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "bench/store/peer.h"
#include "bench/store/support.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kThreads = 8;  // more gain nothing on one drive

class FilesPeer final : public Peer {
 public:
  explicit FilesPeer(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }

  std::string_view name() const override { return "files"; }

  void PutDurable(int round, std::span<const std::byte> source, std::size_t block_bytes) override {
    Each(source.size() / block_bytes, [&](std::size_t block) {
      const std::string path = Path(round, block);
      const std::string half = path + ".part";
      const int fd = ::open(half.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
      const auto bytes = source.subspan(block * block_bytes, block_bytes);
      if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != std::ssize(bytes) || ::fdatasync(fd) != 0) {
        Fail("a file is not written");
      }
      ::close(fd);
      if (::rename(half.c_str(), path.c_str()) != 0) Fail("a file is not renamed");
    });
    const int fd = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || ::fsync(fd) != 0) Fail("a directory is not synced");
    ::close(fd);
  }

  void Cool(int round, std::size_t blocks) override {
    for (std::size_t block = 0; block < blocks; ++block) {
      const int fd = ::open(Path(round, block).c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) Fail("a file stays in memory");
      ::close(fd);
    }
  }

  void Get(int round, std::span<std::byte> target, std::size_t block_bytes) override {
    Each(target.size() / block_bytes, [&](std::size_t block) {
      const int fd = ::open(Path(round, block).c_str(), O_RDONLY | O_CLOEXEC);
      std::size_t at = 0;
      while (fd >= 0 && at < block_bytes) {
        const ssize_t got = ::read(fd, target.data() + block * block_bytes + at, block_bytes - at);
        if (got <= 0) break;
        at += static_cast<std::size_t>(got);
      }
      if (at != block_bytes) Fail("a file is not read");
      ::close(fd);
    });
  }

 private:
  std::string Path(int round, std::size_t block) const { return fmt::format("{}/{}-{}", directory_, round, block); }

  static void Each(std::size_t blocks, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (std::size_t block = next++; block < blocks; block = next++) work(block);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::string directory_;
};

}  // namespace

std::unique_ptr<Peer> MakeFilesPeer(const std::string& directory) { return std::make_unique<FilesPeer>(directory); }

}  // namespace kvist::bench

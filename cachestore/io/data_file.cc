#include "cachestore/io/data_file.h"

#include <array>
#include <cstddef>

#include "cachestore/io/errno_status.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

constexpr std::string_view kProbeName = "/probe.tmp";

struct alignas(kDirectAlignment) DirectUnit {
  std::array<std::byte, kDirectAlignment> bytes{};
};

}  // namespace

absl::Status DataFiles::Probe(const std::string& directory) {
  const std::string path = directory + std::string(kProbeName);
  absl::Status result;
  absl::StatusOr<std::unique_ptr<File>> file = fs_.Open(path, {.create = true, .direct = true});
  if (!file.ok()) {
    if (!IsRefusedFeature(file.status())) return file.status();
    RefuseDirect(file.status());
    // The refused open may have created it all the same.
    (void)fs_.Remove(path);
    return absl::OkStatus();
  }
  auto unit = std::make_unique<DirectUnit>();
  absl::Status written = WriteFull(**file, 0, unit->bytes);
  if (written.ok()) written = ReadFull(**file, 0, unit->bytes);
  if (IsRefusedFeature(written)) {
    RefuseDirect(written);
  } else {
    result = written;
  }
  absl::Status removed = fs_.Remove(path);
  return result.ok() ? removed : result;
}

absl::StatusOr<std::unique_ptr<File>> DataFiles::Create(const std::string& path, std::uint64_t bytes) {
  absl::StatusOr<std::unique_ptr<File>> file = fs_.Open(path, {.create = true, .direct = direct()});
  if (!file.ok()) return file;
  if (absl::Status status = Reserve(**file, bytes); !status.ok()) {
    file->reset();
    (void)fs_.Remove(path);
    return status;
  }
  return file;
}

absl::StatusOr<std::unique_ptr<File>> DataFiles::Open(const std::string& path) {
  return fs_.Open(path, {.create = false, .direct = direct()});
}

absl::Status DataFiles::Reserve(File& file, std::uint64_t bytes) {
  if (preallocates()) {
    absl::Status status = file.Allocate(bytes);
    if (!IsRefusedFeature(status)) return status;
    spdlog::warn("{}; carrying on without preallocation: a full disk shows at the write",
                 std::string(status.message()));
    absl::MutexLock lock(&mutex_);
    preallocates_ = false;
  }
  return file.Resize(bytes);
}

void DataFiles::RefuseDirect(const absl::Status& reason) {
  spdlog::warn("O_DIRECT is refused ({}); carrying on through the page cache", std::string(reason.message()));
  absl::MutexLock lock(&mutex_);
  direct_ = false;
}

bool DataFiles::direct() const {
  absl::MutexLock lock(&mutex_);
  return direct_;
}

bool DataFiles::preallocates() const {
  absl::MutexLock lock(&mutex_);
  return preallocates_;
}

}  // namespace kvist

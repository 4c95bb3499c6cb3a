#include "src/protocol/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "fmt/format.h"

namespace kvist::protocol {

absl::StatusOr<Mapping> Mapping::Create(int fd, std::uint64_t bytes, Access access) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError("shared memory from the peer is not sealed against shrinking");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "shared memory");
  if (bytes == 0 || static_cast<std::uint64_t>(info.st_size) < bytes) {
    return absl::FailedPreconditionError(
        fmt::format("shared memory from the peer has {} bytes, announced were {}", info.st_size, bytes));
  }
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, fmt::format("mapping {} bytes of shared memory", bytes));
  return Mapping(std::span(static_cast<std::byte*>(address), bytes));
}

Mapping::~Mapping() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

absl::StatusOr<Descriptor> MakeSealedMemory(const std::string& name, std::uint64_t bytes) {
  Descriptor fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "making shared memory");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, fmt::format("sizing shared memory to {} bytes", bytes));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing shared memory");
  }
  return fd;
}

}  // namespace kvist::protocol

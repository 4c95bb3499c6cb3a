// What the store's figures share: a scratch directory on the device, stores to fill, and what went wrong ends the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/figures.h"
#include "cachestore/local_store.h"
#include "fmt/format.h"

namespace kvist::bench {

[[noreturn]] void Fail(const std::string& what);

template <typename T>
T Check(absl::StatusOr<T> result, const char* what) {
  if (!result.ok()) Fail(fmt::format("{}: {}", what, std::string(result.status().message())));
  return *std::move(result);
}
void Check(const absl::Status& status, const char* what);

double Seconds(const std::function<void()>& work);

class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::string& parent);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Page-aligned memory, every page touched.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_;
  std::span<std::byte> bytes_;
};

std::vector<TokenId> Tokens(std::size_t count, std::uint32_t seed);
std::unique_ptr<LocalStore> OpenStore(const std::string& directory, std::uint64_t dram_bytes);
Namespace OpenNs(LocalStore& store, std::uint32_t layers, std::uint64_t layer_bytes);
// Waits out a full DRAM tier: filling is not what is measured.
void CommitChain(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens);

// The figures, by part of the store; each prints what it measured and adds its ratios.
void MatchFigures(const std::string& scratch, Figures& figures);
void DramFigures(const std::string& scratch, Figures& figures);
void DeviceFigures(const std::string& scratch, Figures& figures);
void MixedFigures(const std::string& scratch, Figures& figures);
void IndexFigures(const std::string& scratch, Figures& figures);
void PeerFigures(const std::string& scratch, Figures& figures);

}  // namespace kvist::bench

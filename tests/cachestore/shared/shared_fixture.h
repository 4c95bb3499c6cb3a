// What the tests of the shared tier share: sealed records of known contents, and a folder to put them in.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cachestore/await.h"
#include "cachestore/io/clock.h"
#include "cachestore/shared/object_tier.h"
#include "cachestore/tier/block_record.h"
#include "cachestore/tier/nvme_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/test_chain.h"

namespace kvist {

inline constexpr RecordShape kObjectShape{16, 4, 4096};
inline constexpr NamespaceId kObjectNs{7, 7};

// Block `i` of a namespace.
struct TestObject {
  ObjectName name;
  std::shared_ptr<AlignedBuffer> memory = std::make_shared<AlignedBuffer>(kObjectShape.record_bytes());

  explicit TestObject(std::uint64_t i, const NamespaceId& ns = kObjectNs) : name{ns, {i * 0x9e3779b97f4a7c15, i}} {
    std::vector<TokenId> tokens(kObjectShape.block_tokens, static_cast<TokenId>(i));
    auto payload = memory->bytes().subspan(kObjectShape.header_bytes(), kObjectShape.payload_bytes());
    for (std::size_t at = 0; at < payload.size(); ++at) payload[at] = static_cast<std::byte>((at * 31 + i * 7) >> 2);
    SealRecord(memory->bytes(),
               {.ns = ns, .parent = ns, .key = name.key, .shape = kObjectShape, .extent = {}, .expires_unix_s = 0},
               tokens);
  }

  ObjectRecord record() const {
    const auto header = memory->bytes().first(kObjectShape.header_bytes());
    return {.header = {header.begin(), header.end()},
            .payload = {memory->bytes().subspan(kObjectShape.header_bytes()), memory}};
  }
  bool Equals(std::span<const std::byte> bytes) const { return std::ranges::equal(memory->bytes(), bytes); }
};

// Regular files below a directory.
inline std::vector<std::string> FilesBelow(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace kvist

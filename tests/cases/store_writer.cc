// store_writer DIRECTORY SEED PREFIXES BLOCKS: opens the store there and commits chains TestChain(SEED + i, BLOCKS),
// block after block, durably. Prints "ns HEX", then "acked PREFIX BLOCK KEY" after each acknowledgement.
// A process of its own, for tests that compare processes or kill one.
#include <cstdio>
#include <cstdlib>

#include "tests/cases/small_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "store_writer: %s\n", status.ToString().c_str());
  return 1;
}

int Main(const char* directory, std::uint32_t seed, std::uint32_t prefixes, std::size_t blocks) {
  auto store = OpenSmallStore(directory);
  if (!store.ok()) return Fail(store.status());
  const auto ns = (*store)->OpenNamespace(TestSpec(), {});
  if (!ns.ok()) return Fail(ns.status());
  std::printf("ns %s\n", ns->id.ToHex().c_str());
  for (std::uint32_t prefix = 0; prefix < prefixes; ++prefix) {
    const auto tokens = TestChain(seed + prefix, blocks);
    BlockKey parent = ns->id;
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto key = CommitBlock(**store, *ns, parent, tokens, i, Durability::kDurable);
      if (!key.ok()) return Fail(key.status());
      parent = *key;
      std::printf("acked %u %zu %s\n", prefix, i, key->ToHex().c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvist

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return kvist::Main(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])),
                     static_cast<std::uint32_t>(std::atoi(argv[3])), static_cast<std::size_t>(std::atoi(argv[4])));
}

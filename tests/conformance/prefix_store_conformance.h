// What every PrefixStore must do. An implementation's test instantiates the suite with a factory:
//   INSTANTIATE_TEST_SUITE_P(Local, PrefixStoreConformance, testing::Values(&MakeLocalStoreFactory));
// with $<TARGET_OBJECTS:kvist_store_conformance> among its sources and kvist_test_chain among its libraries.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/prefix_store.h"
#include "gtest/gtest.h"
#include "tests/conformance/test_chain.h"

namespace kvist {

struct StoreSetup {
  std::uint64_t dram_bytes = 8 << 20;
  std::uint64_t nvme_bytes = 64 << 20;
  std::uint64_t segment_bytes = 4 << 20;
  absl::Duration ttl = absl::Hours(72);
};

// Makes stores over one directory of its own, gone with the factory.
class StoreFactory {
 public:
  virtual ~StoreFactory() = default;
  // One store at a time: opening again, after the former is destroyed, is a restart.
  virtual absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreSetup& setup) = 0;
  // The clock the stores run by.
  virtual FakeClock& clock() = 0;
};

using MakeStoreFactory = std::unique_ptr<StoreFactory> (*)();

class PrefixStoreConformance : public testing::TestWithParam<MakeStoreFactory> {
 protected:
  PrefixStoreConformance() : factory_(GetParam()()) {}

  void Open(const StoreSetup& setup = {}) {
    store_.reset();
    auto store = factory_->Open(setup);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  Namespace OpenNs(const NamespaceSpec& spec = TestSpec(), const NamespaceOptions& options = {}) {
    auto ns = store_->OpenNamespace(spec, options);
    EXPECT_TRUE(ns.ok()) << ns.status();
    return ns.ok() ? *ns : Namespace{};
  }
  FakeClock& clock() { return factory_->clock(); }

  std::unique_ptr<StoreFactory> factory_;
  std::unique_ptr<PrefixStore> store_;
};

}  // namespace kvist

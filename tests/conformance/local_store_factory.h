// LocalStores over a directory of the factory's own.
#pragma once

#include <memory>

#include "cachestore/local_store.h"
#include "tests/conformance/prefix_store_conformance.h"

namespace kvist {

class LocalStoreFactory : public StoreFactory {
 public:
  absl::StatusOr<std::unique_ptr<LocalStore>> OpenLocal(const StoreSetup& setup) {
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/store";
    options.nvme.capacity_bytes = setup.nvme_bytes;
    options.nvme.segment_bytes = setup.segment_bytes;
    options.dram_bytes = setup.dram_bytes;
    options.ttl = setup.ttl;
    options.clock = &clock_;
    Adjust(options);
    return LocalStore::Open(options);
  }
  absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreSetup& setup) override { return OpenLocal(setup); }
  FakeClock& clock() override { return clock_; }
  std::string store_directory() const { return directory_.path() + "/store"; }

 protected:
  virtual void Adjust(LocalStoreOptions&) {}

 private:
  TestDirectory directory_;
  FakeClock clock_;
};

}  // namespace kvist

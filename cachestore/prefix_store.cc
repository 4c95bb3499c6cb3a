#include "cachestore/prefix_store.h"

namespace kvist {

std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kDram:
      return "dram";
    case Tier::kNvme:
      return "nvme";
    case Tier::kShared:
      return "shared";
  }
  return "unknown";
}

}  // namespace kvist

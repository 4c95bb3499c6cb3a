// The page table of one sequence: page i holds tokens [i*page_tokens, (i+1)*page_tokens), all layers, layer-major,
// in the layout Model::kv_layout() describes. A page is one store block's payload.
#pragma once

#include <cstddef>
#include <vector>

#include "cachestore/tier/device_tier.h"

namespace kvist::engine {

struct KvPages {
  std::size_t page_tokens = 0;
  std::vector<DevicePage> pages;  // `writable` is null for pages leased from the store

  std::size_t capacity_tokens() const { return pages.size() * page_tokens; }
};

}  // namespace kvist::engine

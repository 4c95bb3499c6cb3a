// Delta debugging: the shortest part of a failing list that still fails, as far as leaving out pieces finds it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace kvist {

template <typename T>
std::vector<T> Shrink(std::vector<T> list, const std::function<bool(const std::vector<T>&)>& fails, int attempts_max) {
  for (std::size_t piece = (list.size() + 1) / 2; piece > 0;) {
    bool shorter = false;
    for (std::size_t at = 0; at < list.size() && attempts_max > 0;) {
      std::vector<T> less(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(at));
      const std::size_t end = std::min(at + piece, list.size());
      less.insert(less.end(), list.begin() + static_cast<std::ptrdiff_t>(end), list.end());
      --attempts_max;
      if (fails(less)) {
        list = std::move(less);
        shorter = true;
      } else {
        at = end;
      }
    }
    if (attempts_max <= 0) return list;
    if (!shorter || piece > list.size()) piece /= 2;
  }
  return list;
}

}  // namespace kvist

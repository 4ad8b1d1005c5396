// Changes a list's length without giving up what its elements own: vectors inside them are written
// into again.
//
// Whoever owns the two lists calls it; nothing is allocated once `spare` holds enough.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace quire {

// Elements that leave the list go to `spare` (above `most` of them they are destroyed), those that
// come are taken from there. What they hold is that of their last use.
template <class T>
void ResizeRecycling(std::vector<T>& list, size_t count, std::vector<T>& spare, size_t most) {
  while (list.size() > count) {
    if (spare.size() < most) spare.push_back(std::move(list.back()));
    list.pop_back();
  }
  while (list.size() < count) {
    if (spare.empty()) {
      list.emplace_back();
    } else {
      list.push_back(std::move(spare.back()));
      spare.pop_back();
    }
  }
}

}  // namespace quire

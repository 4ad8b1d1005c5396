// Changes a list's length and keeps what its elements own: vectors inside them are reused.
//
// The owner of the two lists calls it; nothing is allocated once `spare` holds enough.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace quire {

// Elements that leave the list go to `spare` (above `most` of them they are destroyed), and new
// ones are taken from there. New elements still hold the values of their last use.
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

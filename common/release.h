// Gives memory back.
//
// A string or a vector keeps its memory when it is cleared, and also when `{}` or an empty string
// is assigned to it.
#pragma once

#include <utility>

namespace quire {

// Leaves `value` empty, and without memory of its own.
template <class T>
void Release(T& value) {
  (void)std::exchange(value, T());  // moves the memory out
}

}  // namespace quire

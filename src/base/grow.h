// Room in a vector, taken where an allocation may fail so that what follows cannot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ibid {

// Room for n items in all, at least twice what there was. Where it throws, nothing has changed.
template <typename T>
void grow(std::vector<T>& items, size_t n) {
  if (items.capacity() < n) items.reserve(std::max(n, 2 * items.capacity()));
}

}  // namespace ibid

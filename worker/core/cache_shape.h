// How the one pool of pages is divided between cache groups, as the host sees it: counts, never
// bytes.
//
// Groups are numbered kind by kind: those of kind 0 first.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

struct CacheKindShape {
  int32_t window = 0;  // tokens that a query sees, itself included; 0 is full attention
  int32_t groups = 1;  // cache groups: a block of this kind is one page in each
  // Of states: a block is the state at its end, and sequences keep one for every so many blocks at
  // least. 0: keys and values.
  int32_t state_interval = 0;

  bool HoldsStates() const { return state_interval > 0; }
};

struct CacheShape {
  int32_t block_size = 16;  // tokens per page
  int64_t page_count = 0;   // page ids are 0 … page_count − 1
  std::vector<CacheKindShape> kinds;

  int32_t GroupCount() const {
    int32_t count = 0;
    for (const CacheKindShape& kind : kinds) count += kind.groups;
    return count;
  }
};

}  // namespace quire

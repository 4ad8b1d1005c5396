// Where the states of recurrent layers are: in pages of the pool, by block of a cache kind of their
// own.
//
// A state is what a layer keeps of all tokens before the next one: the last inputs of its
// convolution, and a matrix for each of its heads, in float32. It is cut into units that no border
// of pages divides. The units of all layers fill one page after the other, one page in each group
// of the kind.
//
// Invariants:
// 1. The pages of block b hold the state behind the last token of b that has been computed; once a
//    token of a later block has been, that is the state at the end of b, and it stays.
// 2. A step reads the state before its first token from the block of the token before it, and
//    writes the block of each token that it computes. Neighbouring blocks may have the same pages:
//    then only the state at the end of the last of them is kept.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::kernels {

// Of one recurrent layer, of this rank's channels and heads.
struct StateShape {
  int channels = 0;  // of the causal convolution
  int taps = 0;      // inputs that an output sees, its own included: the others are kept
  int heads = 0;     // matrices [key_dim, value_dim]; 0: none
  int key_dim = 0;
  int value_dim = 0;
};

inline constexpr int kMostTaps = 8;
inline constexpr int kStateChannels = 64;  // of the convolution, in one unit: [taps − 1][channels]

// The units of one layer and one use.
struct StatePart {
  int group = 0;           // of the first unit, counted from the kind's first group
  int64_t offset = 0;      // of the first unit in its page
  int64_t unit_bytes = 0;  // a multiple of 64
  int first_count = 0;     // units in the first page
  int page_count = 0;      // units in each further page

  // The place of a unit.
  struct Place {
    int group;
    int64_t offset;
  };
  [[gnu::always_inline]] Place PlaceOf(int unit) const {
    if (unit < first_count) return {group, offset + unit * unit_bytes};
    const int further = unit - first_count;
    return {group + 1 + further / page_count, further % page_count * unit_bytes};
  }
};

struct StateLayout {
  struct Layer {
    StatePart inputs;
    StatePart matrices;
  };
  int kind = -1;        // index into KvLayout::kinds; −1: no layer has a state
  int first_group = 0;  // of the kind
  int groups = 0;
  int64_t bytes = 0;  // of the states of all layers, without what is left over in pages
  std::vector<Layer> layers;
};

// The bytes of the largest unit: a page has at least as many. 0: no layer has a state.
int64_t LargestStateUnit(const std::vector<StateShape>& states);

// Places the states of all layers in pages of that size, from group 0 on.
StateLayout PlaceStates(const std::vector<StateShape>& states, int64_t page_bytes);

}  // namespace quire::kernels

#include "kernels/state_layout.h"

#include <algorithm>

namespace quire::kernels {
namespace {

// A matrix is kept in strips of sixteen values: [value_dim / 16][key_dim][16].
int64_t MatrixBytes(const StateShape& state) {
  return int64_t{state.key_dim} * ((state.value_dim + 15) / 16 * 16) * 4;
}

int64_t InputBytes(const StateShape& state) { return int64_t{state.taps - 1} * kStateChannels * 4; }

int InputUnits(const StateShape& state) {
  return (state.channels + kStateChannels - 1) / kStateChannels;
}

// Fills pages from the first on.
class Filler {
 public:
  explicit Filler(int64_t page_bytes) : page_bytes_(page_bytes) {}

  StatePart Take(int units, int64_t unit_bytes) {
    if (units == 0 || unit_bytes == 0) return {};
    if (used_ + unit_bytes > page_bytes_) NextPage();
    StatePart part;
    part.group = group_;
    part.offset = used_;
    part.unit_bytes = unit_bytes;
    part.first_count = static_cast<int>((page_bytes_ - used_) / unit_bytes);
    part.page_count = static_cast<int>(page_bytes_ / unit_bytes);
    const StatePart::Place last = part.PlaceOf(units - 1);
    group_ = last.group;
    used_ = last.offset + unit_bytes;
    return part;
  }
  int groups() const { return used_ > 0 ? group_ + 1 : group_; }

 private:
  void NextPage() {
    ++group_;
    used_ = 0;
  }

  int64_t page_bytes_;
  int group_ = 0;
  int64_t used_ = 0;
};

}  // namespace

int64_t LargestStateUnit(const std::vector<StateShape>& states) {
  int64_t largest = 0;
  for (const StateShape& state : states) {
    if (state.channels > 0) largest = std::max(largest, InputBytes(state));
    if (state.heads > 0) largest = std::max(largest, MatrixBytes(state));
  }
  return largest;
}

StateLayout PlaceStates(const std::vector<StateShape>& states, int64_t page_bytes) {
  StateLayout layout;
  Filler filler(page_bytes);
  for (const StateShape& state : states) {
    StateLayout::Layer layer;
    layer.inputs = filler.Take(InputUnits(state), InputBytes(state));
    layer.matrices = filler.Take(state.heads, MatrixBytes(state));
    layout.layers.push_back(layer);
    layout.bytes += InputUnits(state) * InputBytes(state) + state.heads * MatrixBytes(state);
  }
  layout.groups = filler.groups();
  return layout;
}

}  // namespace quire::kernels

// What a sequence's last query sees of the tag model's keys, made from its tokens alone.
//
// Owned by whoever works out a reference answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "tests/support/tag_runner.h"
#include "worker/core/cache_shape.h"

namespace quire::test {

// The keys of all groups, position by position.
class TagKeys {
 public:
  TagKeys(const CacheShape& shape, uint64_t salt) : root_(TagRoot(salt)) {
    for (const CacheKindShape& kind : shape.kinds) {
      // Of states a query sees the last one alone.
      windows_.insert(windows_.end(), static_cast<size_t>(kind.groups),
                      kind.HoldsStates() ? 1 : kind.window);
    }
    tags_.resize(windows_.size());
  }

  void Append(TokenId token) {
    for (size_t group = 0; group < tags_.size(); ++group) {
      std::vector<uint64_t>& tags = tags_[group];
      const uint64_t previous = tags.empty() ? root_ : tags.back();
      tags.push_back(
          TagOf(previous, token, static_cast<int64_t>(tags.size()), static_cast<int32_t>(group)));
    }
  }

  // What the query at the last position sees.
  uint64_t Seen() const {
    uint64_t seen = 1;
    for (size_t group = 0; group < tags_.size(); ++group) {
      const size_t length = tags_[group].size();
      const size_t window = windows_[group] == 0 ? length : static_cast<size_t>(windows_[group]);
      for (size_t key = length - std::min(window, length); key < length; ++key) {
        seen = TagSeen(seen, tags_[group][key]);
      }
    }
    return seen;
  }

 private:
  uint64_t root_;
  std::vector<int32_t> windows_;             // by group
  std::vector<std::vector<uint64_t>> tags_;  // by group
};

inline void TagLogits(uint64_t seen, std::span<float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = TagLogit(seen, static_cast<int32_t>(id));
  }
}

}  // namespace quire::test

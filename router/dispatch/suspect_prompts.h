// Prompts that are refused for a while because workers kept dying under them.
//
// Owner: the dispatcher. Pure: time comes in as an argument.
//  1. At most `capacity` prompts are kept; the oldest gives way.
//  2. A prompt is known by its hash together with model, adapter and salt, so that one tenant's
//     prompt says nothing about another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "common/runtime/runtime.h"
#include "common/wire.h"

namespace quire {

class SuspectPrompts {
 public:
  SuspectPrompts(size_t capacity, Micros refused_for)
      : capacity_(capacity), refused_for_(refused_for) {}

  void Add(const Submit& submit, Micros now);
  // Time until the prompt may come again; 0: it is not suspect.
  Micros RefusedFor(const Submit& submit, Micros now);
  size_t size() const { return entries_.size(); }

 private:
  using Key = std::pair<uint64_t, uint64_t>;
  static Key KeyOf(const Submit& submit);
  void Expire(Micros now);

  struct Entry {
    Key key;
    Micros until = 0;
  };
  size_t capacity_;
  Micros refused_for_;
  std::deque<Entry> entries_;  // the oldest first; each key once
  std::set<Key> keys_;
};

}  // namespace quire

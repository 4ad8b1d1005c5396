// Whether a pool can take a new request now: credit at a worker, blocks for it, and not too much
// waiting there already.
//
// Pure functions; any thread. What finds no room waits in admission's queue, where order is fair,
// and not at a worker, where it would be stuck behind others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/fleet/fleet.h"

namespace quire {

struct RoomNeed {
  std::vector<std::string> required_features;
  uint64_t prefill_tokens = 0;  // prompt, and outputs that it comes with
  uint64_t output_tokens = 0;   // that it is expected to write, over all choices
};

enum class Room : uint8_t {
  kSome,
  kFull,       // workers could serve it, and none has room
  kAhead,      // the same, and `max_prefill_ahead` alone stands between it and some of them
  kUnfit,      // there are ready workers, and none offers what it needs
  kEmptyPool,  // no worker of the model is ready
};

// The worker has credit for one more submit, and
//   nothing waits there, or
//   less than a batch (max_num_seqs) waits, prefill work ahead stays within `max_prefill_ahead`
//   tokens, and blocks that are neither held nor spoken for suffice.
// Numbers that a worker does not tell bound nothing.
bool HasRoom(const WorkerView& worker, const RoomNeed& need, uint64_t max_prefill_ahead);

// The room of a pool, worker by worker: most often the first one that is looked at has some.
class RoomSearch {
 public:
  // `need` outlives the search.
  RoomSearch(const RoomNeed& need, uint64_t max_prefill_ahead)
      : need_(need), max_prefill_ahead_(max_prefill_ahead) {}
  // True: there is room, and no need to look further.
  bool See(const WorkerView& worker);
  Room found() const { return found_; }

 private:
  const RoomNeed& need_;
  const uint64_t max_prefill_ahead_;
  Room found_ = Room::kEmptyPool;
};

}  // namespace quire

// Whether a pool can take a new request now: credit at a worker, blocks for the request, and little
// enough work waiting there.
//
// Pure functions; any thread. A request that finds no room waits in admission's queue, where order
// is fair, and not at a worker, where it would be stuck behind others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/fleet/fleet.h"

namespace quire {

struct RoomNeed {
  std::vector<std::string> required_features;
  uint64_t prefill_tokens = 0;  // prompt, and outputs that it brings along
  uint64_t output_tokens = 0;   // that it is expected to write, over all choices
  std::string adapter = {};     // digest of what a worker must hold; empty: none
};

enum class Room : uint8_t {
  kSome,
  kFull,       // some workers could serve it, and none has room
  kAhead,      // the same, and for some of them only `max_prefill_ahead` prevents it
  kUnfit,      // there are ready workers, and none offers what it needs
  kEmptyPool,  // no worker of the model is ready
};

// The worker has credit for one more submit, and
//   nothing waits there, or less than a batch (max_num_seqs) waits, prefill work ahead stays within
//   `max_prefill_ahead` tokens, and the blocks that are neither held nor reserved suffice.
// Numbers that a worker does not report limit nothing.
bool HasRoom(const WorkerView& worker, const RoomNeed& need, uint64_t max_prefill_ahead);

// Whether a pool has room, worker by worker: usually the first one checked has some.
class RoomSearch {
 public:
  // `need` outlives the search.
  RoomSearch(const RoomNeed& need, uint64_t max_prefill_ahead)
      : need_(need), max_prefill_ahead_(max_prefill_ahead) {}
  // True: there is room, and the search may end.
  bool See(const WorkerView& worker);
  Room found() const { return found_; }

 private:
  const RoomNeed& need_;
  const uint64_t max_prefill_ahead_;
  Room found_ = Room::kEmptyPool;
};

}  // namespace quire

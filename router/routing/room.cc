#include "router/routing/room.h"

#include <algorithm>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

uint64_t BlocksFor(uint64_t tokens, uint32_t block_size) {
  QUIRE_CHECK(block_size > 0);
  return (tokens + block_size - 1) / block_size;
}

// kSome, kFull or kAhead.
Room RoomAt(const WorkerView& worker, const RoomNeed& need, uint64_t max_prefill_ahead) {
  if (worker.unadmitted_submits >= SubmitCredit(worker)) return Room::kFull;
  const uint64_t waiting = uint64_t{worker.load.waiting_requests} + worker.unseen_submits;
  if (waiting == 0) return Room::kSome;
  if (worker.max_num_seqs > 0 && waiting >= worker.max_num_seqs) return Room::kFull;
  const bool ahead = WorkAhead(worker) + need.prefill_tokens > max_prefill_ahead;
  const Room with_blocks = ahead ? Room::kAhead : Room::kSome;
  if (worker.capacity_blocks == 0 || worker.block_size == 0) return with_blocks;
  const uint64_t free = worker.load.free_blocks + worker.load.evictable_blocks;
  const uint64_t spoken_for =
      BlocksFor(worker.load.waiting_prefill_tokens + worker.unseen_tokens, worker.block_size);
  const uint64_t needed = BlocksFor(need.prefill_tokens + need.output_tokens, worker.block_size);
  return spoken_for + needed <= free ? with_blocks : Room::kFull;
}

}  // namespace

bool HasRoom(const WorkerView& worker, const RoomNeed& need, uint64_t max_prefill_ahead) {
  return RoomAt(worker, need, max_prefill_ahead) == Room::kSome;
}

bool RoomSearch::See(const WorkerView& worker) {
  if (found_ == Room::kEmptyPool) found_ = Room::kUnfit;
  if (!Offers(worker, need_.required_features) || !Holds(worker.adapters, need_.adapter)) {
    return false;
  }
  const Room here = RoomAt(worker, need_, max_prefill_ahead_);
  if (here == Room::kSome || found_ != Room::kAhead) found_ = here;
  return here == Room::kSome;
}

}  // namespace quire

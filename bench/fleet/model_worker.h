// A worker of the fleet model: a queue, rows, a cache of blocks, and what it reports of them.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/fleet/fleet_model.h"
#include "common/wire/values.h"

namespace quire::bench {

// Blocks by hash, the least recently used one dropped first; the end of a chain is dropped before
// its beginning.
class BlockCache {
 public:
  explicit BlockCache(int64_t capacity) : capacity_(capacity) {}
  // How many blocks of the chain's beginning it has, at most `limit`.
  int64_t Held(const std::vector<uint64_t>& chain, int64_t limit) const;
  // Has the blocks [0, end) from now on, newly used; appends what came and what went.
  void Use(const std::vector<uint64_t>& chain, int64_t end, std::vector<uint64_t>& stored,
           std::vector<uint64_t>& removed);

 private:
  const int64_t capacity_;
  std::list<uint64_t> order_;  // the most recent first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> blocks_;
};

struct ModelRequest {
  int32_t number = 0;
  int32_t router = 0;
  uint64_t submit_number = 0;
  std::vector<uint64_t> chain;  // hashes of its prompt's blocks
  int64_t prompt = 0;
  Micros arrived = 0;
  Micros first_token = 0;
  int64_t cached = 0;
  int64_t computed = 0;  // of the prompt, cached ones included
  int64_t written = 0;
};

class ModelWorker {
 public:
  ModelWorker(const FleetModelOptions& options, int32_t block_size);

  void Submit(ModelRequest* request);
  bool idle() const { return waiting_.empty() && rows_.empty(); }
  // Begins a step: admits, looks up, and returns how long it takes.
  Micros Begin();
  // The step is over: tokens, ends, blocks to report. `frame` is sent to every router; `admitted`
  // holds what each router also gets about its own requests.
  void End(Micros now, StepFrame& frame, std::vector<std::pair<int32_t, Admitted>>& admitted);
  // The last submit of this router that its load includes.
  uint64_t last_submit(int32_t router) const { return last_submits_[static_cast<size_t>(router)]; }
  // Time spent on rows and prefill, without what each step costs for itself.
  double work_us() const { return work_us_; }

 private:
  const FleetModelOptions& options_;
  const int64_t block_size_;
  BlockCache cache_;
  std::deque<ModelRequest*> waiting_;
  std::vector<ModelRequest*> rows_;
  std::vector<std::pair<ModelRequest*, int64_t>> prefill_;  // of the step: tokens
  std::vector<std::pair<int32_t, Admitted>> admitted_;      // by router, not reported yet
  std::vector<uint64_t> last_submits_;                      // by router
  uint64_t frame_seq_ = 0;
  uint64_t event_seq_ = 0;
  double work_us_ = 0;
};

}  // namespace quire::bench

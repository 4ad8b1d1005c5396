// Workers as routing sees them: the view of one worker, and the view of one model's workers.
//
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/wire/values.h"

namespace quire {

// One worker as a routing policy sees it.
struct WorkerView {
  WorkerIndex worker;
  // These three live as long as the fleet is not changed.
  std::string_view worker_id;
  std::span<const std::string> features;
  std::span<const ServedAdapter> adapters = {};
  Load load;
  uint32_t live_attempts = 0;
  uint32_t unadmitted_submits = 0;
  uint32_t max_waiting_requests = 0;
  uint32_t routers_attached = 1;
  uint32_t cached_tokens = 0;   // of the current prompt; 0 unless the worker's index is exact
  uint64_t unseen_submits = 0;  // sent by this router; `load` does not include them yet
  uint64_t unseen_tokens = 0;   // prefill work in these
  uint32_t max_num_seqs = 0;    // these three: 0 where the worker does not report them
  uint32_t block_size = 0;
  uint64_t capacity_blocks = 0;
  std::string_view numerics_id = {};
  std::optional<uint32_t> slow_start_cap =
      {};  // the current limit of attempts at once, after a return
};
// Whether an adapter of this digest is among them, which are sorted by their digests; none is
// needed for the model alone.
inline bool Holds(std::span<const ServedAdapter> adapters, std::string_view digest) {
  return digest.empty() || std::ranges::binary_search(adapters, digest, {}, [](const auto& each) {
           return std::string_view(each.digest);
         });
}

// Whether one of them gives this digest a name; a worker holds some for those who were given them.
inline bool Names(std::span<const ServedAdapter> adapters, std::string_view digest) {
  return std::ranges::any_of(adapters, [digest](const ServedAdapter& each) {
    return each.digest == digest && !each.name.empty();
  });
}

struct FleetView {
  std::vector<WorkerView> workers;  // ready and trusted ones of one model, in index order
};

// The workers of one model, valid until one of them changes in more than its load.
struct ModelWorkers {
  std::vector<WorkerIndex> ready;  // in index order
  uint64_t ready_rows = 0;
  bool attached = false;              // there is a worker that is not refused
  std::optional<WorkerIndex> first;   // a ready one if there is one
  std::vector<std::string> features;  // what every ready worker offers
  bool operator==(const ModelWorkers&) const = default;
};

}  // namespace quire

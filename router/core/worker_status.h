// One worker as an operator sees it.
//
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct WorkerStatus {
  std::string target;     // the address that is dialled
  std::string worker_id;  // these four come from its last Hello; may be empty
  std::string epoch;      // hexadecimal
  std::string model_id;
  std::vector<std::string> served_names;
  std::vector<std::string> adapters;  // their names
  std::string phase;                  // state of the router's link to it
  std::string index_state;            // state of the router's index of its cache
  uint64_t cached_blocks = 0;         // blocks that it is known to hold, of all kinds
  uint64_t index_event_seq = 0;       // as far as its events are followed
  std::string problem;                // why it is refused, or why its last Attach ended
  bool stuck = false;
  uint32_t live_attempts = 0;  // attempts of this router
  uint32_t unadmitted_submits = 0;
  uint32_t routers_attached = 0;
  uint32_t running = 0;  // attempts of all routers, as the worker reports
  uint32_t waiting = 0;
  uint64_t free_blocks = 0;
  uint64_t total_blocks = 0;
};

}  // namespace quire

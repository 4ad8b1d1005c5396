// Creates the sources that the flags name.
//
// Owner: the router's process; everything happens on its executor. All its arguments outlive it.
#pragma once

#include <memory>

#include "common/runtime/asio_executor.h"
#include "router/config.h"
#include "router/discovery/source.h"

namespace quire {

class WorkerDiscovery {
 public:
  // `found` gets every list. INVALID_ARGUMENT or the error of a file names the flag.
  static absl::StatusOr<std::unique_ptr<WorkerDiscovery>> Make(const RouterConfig& config,
                                                               AsioExecutor& executor,
                                                               const DiscoveryRuntime& runtime,
                                                               Metrics& metrics);
  ~WorkerDiscovery();
  void Start();

 private:
  struct State;
  explicit WorkerDiscovery(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire

// Files and batches of a router: the store, what runs batches, and the threads for the disk.
//
// Owner: main; event loop only.
#pragma once

#include <memory>

#include "common/runtime/asio_executor.h"
#include "router/batches/service.h"
#include "router/config.h"
#include "router/http/batch_sender.h"

namespace quire {

class BatchService {
 public:
  // Reads and writes --batches-dir, and lets `services` serve it; a folder that cannot be used is
  // an error that names it. nullptr without the flag.
  static absl::StatusOr<std::unique_ptr<BatchService>> Make(const RouterConfig& config,
                                                            HttpServices& services, KeyRing& keys,
                                                            batches::BatchMetrics& metrics);

  // Carries on with what has not ended.
  void Start() { runner_->Wake(); }
  // Lets go of all batches, which another router may carry on; files are served further.
  void Leave() { runner_->Stop(); }
  // Waits for the disk's threads; nothing is served any more.
  void Stop();

 private:
  BatchService(const RouterConfig& config, HttpServices& services, KeyRing& keys);

  BatchSender sender_;
  std::unique_ptr<batches::Store> store_;
  ThreadBackground disk_;      // of clients
  ThreadBackground run_disk_;  // of running batches
  std::unique_ptr<batches::Runner> runner_;
  std::unique_ptr<batches::Service> routes_;
};

}  // namespace quire

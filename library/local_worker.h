// A loaded worker in the process of its router: engine, sessions and constraints of quire-worker,
// behind streams in memory.
//
// Owner: the engine of the library. Start before the loop runs, Stop after it has ended; everything
// else happens on the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/asio_executor.h"
#include "worker/config.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/engine/engine_thread.h"
#include "worker/loaded_worker.h"
#include "worker/rpc/attach_hub.h"
#include "worker/rpc/rpc_metrics.h"

namespace quire {

class LocalWorker final : public Dialer {
 public:
  // Where the router dials it.
  static constexpr char kTarget[] = "in-process:1";

  // All of them outlive it.
  LocalWorker(const WorkerConfig& config, LoadedWorker& worker, AsioExecutor& executor,
              Metrics& metrics, Logger& log);
  ~LocalWorker() override { Stop(); }

  void Start();
  // Ends the engine's thread, after the step that runs.
  void Stop();

  std::unique_ptr<FrameStream> Dial(const std::string& target) override;
  void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                       std::function<void(absl::StatusOr<std::string>)> done) override;

 private:
  LoadedWorker& worker_;
  AsioExecutor& executor_;
  RpcMetrics rpc_metrics_;
  ThreadBackground compiling_;                    // constraints
  std::unique_ptr<ConstraintCompiler> compiler_;  // null: none are served
  EngineThread engine_;
  AttachHub hub_;
};

}  // namespace quire

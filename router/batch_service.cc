#include "router/batch_service.h"

#include <chrono>
#include <utility>

namespace quire {
namespace {

constexpr int kDiskThreads = 2;
constexpr WorkLimits kDiskWork = {.max_queued = 512, .max_of_owner = 256};

// Room for a piece of work of each line that may be under way, and a few of each batch.
size_t QueueOfRuns(const batches::Limits& limits) {
  return 64 + 2 * limits.max_running * (limits.max_in_flight + 8);
}

int64_t UnixMicros() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

}  // namespace

BatchService::BatchService(const RouterConfig& config, HttpServices& services, KeyRing& keys)
    : sender_(services, keys),
      disk_(services.executor, kDiskThreads, kDiskWork),
      run_disk_(services.executor, 1, QueueOfRuns(config.batches)) {}

absl::StatusOr<std::unique_ptr<BatchService>> BatchService::Make(const RouterConfig& config,
                                                                 HttpServices& services,
                                                                 KeyRing& keys,
                                                                 batches::BatchMetrics& metrics) {
  if (config.batches_dir.empty()) return nullptr;
  std::unique_ptr<BatchService> made(new BatchService(config, services, keys));
  QUIRE_ASSIGN_OR_RETURN(
      made->store_, batches::Store::Open(config.batches_dir, config.batches, metrics, UnixMicros));
  batch::BatchLimits lines;
  lines.max_line_bytes = config.http.max_body_bytes;
  lines.json.max_bytes = config.http.max_body_bytes;
  lines.json.max_values = static_cast<size_t>(config.requests.max_json_values);
  made->runner_ = std::make_unique<batches::Runner>(
      batches::RunWorld{services.executor, made->run_disk_, *made->store_, made->sender_, metrics,
                        services.rng, services.log, std::move(lines)});
  made->routes_ = std::make_unique<batches::Service>(
      batches::Service{*made->store_, *made->runner_, made->disk_, metrics});
  services.batches = made->routes_.get();
  return made;
}

void BatchService::Stop() {
  runner_->Stop();
  disk_.Stop();
  run_disk_.Stop();
}

}  // namespace quire

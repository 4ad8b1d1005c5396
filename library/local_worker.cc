#include "library/local_worker.h"

#include <utility>

#include "library/memory_stream.h"
#include "worker/constraint_setup.h"

namespace quire {
namespace {

WorkerHello HelloOf(const LoadedWorker& worker) {
  WorkerHello hello = worker.hello;
  RealRng rng;
  hello.epoch = Epoch(rng.Next());
  hello.worker_id = "in-process";
  return hello;
}

}  // namespace

LocalWorker::LocalWorker(const WorkerConfig& config, LoadedWorker& worker, AsioExecutor& executor,
                         Metrics& metrics, Logger& log)
    : worker_(worker),
      executor_(executor),
      rpc_metrics_(metrics),
      compiling_(executor, kCompileThreads, CompileLimits(config)),
      engine_(*worker.engine, worker.progress, executor.clock(),
              executor.MakeBell([this] { hub_.OnEngineOutput(); })),
      hub_(HelloOf(worker), executor, engine_, log, rpc_metrics_) {
  hub_.SetEpochSource([] {
    RealRng random;
    return Epoch(random.Next());
  });
  if (worker.vocabulary == nullptr) return;
  compiler_ = std::make_unique<ConstraintCompiler>(config.constraint, worker.vocabulary, executor,
                                                   compiling_, metrics);
  hub_.SetCompiler(compiler_.get());
}

void LocalWorker::Start() {
  if (worker_.ranks != nullptr) worker_.ranks->SetWaker([this] { engine_.Wake(); });
  engine_.Start();
}

void LocalWorker::Stop() {
  compiling_.Stop();
  engine_.Stop();
  if (worker_.ranks != nullptr) worker_.ranks->Stop();  // they wake the engine's thread
}

std::unique_ptr<FrameStream> LocalWorker::Dial(const std::string& /*target*/) {
  MemoryStreams streams = MakeMemoryStreams(executor_);
  executor_.Post([this, far = std::make_shared<std::unique_ptr<FrameStream>>(
                            std::move(streams.far))] { hub_.Accept(std::move(*far)); });
  return std::move(streams.near);
}

void LocalWorker::FetchTextBundle(const std::string& /*target*/, const std::string& /*model_id*/,
                                  size_t max_bytes,
                                  std::function<void(absl::StatusOr<std::string>)> done) {
  executor_.Post([this, max_bytes, done = std::move(done)] {
    const std::string& bundle = worker_.model->bundle_bytes;
    if (bundle.size() <= max_bytes) return done(bundle);
    done(absl::ResourceExhaustedError("the text bundle is larger than the limit"));
  });
}

}  // namespace quire

// A whole worker on virtual time: the real sessions and engine over the tag model.
//
// One thread, that of the world. Crash and Start may follow each other; every Start is a new epoch.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/block_hash.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/virtual_runtime.h"
#include "router/fleet/text_bundles.h"
#include "tests/router/support/fake_text.h"
#include "tests/support/tag_runner.h"
#include "worker/engine/engine.h"
#include "worker/engine/virtual_engine_driver.h"
#include "worker/rpc/attach_hub.h"
#include "worker/scheduler/scheduler.h"

namespace quire::sim {

inline constexpr char kSimBundle[] = "bundle of the tag model";
inline constexpr char kSimModel[] = "tag";
inline constexpr uint32_t kSimChoices = 4;  // that a request may have at most

class SimWorker {
 public:
  SimWorker(VirtualWorld& world, std::string name, int64_t page_count, int64_t max_waiting = 16)
      : world_(world), name_(std::move(name)), target_(name_ + ":9000") {
    options_.max_model_len = 512;
    options_.max_num_seqs = 8;
    options_.max_num_batched_tokens = 64;
    options_.max_waiting_requests = static_cast<int32_t>(max_waiting);
    options_.max_choices = kSimChoices;
    options_.block_size = 16;
    options_.page_count = page_count;
    options_.cache_kinds = {{0, 1}, {20, 2}};
    options_.model_id = kSimModel;
    options_.numerics_id = "tag";
    options_.eos_token_ids = {kFakeEos};
    options_.vocab_size = static_cast<int32_t>(kFakeVocab);
    Start();
  }
  ~SimWorker() { Crash(); }

  const std::string& target() const { return target_; }
  // Told each attempt's record with the epoch that it is of.
  void SetRecordTaker(std::function<void(Epoch, const AttemptRecord&)> taker) {
    take_record_ = std::move(taker);
    if (up()) parts_->hub.SetRecordTaker(Taker());
  }
  bool up() const { return parts_ != nullptr; }
  const std::string& name() const { return name_; }
  Epoch epoch() const { return Epoch(epoch_); }
  bool draining() const { return draining_; }
  // Stands between the wire and the worker from the next link on.
  using Wrapper = std::function<std::unique_ptr<FrameStream>(std::unique_ptr<FrameStream>)>;
  void SetWrapper(Wrapper wrapper) { wrapper_ = std::move(wrapper); }

  void Start() {
    if (up()) return;
    ++epoch_;
    draining_ = false;
    parts_ = std::make_unique<Parts>(*this);
    parts_->hub.SetRecordTaker(Taker());
    Listen();
    world_.ServeTextBundle(target_, [](const std::string& model_id) {
      if (model_id == kSimModel) return absl::StatusOr<std::string>(kSimBundle);
      return absl::StatusOr<std::string>(absl::FailedPreconditionError("another model"));
    });
    parts_->driver.Start();
  }
  void Listen() {
    if (!up()) return;
    world_.Listen(target_, [this](std::unique_ptr<FrameStream> stream) {
      if (wrapper_) stream = wrapper_(std::move(stream));
      parts_->hub.Accept(std::move(stream));
    });
  }
  // Its address refuses connections, those that there are break; the process lives.
  void Unlisten() {
    world_.StopListening(target_);
    world_.CutLinks(target_);
  }
  // As kill -9: streams break at once, nothing is said.
  void Crash() {
    if (!up()) return;
    world_.StopListening(target_);
    world_.CutLinks(target_);
    parts_.reset();
  }
  void SetFrozen(bool frozen) {
    if (up()) parts_->driver.SetFrozen(frozen);
  }

  // As SIGTERM: no new work; what runs is moved away after `grace`, and ended after twice of it.
  // The process leaves when nothing is left.
  void Drain(Micros grace) {
    if (!up() || draining_) return;
    draining_ = true;
    const Micros now = world_.clock().Now();
    parts_->hub.Drain(now + grace, now + 2 * grace, [](bool) {});
  }

  // Nothing of any request is left: no block is held, no row runs.
  bool AtRest() const {
    const Load& load = parts_->hub.load();
    return load.held_blocks == 0 && load.running_rows == 0 && load.waiting_requests == 0;
  }
  const Load& load() const { return parts_->hub.load(); }

 private:
  struct Parts {
    explicit Parts(SimWorker& w)
        : runner(RunnerOptions(w.options_)),
          engine(WithPoison(w.options_, runner), runner, progress),
          driver(engine, progress, w.world_.executor(),
                 [this, &w] {
                   w.world_.executor().Post([this, alive = std::weak_ptr(alive)] {
                     if (!alive.expired()) hub.OnEngineOutput();
                   });
                 }),
          rpc_metrics(metrics),
          hub(Hello(w), w.world_.executor(), driver, log, rpc_metrics) {}

    StepProgress progress;
    test::TagRunner runner;
    Engine engine;
    VirtualEngineDriver driver;
    NullLogger log;
    Metrics metrics;
    RpcMetrics rpc_metrics;
    AttachHub hub;
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  };

  static test::TagRunnerOptions RunnerOptions(const EngineOptions& engine) {
    test::TagRunnerOptions runner = test::RunnerOptionsFor(engine);
    runner.step_micros = [](int64_t tokens) { return 3000 + 200 * tokens; };
    return runner;
  }
  static EngineOptions WithPoison(EngineOptions options, test::TagRunner& runner) {
    options.on_page_freed = [&runner](int32_t page) { runner.program().PoisonPage(page); };
    return options;
  }
  static WorkerHello Hello(const SimWorker& w) {
    WorkerHello hello;
    hello.worker_id = w.name_;
    hello.epoch = Epoch(w.epoch_);
    hello.features = ServedFeatures(w.options_);
    hello.model_id = w.options_.model_id;
    hello.numerics_id = w.options_.numerics_id;
    hello.block_size = static_cast<uint32_t>(w.options_.block_size);
    hello.limits.max_model_len = static_cast<uint32_t>(w.options_.max_model_len);
    hello.limits.max_num_seqs = static_cast<uint32_t>(w.options_.max_num_seqs);
    hello.limits.max_waiting_requests = static_cast<uint32_t>(w.options_.max_waiting_requests);
    hello.limits.max_choices = static_cast<uint32_t>(w.options_.max_choices);
    hello.text_bundle_sha256 = Sha256(kSimBundle);
    hello.served_names = {"tag"};
    hello.vocab_size = kFakeVocab;
    hello.prefix_caching = w.options_.prefix_caching;
    hello.hash_scheme = std::string(kHashScheme);
    if (w.options_.cache_kinds.empty()) hello.cache_groups.push_back({"full", 1, 0});
    for (const CacheKindShape& kind : w.options_.cache_kinds) {
      hello.cache_groups.push_back({kind.window == 0 ? "full" : "sliding",
                                    static_cast<uint32_t>(kind.groups),
                                    static_cast<uint32_t>(kind.window)});
    }
    return hello;
  }

  AttachHub::RecordTaker Taker() {
    return [this, epoch = Epoch(epoch_)](const AttemptRecord& record) {
      if (take_record_) take_record_(epoch, record);
    };
  }

  VirtualWorld& world_;
  const std::string name_;
  const std::string target_;
  EngineOptions options_;
  uint64_t epoch_ = 0;
  bool draining_ = false;
  Wrapper wrapper_;
  std::function<void(Epoch, const AttemptRecord&)> take_record_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace quire::sim

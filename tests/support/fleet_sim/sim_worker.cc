#include "tests/support/fleet_sim/sim_worker.h"

#include <map>
#include <set>

#include "common/block_hash.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "router/fleet/text_bundles.h"
#include "tests/router/support/fake_text.h"
#include "tests/support/fleet_sim/stoppable_stream.h"
#include "tests/support/tag_adapters.h"
#include "tests/support/tag_runner.h"
#include "worker/engine/virtual_engine_driver.h"
#include "worker/kv/kv_cache.h"
#include "worker/rpc/attach_hub.h"

namespace quire::sim {
namespace {

std::string BundleOf(const std::string& model_id) { return "bundle of the model " + model_id; }

EngineOptions EngineOptionsOf(const SimWorkerOptions& sim) {
  EngineOptions options;
  options.max_model_len = 512;
  options.max_num_seqs = sim.max_rows;
  options.max_num_batched_tokens = 64;
  options.max_waiting_requests = sim.max_waiting;
  options.max_choices = kSimChoices;
  options.block_size = 16;
  options.page_count = sim.page_count;
  options.snapshot_slice = sim.snapshot_slice;
  options.cache_kinds = {{0, 1}, {20, 2}};
  options.model_id = sim.model_id;
  options.numerics_id = "tag";
  options.eos_token_ids = {kFakeEos};
  options.vocab_size = static_cast<int32_t>(kFakeVocab);
  return options;
}

// The models of an update have other answers, with and without adapters.
test::TagRunnerOptions RunnerOptionsOf(const EngineOptions& engine) {
  test::TagRunnerOptions runner = test::RunnerOptionsFor(engine);
  runner.step_micros = [](int64_t tokens) { return 3000 + 200 * tokens; };
  if (engine.model_id != kSimModel) runner.salt_of_seed = [](uint64_t) { return 0x5A17u; };
  runner.salt_of_slot = [adapters = engine.adapters](int32_t slot) {
    return test::TagSlotSalt(*adapters, slot);
  };
  return runner;
}

EngineOptions WithPoison(EngineOptions options, test::TagRunner& runner) {
  options.on_page_freed = [&runner](int32_t page) { runner.program().PoisonPage(page); };
  return options;
}

WorkerHello HelloOf(const SimWorker& worker, const EngineOptions& options) {
  WorkerHello hello;
  hello.worker_id = worker.name();
  hello.epoch = worker.epoch();
  if (!worker.plain()) hello.features = ServedFeatures(options);
  hello.model_id = options.model_id;
  hello.numerics_id = options.numerics_id;
  hello.block_size = static_cast<uint32_t>(options.block_size);
  hello.limits.max_model_len = static_cast<uint32_t>(options.max_model_len);
  hello.limits.max_num_seqs = static_cast<uint32_t>(options.max_num_seqs);
  hello.limits.max_waiting_requests = static_cast<uint32_t>(options.max_waiting_requests);
  hello.limits.max_choices = static_cast<uint32_t>(options.max_choices);
  hello.text_bundle_sha256 = Sha256(BundleOf(options.model_id));
  hello.served_names = {"tag"};
  hello.vocab_size = kFakeVocab;
  hello.prefix_caching = options.prefix_caching;
  hello.hash_scheme = std::string(kHashScheme);
  for (const CacheKindShape& kind : options.cache_kinds) {
    hello.cache_groups.push_back({kind.window == 0 ? "full" : "sliding",
                                  static_cast<uint32_t>(kind.groups),
                                  static_cast<uint32_t>(kind.window)});
  }
  if (worker.plain()) return hello;
  for (const AdapterInfo& adapter : options.adapters->List()) {
    hello.adapters.push_back({adapter.name, adapter.digest, "tag", 8});
  }
  return hello;
}

}  // namespace

struct SimWorker::Parts {
  Parts(const SimWorker& worker, VirtualWorld& world, const EngineOptions& options)
      : executor(world.executor()),
        runner(RunnerOptionsOf(options)),
        engine(WithPoison(options, runner), runner, progress),
        driver(engine, progress, executor,
               [this] {
                 executor.Post([this, alive = std::weak_ptr(alive)] {
                   if (!alive.expired()) hub.OnEngineOutput();
                 });
               }),
        rpc_metrics(metrics),
        hub(HelloOf(worker, options), executor, driver, log, rpc_metrics) {}

  StoppableExecutor executor;
  StepProgress progress;
  test::TagRunner runner;
  Engine engine;
  VirtualEngineDriver driver;
  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics;
  AttachHub hub;
  // Blocks, by the last event of a round; what changes while no router follows has no event.
  std::map<uint64_t, std::set<uint64_t>> published;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

SimWorker::SimWorker(VirtualWorld& world, const SimWorkerOptions& options)
    : world_(world),
      name_(options.name),
      target_(name_ + ":9000"),
      adapters_(std::make_unique<AdapterTable>(test::TagAdapterTable(options.first_adapter))),
      options_(EngineOptionsOf(options)),
      max_unsent_hashes_(options.max_unsent_hashes),
      plain_(options.plain) {
  options_.adapters = adapters_.get();
  Start();
}

SimWorker::~SimWorker() { Crash(); }

StoppableExecutor* SimWorker::process() { return up() ? &parts_->executor : nullptr; }

void SimWorker::SetRecordTaker(RecordTaker taker) {
  take_record_ = std::move(taker);
  if (!up()) return;
  parts_->hub.SetRecordTaker(
      [this, epoch = epoch()](const AttemptRecord& record) { take_record_(epoch, record); });
}

void SimWorker::Start() {
  if (up()) return;
  ++epoch_;
  draining_ = frozen_ = false;
  parts_ = std::make_unique<Parts>(*this, world_, options_);
  parts_->driver.SetObserver([this](const EngineOutput& output) {
    parts_->published[output.event_seq].insert(PublishedBlocks());
  });
  if (max_unsent_hashes_ > 0) parts_->hub.LimitUnsentHashes(max_unsent_hashes_);
  if (take_record_) SetRecordTaker(take_record_);
  Listen();
  world_.ServeTextBundle(target_, [served = options_.model_id](const std::string& model_id) {
    if (model_id == served) return absl::StatusOr<std::string>(BundleOf(model_id));
    return absl::StatusOr<std::string>(absl::FailedPreconditionError("another model"));
  });
  parts_->driver.Start();
}

void SimWorker::Listen() {
  if (!up()) return;
  listening_ = true;
  world_.Listen(target_, [this](std::unique_ptr<FrameStream> stream) {
    auto own = std::make_unique<StoppableStream>(std::move(stream), parts_->executor);
    own->Listen();
    auto taken = std::make_shared<std::unique_ptr<FrameStream>>(std::move(own));
    if (wrapper_) *taken = wrapper_(std::move(*taken));
    parts_->executor.Read([this, taken] { parts_->hub.Accept(std::move(*taken)); });
  });
}

void SimWorker::Unlisten() {
  listening_ = false;
  world_.StopListening(target_);
  world_.CutLinks(target_);
}

void SimWorker::Crash() {
  if (!up()) return;
  Unlisten();
  parts_.reset();
}

void SimWorker::SetFrozen(bool frozen) {
  if (!up()) return;
  frozen_ = frozen;
  parts_->driver.SetFrozen(frozen);
}

void SimWorker::Drain(Micros grace) {
  if (!up() || draining_) return;
  draining_ = true;
  // A process that is stopped hears of it when it goes on.
  parts_->executor.Read([this, grace] {
    const Micros now = parts_->executor.clock().Now();
    parts_->hub.Drain(now + grace, now + 2 * grace, [](bool) {});
  });
}

bool SimWorker::AtRest() const {
  const Load& load = parts_->hub.load();
  return load.held_blocks == 0 && load.running_rows == 0 && load.waiting_requests == 0;
}

uint64_t SimWorker::PublishedBlocks() const {
  uint64_t count = 0;
  parts_->engine.kv().ForEachPublished([&count](int32_t, uint64_t, BlockId) { ++count; });
  return count;
}

bool SimWorker::MayHavePublished(uint64_t blocks, uint64_t event_seq) const {
  if (!up()) return true;
  const auto at = parts_->published.find(event_seq);
  return at == parts_->published.end() || at->second.contains(blocks);
}

}  // namespace quire::sim

#include "tests/support/engine_sim/engine_sim.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/virtual_background.h"
#include "tests/support/tag_draft_model.h"
#include "tests/support/tag_grammar.h"
#include "tests/support/tag_runner.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/constrain/mask_pool.h"
#include "worker/draft/ngram_drafter.h"
#include "worker/engine/virtual_engine_driver.h"
#include "worker/kv/kv_cache.h"
#include "worker/rpc/attach_hub.h"
#include "worker/scheduler/scheduler.h"

namespace quire::sim {
namespace {

constexpr Micros kPatience = 240 * kMicrosPerSecond;  // virtual time in which all has to end
constexpr Micros kRest = 500 * kMicrosPerMilli;

class Worker {
 public:
  // `last_epoch` is the world's: each worker has one of its own, and another when its device was
  // lost.
  Worker(SimWorld& shared, uint64_t& last_epoch)
      : shared_(shared),
        last_epoch_(last_epoch),
        epoch_(++last_epoch),
        draw_(shared.scenario.seed * 77 + epoch_),
        masks_({.vocab_size = shared.scenario.engine.vocab_size}),
        adapters_(test::TagAdapterTable(static_cast<int>(epoch_ % test::kTagAdapters), 1)),
        runner_(RunnerOptions()),
        engine_(MakeEngineOptions(), runner_, progress_),
        driver_(engine_, progress_, shared.world.executor(),
                [this] {
                  shared_.world.executor().Post([this, alive = std::weak_ptr(alive_)] {
                    if (!alive.expired()) hub_.OnEngineOutput();
                  });
                }),
        background_(shared.world.executor(), shared.scenario.compile_us),
        compiler_({}, std::make_shared<SharedVocabulary>([]() -> SharedVocabulary::Made {
                    return test::TagVocabulary();
                  }),
                  shared.world.executor(), background_, metrics_),
        rpc_metrics_(metrics_),
        hub_(Hello(epoch_), shared.world.executor(), driver_, log_, rpc_metrics_) {
    hub_.SetCompiler(&compiler_);
    hub_.LimitUnsentHashes(shared.scenario.max_unsent_hashes);
    hub_.SetEpochSource([this] { return Epoch(epoch_); });
    driver_.SetObserver([this](const EngineOutput& output) {
      for (const AdapterPlaced& placed : output.adapters) {
        moved_ += !placed.evicted.empty();
        if (placed.slot < 0) shared_.Violate("an adapter finds no slot, and one is always idle");
      }
      LookAtTheDevice(output);
      if (!output.device_lost) LookAtTheCache(output);
    });
    hub_.SetRecordTaker([this](const AttemptRecord& record) { Take(record); });
    for (const RequestPlan& plan : shared.scenario.requests) {
      if (plan.nan) runner_.program().SetNanSeed(plan.submit.sampling.seed);
    }
    shared.world.Listen("worker",
                        [this](std::unique_ptr<FrameStream> s) { hub_.Accept(std::move(s)); });
    driver_.Start();
  }
  ~Worker() {
    shared_.world.StopListening("worker");
    shared_.world.CutLinks("worker");
    Count();
  }

  void SetFrozen(bool frozen) { driver_.SetFrozen(frozen); }
  void LoseDevice(int looks) {
    if (runner_.Lost()) return;
    if (progress_.running_since_us.load() != 0) shared_.coverage.Add("devices lost in a step");
    runner_.Lose(looks);
    driver_.Start();  // it is told of it, as it would be by its ranks
  }
  void SlowStep(Micros by) {
    if (progress_.running_since_us.load() == 0 || runner_.Lost()) return;
    shared_.coverage.Add("slow steps");
    shared_.slow_us += by;
    runner_.DelayStep(by);
  }
  void FailStep() {
    if (progress_.running_since_us.load() == 0 || runner_.Lost()) return;
    shared_.coverage.Add("failed steps");
    runner_.program().FailNextRun(&shared_.failed_seeds);
  }
  // Another adapter takes the place of the one that nothing uses and that was asked for the longest
  // time ago; those that requests name are put back at once, wherever there is room.
  void MoveAdapters() {
    const std::string other(64, ++moves_ % 2 == 0 ? 'x' : 'y');
    std::vector<std::string> named;
    for (int i = 0; i < test::kTagAdapters; ++i) named.push_back(test::TagAdapterDigest(i));
    const auto place = [this](const std::string& digest, const std::vector<std::string>& kept) {
      const uint64_t salt = test::TagAdapterSalt(digest);
      AdapterCommand command{0, digest, std::make_shared<test::TagAdapterWeights>(salt), kept, {}};
      if (!driver_.TryPush(std::move(command))) shared_.Violate("the engine's queue is full");
    };
    place(other, {});
    for (const std::string& digest : named) place(digest, named);
  }
  void Drain(Micros grace) {
    hub_.Drain(shared_.Now() + grace, [this](bool clean) {
      drained_ = true;
      if (!clean && shared_.excuse_us == 0) shared_.Violate("the engine did not drain in time");
    });
  }

  // When everything is over: nothing is held, and the books balance.
  void JudgeTheRest(bool draining) {
    const Load& load = hub_.load();
    if (load.held_blocks != 0 || load.running_rows != 0 || load.waiting_requests != 0) {
      shared_.Violate("at rest " + std::to_string(load.held_blocks) + " pages are held, " +
                      std::to_string(load.running_rows) + " rows run, " +
                      std::to_string(load.waiting_requests) + " wait");
    }
    if (masks_.size() != 0 || masks_.bytes() != 0 || compiler_.waiting() != 0) {
      shared_.Violate("at rest some text is constrained");
    }
    if (draining && !drained_) shared_.Violate("the engine never said that it has drained");
    const EngineTotals& totals = engine_.totals();
    const auto same = [this](const char* what, uint64_t total, uint64_t records) {
      if (total == records) return;
      shared_.Violate(std::string(what) + ": the engine counts " + std::to_string(total) +
                      ", its records " + std::to_string(records));
    };
    same("attempts", totals.attempts, records_);
    same("prompt", totals.prompt_tokens, sum_.prompt_tokens);
    same("cached", totals.scheduler.cached_tokens, sum_.cached_tokens);
    same("computed", totals.scheduler.computed_tokens, sum_.computed_tokens);
    same("recomputed", totals.scheduler.recomputed_tokens, sum_.recomputed_tokens);
    same("generated", totals.generated_tokens, sum_.generated_tokens);
    same("discarded", totals.discarded_tokens, sum_.discarded_tokens);
    same("drafted", totals.draft_tokens, sum_.draft_tokens);
    same("accepted of the drafted", totals.accepted_draft_tokens, sum_.accepted_draft_tokens);
    same("preemptions", totals.scheduler.preemptions, preemptions_);
  }

 private:
  test::TagRunnerOptions RunnerOptions() {
    const Scenario& scenario = shared_.scenario;
    const EngineOptions& engine = scenario.engine;
    test::TagRunnerOptions runner = test::RunnerOptionsFor(engine);
    runner.max_loras = adapters_.max_loras();
    runner.max_in_flight = scenario.max_in_flight;
    runner.masks = &masks_;
    runner.salt_of_seed = [](uint64_t seed) { return seed % kSalts; };
    runner.salt_of_slot = [this](int32_t slot) { return test::TagSlotSalt(adapters_, slot); };
    runner.step_micros = [this](int64_t tokens) {
      const Micros even = shared_.scenario.step_base_us + shared_.scenario.step_token_us * tokens;
      return even / 2 + static_cast<Micros>(draw_.Next() % static_cast<uint64_t>(even + 1));
    };
    return runner;
  }
  EngineOptions MakeEngineOptions() {
    EngineOptions options = shared_.scenario.engine;
    options.masks = &masks_;
    options.adapters = &adapters_;
    if (options.max_drafts > 0) options.drafter = ADrafter();
    options.on_page_freed = [this](int32_t page) { runner_.program().PoisonPage(page); };
    return options;
  }
  Drafter* ADrafter() {
    const Scenario& scenario = shared_.scenario;
    if (scenario.draft_pages > 0) {
      draft_model_ = ADraftModel(scenario.draft_pages, nullptr);
      const auto unhurried = [](ModelDrafterOptions& options) {
        options.limits.max_tokens = options.limits.max_model_len;
        options.max_catch_up_us = 1'000'000'000;
      };
      checked_drafter_ = std::make_unique<test::CheckedDrafter>(
          *draft_model_->drafter, [this, unhurried] { return ADraftModel(4096, unhurried); },
          [this] { shared_.Violate("a proposal depends on more than its row"); });
      return checked_drafter_.get();
    }
    if (shared_.scenario.wrong_drafts > 0) return &shared_.guesses;
    return &lookups_;
  }
  std::unique_ptr<test::TagDraftModel> ADraftModel(
      int64_t pages, const std::function<void(ModelDrafterOptions&)>& change) {
    const uint64_t other = shared_.scenario.other_draft_model ? 1 : 0;
    return std::make_unique<test::TagDraftModel>(
        shared_.scenario.engine, pages, change,
        [other](uint64_t seed) { return seed % kSalts + other * kSalts; });
  }
  WorkerHello Hello(uint64_t epoch) {
    EngineOptions engine = shared_.scenario.engine;
    engine.masks = &masks_;
    engine.adapters = &adapters_;
    WorkerHello hello;
    hello.worker_id = "worker";
    hello.epoch = Epoch(epoch);
    hello.features = ServedFeatures(engine);
    hello.model_id = engine.model_id;
    hello.numerics_id = engine.numerics_id;
    hello.block_size = static_cast<uint32_t>(engine.block_size);
    hello.limits.max_model_len = static_cast<uint32_t>(engine.max_model_len);
    hello.limits.max_num_seqs = static_cast<uint32_t>(engine.max_num_seqs);
    hello.limits.max_waiting_requests = static_cast<uint32_t>(engine.max_waiting_requests);
    hello.limits.max_choices = static_cast<uint32_t>(engine.max_choices);
    hello.text_bundle_sha256 = std::string(32, 'x');
    hello.served_names = {"tag"};
    hello.vocab_size = static_cast<uint32_t>(engine.vocab_size);
    return hello;
  }

  // What comes after a loss is told under an epoch of its own.
  void LookAtTheDevice(const EngineOutput& output) {
    if (output.devices_lost == devices_lost_) return;
    shared_.coverage.Add("devices lost", output.devices_lost - devices_lost_);
    devices_lost_ = output.devices_lost;
    shared_.device_lost_at = shared_.Now();
    epoch_ = ++last_epoch_;
    if (output.load.running_rows + output.load.waiting_requests + output.load.held_blocks > 0) {
      shared_.Violate("work is left on a device that is lost");
    }
  }

  // What is really cached, for routers to be held against; and no block of it is unwritten.
  void LookAtTheCache(const EngineOutput& output) {
    std::map<uint64_t, uint64_t>& truth = shared_.cache_truth[epoch_];
    if (truth.contains(output.event_seq)) return;
    CacheSum sum;
    const BlockPool& pool = engine_.kv().pool();
    engine_.kv().ForEachPublished([&](int32_t kind, uint64_t hash, BlockId block) {
      sum.Add(static_cast<uint32_t>(kind), hash);
      for (int32_t page = block.value(); page >= 0; page = pool.NextPage(page)) {
        if (!runner_.program().PageWritten(page)) {
          shared_.Violate("a block is published that no step has written");
        }
      }
    });
    truth[output.event_seq] = sum.value();
    if (output.load.running_rows > 0 && !output.snapshot_parts.empty()) {
      shared_.coverage.Add("snapshot parts under load", output.snapshot_parts.size());
    }
  }

  void Take(const AttemptRecord& record) {
    ++records_;
    shared_.routers.at(record.router)->OnRecord(record);
    preemptions_ += record.preemptions;
    sum_.prompt_tokens += record.usage.prompt_tokens;
    sum_.cached_tokens += record.usage.cached_tokens;
    sum_.computed_tokens += record.usage.computed_tokens;
    sum_.recomputed_tokens += record.usage.recomputed_tokens;
    sum_.generated_tokens += record.usage.generated_tokens;
    sum_.discarded_tokens += record.usage.discarded_tokens;
    sum_.draft_tokens += record.usage.draft_tokens;
    sum_.accepted_draft_tokens += record.usage.accepted_draft_tokens;
    JudgeDrafts(record);
    if (record.reason == EndReason::kUnspecified || record.choices == 0 ||
        record.request_id.empty() ||
        std::min({record.queue_us, record.prefill_us, record.decode_us}) < 0) {
      shared_.Violate("a record is not whole");
    }
  }

  // A draft model that is the model itself is right, except behind an end.
  void JudgeDrafts(const AttemptRecord& record) {
    const Scenario& scenario = shared_.scenario;
    const bool same = scenario.draft_pages > 0 && !scenario.other_draft_model;
    if (!same || !record.adapter.empty() || record.constraint.kind != ConstraintKind::kNone) return;
    const uint64_t behind_ends =
        uint64_t{record.choices} * static_cast<uint64_t>(scenario.engine.max_drafts);
    if (record.usage.accepted_draft_tokens + behind_ends >= record.usage.draft_tokens) return;
    shared_.Violate("the model itself drafted " + std::to_string(record.usage.draft_tokens) +
                    " tokens, of which " + std::to_string(record.usage.accepted_draft_tokens) +
                    " were right");
  }

  void Count() {
    const EngineTotals& totals = engine_.totals();
    Coverage& coverage = shared_.coverage;
    coverage.Add("adapters moved", moved_);
    coverage.Add("steps", totals.steps);
    coverage.Add("attempts", totals.attempts);
    coverage.Add("preemptions", totals.scheduler.preemptions);
    coverage.Add("cached", totals.scheduler.cached_tokens);
    coverage.Add("recomputed", totals.scheduler.recomputed_tokens);
    coverage.Add("discarded", totals.discarded_tokens);
    coverage.Add("windows used up", totals.windows_used_up);
    coverage.Add("probes", totals.probes);
    coverage.Add("constrained rows", totals.constrained_rows);
    coverage.Add("forced", totals.forced_tokens);
    coverage.Add("accepted of the forced", totals.accepted_forced_tokens);
    coverage.Add("drafted", totals.draft_tokens);
    coverage.Add("accepted of the drafted", totals.accepted_draft_tokens);
    if (checked_drafter_ != nullptr) {
      coverage.Add("proposals compared", checked_drafter_->compared());
      coverage.Add("draft model's evictions", draft_model_->drafter->totals().evictions);
      coverage.Add("draft model's hits", draft_model_->drafter->totals().cached_tokens);
    }
    coverage.Add("records", records_);
    coverage.Add("lost with their router",
                 totals.choices_ended[static_cast<size_t>(EndReason::kRouterLost)]);
  }

  SimWorld& shared_;
  uint64_t& last_epoch_;
  uint64_t epoch_;
  uint64_t devices_lost_ = 0;
  VirtualRng draw_;
  StepProgress progress_;
  MaskPool masks_;
  const AdapterTable adapters_;
  test::TagRunner runner_;
  NgramDrafter lookups_{{.min_tokens = 1, .max_tokens = 3}};
  std::unique_ptr<test::TagDraftModel> draft_model_;
  std::unique_ptr<test::CheckedDrafter> checked_drafter_;
  Engine engine_;
  VirtualEngineDriver driver_;
  NullLogger log_;
  Metrics metrics_;
  VirtualBackground background_;
  ConstraintCompiler compiler_;
  RpcMetrics rpc_metrics_;
  AttachHub hub_;
  bool drained_ = false;
  uint64_t moves_ = 0;
  uint64_t moved_ = 0;  // adapters that gave way
  uint64_t records_ = 0;
  uint64_t preemptions_ = 0;
  AttemptUsage sum_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class Life {
 public:
  Life(const Scenario& scenario, Coverage& coverage)
      : world_(scenario.seed),
        dialer_(world_.MakeDialer()),
        shared_{world_, *dialer_, scenario, coverage, {}} {
    world_.SetDelay(20, 2 * kMicrosPerMilli);
    worker_ = std::make_unique<Worker>(shared_, epoch_);
    for (int i = 0; i < scenario.routers; ++i) {
      routers_.push_back(std::make_unique<SimRouter>(shared_, i));
      shared_.routers[routers_.back()->instance()] = routers_.back().get();
      routers_.back()->Start();
    }
    for (const FaultPlan& fault : scenario.faults) Plan(fault);
    for (const Micros at : scenario.adapter_moves) At(at, [this] { worker_->MoveAdapters(); });
    if (scenario.drains_at >= 0) At(scenario.drains_at, [this] { Drain(); });
  }

  SimResult Run() {
    const Micros begin = shared_.Now();
    const auto bad = [this] { return !shared_.violations.empty(); };
    const auto over = [&] {
      return bad() ||
             (to_heal_ == 0 && std::all_of(routers_.begin(), routers_.end(),
                                           [](const auto& router) { return router->AllOver(); }));
    };
    // The first steps of the phase are those with faults, the last are peace.
    world_.RunUntil(begin + kPatience, over);
    if (!bad()) {
      for (const auto& router : routers_) router->JudgeTheEnd();
    }
    SimResult result;
    result.took = shared_.Now() - begin;
    if (!bad()) {
      world_.RunUntil(shared_.Now() + kRest + shared_.scenario.drain_grace + shared_.slow_us, bad);
      // A probe may just have evicted a block: that is under way.
      world_.RunUntil(shared_.Now() + kRest, [&] {
        return bad() || std::all_of(routers_.begin(), routers_.end(),
                                    [](const auto& router) { return router->KnowsTheLastEvent(); });
      });
      worker_->JudgeTheRest(shared_.draining);
      for (const auto& router : routers_) router->JudgeTheCache();
    }
    result.violations = shared_.violations;
    result.trace = shared_.trace;
    return result;
  }

 private:
  void At(Micros when, std::function<void()> work) {
    ++to_heal_;
    world_.executor().PostAt(shared_.Now() + when, [this, work = std::move(work)] {
      --to_heal_;
      work();
    });
  }

  void Plan(const FaultPlan& fault) {
    using Kind = FaultPlan::Kind;
    SimRouter& router = *routers_[static_cast<size_t>(fault.router)];
    switch (fault.kind) {
      case Kind::kCut:
        return At(fault.at, [&router] { router.Cut(); });
      case Kind::kFence:
        return At(fault.at, [&router] { router.Fence(); });
      case Kind::kOldHello:
        return At(fault.at, [&router] { router.SayOldHello(); });
      case Kind::kSilence:
        At(fault.at, [&router] { router.SetSilent(true); });
        return At(fault.at + fault.lasts, [&router] { router.SetSilent(false); });
      case Kind::kSlowStep:
        return At(fault.at, [this, fault] { worker_->SlowStep(fault.lasts); });
      case Kind::kFailStep:
        return At(fault.at, [this] { worker_->FailStep(); });
      case Kind::kFreeze:
        At(fault.at, [this, fault] {
          shared_.coverage.Add("freezes");
          shared_.excuse_us += fault.lasts;
          ++frozen_;
          worker_->SetFrozen(true);
        });
        return At(fault.at + fault.lasts, [this] {
          if (--frozen_ == 0) worker_->SetFrozen(false);
        });
      case Kind::kCrash:
        return At(fault.at, [this] { Crash(); });
      case Kind::kLoseDevice:
        return At(fault.at, [this, fault] { worker_->LoseDevice(fault.looks); });
    }
  }

  void Crash() {
    if (shared_.draining) return;  // it is leaving anyhow
    shared_.coverage.Add("crashes");
    worker_.reset();
    worker_ = std::make_unique<Worker>(shared_, epoch_);
    worker_->SetFrozen(frozen_ > 0);
  }

  void Drain() {
    shared_.coverage.Add("drains");
    shared_.draining = true;
    worker_->Drain(shared_.scenario.drain_grace);
  }

  VirtualWorld world_;
  std::unique_ptr<Dialer> dialer_;
  SimWorld shared_;
  uint64_t epoch_ = 0;
  int frozen_ = 0;
  int to_heal_ = 0;  // faults that begin or end later
  std::unique_ptr<Worker> worker_;
  std::vector<std::unique_ptr<SimRouter>> routers_;
};

}  // namespace

SimResult RunEngineSeed(uint64_t seed, Coverage& coverage) {
  const Scenario scenario = DrawScenario(seed);
  return Life(scenario, coverage).Run();
}

}  // namespace quire::sim

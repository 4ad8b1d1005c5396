#include "bench/fleet/fleet_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <vector>

#include "bench/fleet/model_worker.h"
#include "common/block_hash.h"
#include "common/check.h"
#include "common/runtime/virtual_runtime.h"
#include "router/dispatch/placement.h"

namespace quire::bench {
namespace {

constexpr int32_t kBlock = 16;
constexpr Micros kSubmitDelay = 500;  // from router to worker

WorkerHello HelloOf(int32_t worker) {
  WorkerHello hello;
  hello.worker_id = "worker-" + std::to_string(worker);
  hello.features = {"snapshot"};
  hello.prefix_caching = true;
  hello.hash_scheme = std::string(kHashScheme);
  hello.block_size = kBlock;
  hello.model_id = "model";
  hello.numerics_id = "numerics";
  hello.cache_groups.emplace_back();
  return hello;
}

// What one router keeps of a request between its placement and its admission.
struct Flight {
  Submit submit;
  Journal journal{{ResumedChoice()}, 1u << 20};
  PlacementTicket ticket;
};

// One router: real placement over a view that its workers' frames fill.
class ModelRouter {
 public:
  struct Sent {
    int32_t worker = 0;
    uint64_t submit_number = 0;
  };

  ModelRouter(const FleetModelOptions& options, uint64_t seed)
      : rng_(seed), placement_(*FindPolicy(options.policy), limits_, rng_) {
    for (int32_t i = 0; i < options.workers; ++i) hellos_.push_back(HelloOf(i));
    links_.resize(hellos_.size());
    for (size_t i = 0; i < hellos_.size(); ++i) {
      WorkerView view;
      view.worker = WorkerIndex(static_cast<uint32_t>(i));
      view.worker_id = hellos_[i].worker_id;
      view.numerics_id = hellos_[i].numerics_id;
      view.features = hellos_[i].features;
      view.max_waiting_requests = 1024;
      view.max_num_seqs = static_cast<uint32_t>(options.max_rows);
      view.block_size = kBlock;
      view.routers_attached = static_cast<uint32_t>(options.routers);
      view_.workers.push_back(view);
      placement_.index().Greeted(view.worker, hellos_[i], 0);
    }
    // Caches are empty: so are the snapshots.
    while (const auto ask = placement_.index().NextAsk(1)) {
      placement_.index().Stepped(ask->worker, StepFrame(), 1);
      placement_.index().Snapshot(ask->worker, {ask->number, 0, {}, true}, 1);
    }
  }

  // Empty when no worker has room now.
  std::optional<Sent> Place(Flight& flight) {
    const Placement::Request request{flight.submit, flight.journal, {}, {}, {}, {}, false, nullptr};
    FleetView view = view_;
    const Placement::Placed placed = placement_.Choose(view, request, flight.ticket);
    if (placed.outcome != PlaceOutcome::kPlaced) return std::nullopt;
    const size_t worker = placed.choice.worker.value();
    Link& link = links_[worker];
    const uint64_t number = ++link.submits;
    link.unseen.emplace_back(number, flight.ticket.uncached_tokens);
    ++view_.workers[worker].unadmitted_submits;
    Recount(worker);
    return Sent{static_cast<int32_t>(worker), number};
  }

  void Hear(size_t worker, const StepFrame& frame, uint64_t last_submit, Micros now) {
    placement_.index().Stepped(WorkerIndex(static_cast<uint32_t>(worker)), frame, now);
    view_.workers[worker].load = frame.load;
    std::deque<std::pair<uint64_t, uint64_t>>& unseen = links_[worker].unseen;
    while (!unseen.empty() && unseen.front().first <= last_submit) unseen.pop_front();
    Recount(worker);
  }
  void Admit(size_t worker, const Admitted& admitted, Flight& flight) {
    --view_.workers[worker].unadmitted_submits;
    placement_.OnAdmitted(WorkerIndex(static_cast<uint32_t>(worker)), admitted, flight.ticket);
  }
  const CacheIndexCounters& counters() const { return placement_.index().counters(); }

 private:
  struct Link {
    uint64_t submits = 0;
    std::deque<std::pair<uint64_t, uint64_t>> unseen;  // (submit number, tokens)
  };

  void Recount(size_t worker) {
    WorkerView& view = view_.workers[worker];
    view.unseen_submits = links_[worker].unseen.size();
    view.unseen_tokens = 0;
    for (const auto& [number, tokens] : links_[worker].unseen) view.unseen_tokens += tokens;
  }

  const RouterLimits limits_;
  VirtualRng rng_;
  Placement placement_;
  std::vector<WorkerHello> hellos_;
  std::vector<Link> links_;
  FleetView view_;
};

class FleetModel {
 public:
  explicit FleetModel(const FleetModelOptions& options)
      : options_(options),
        draw_(options.seed),
        requests_(static_cast<size_t>(options.requests)),
        flights_(requests_.size()),
        waiting_(static_cast<size_t>(options.routers)),
        last_frame_(static_cast<size_t>(options.routers * options.workers)),
        stepping_(static_cast<size_t>(options.workers)) {
    for (int32_t i = 0; i < options.workers; ++i) workers_.emplace_back(options_, kBlock);
    for (int32_t i = 0; i < options.routers; ++i) {
      routers_.push_back(std::make_unique<ModelRouter>(options_, options.seed * 1000 + i));
    }
    for (int32_t group = 0; group < options.groups; ++group) {
      popularity_.push_back(std::pow(group + 1, -options.skew));
      std::vector<TokenId>& prefix = prefixes_.emplace_back();
      for (int32_t i = 0; i < options.prefix; ++i) prefix.push_back(AnyToken());
    }
  }

  FleetModelResult Run() {
    Arrivals();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      QUIRE_CHECK(event.due >= now_);
      now_ = event.due;
      Handle(event);
    }
    return Result();
  }

 private:
  struct Telling {  // a frame on its way to the routers
    StepFrame frame;
    std::vector<std::pair<int32_t, Admitted>> admitted;
    std::vector<uint64_t> last_submits;  // by router
  };
  enum class Kind : uint8_t { kArrival, kSubmit, kStepEnd, kFrame };
  struct Event {
    Micros due = 0;
    uint64_t order = 0;
    Kind kind = Kind::kArrival;
    int32_t request = 0;
    int32_t worker = 0;
    int32_t router = 0;
    std::shared_ptr<const Telling> telling = nullptr;  // owned by its events together
    bool operator<(const Event& other) const {         // the queue's top is the earliest
      return std::pair(due, order) > std::pair(other.due, other.order);
    }
  };

  TokenId AnyToken() { return static_cast<TokenId>(draw_() % 100'000); }
  void Push(Event event) {
    event.order = ++last_order_;
    events_.push(std::move(event));
  }

  // All requests, with what a perfect cache would have had of each.
  void Arrivals() {
    std::discrete_distribution<int32_t> group(popularity_.begin(), popularity_.end());
    std::exponential_distribution<double> gap(options_.per_second / 1e6);
    BlockCache oracle(options_.cache_blocks * options_.workers);
    double at = 0;
    for (int32_t number = 0; number < options_.requests; ++number) {
      at += gap(draw_);
      ModelRequest& request = requests_[static_cast<size_t>(number)];
      request.number = number;
      request.router = static_cast<int32_t>(draw_() % static_cast<uint64_t>(options_.routers));
      request.arrived = static_cast<Micros>(at);
      auto flight = std::make_unique<Flight>();
      std::vector<TokenId> prompt = prefixes_[static_cast<size_t>(group(draw_))];
      for (int32_t i = 0; i < options_.question; ++i) prompt.push_back(AnyToken());
      flight->submit.model_id = "model";
      request.prompt = static_cast<int64_t>(prompt.size());
      PromptChains chains("model", "", "", prompt, {});
      flight->submit.prompt_ids = std::move(prompt);
      request.chain = chains.For("numerics", kBlock);
      flights_[static_cast<size_t>(number)] = std::move(flight);
      const int64_t held = oracle.Held(request.chain, (request.prompt - 1) / kBlock);
      if (number >= options_.warm_up) oracle_tokens_ += held * kBlock;
      std::vector<uint64_t> stored, removed;
      oracle.Use(request.chain, static_cast<int64_t>(request.chain.size()), stored, removed);
      Push({.due = request.arrived, .request = number});
    }
  }

  void Handle(const Event& event) {
    const auto worker = static_cast<size_t>(event.worker);
    switch (event.kind) {
      case Kind::kArrival: {
        if (event.request == options_.warm_up) work_before_ = Work();
        if (event.request + 1 == options_.requests) work_after_ = Work();
        const int32_t router = requests_[static_cast<size_t>(event.request)].router;
        waiting_[static_cast<size_t>(router)].push_back(event.request);
        return PlaceWaiting(router);
      }
      case Kind::kSubmit:
        workers_[worker].Submit(&requests_[static_cast<size_t>(event.request)]);
        return Step(event.worker);
      case Kind::kStepEnd:
        stepping_[worker] = false;
        Tell(event.worker);
        return Step(event.worker);
      case Kind::kFrame: {
        ModelRouter& router = *routers_[static_cast<size_t>(event.router)];
        const Telling& telling = *event.telling;
        router.Hear(worker, telling.frame, telling.last_submits[static_cast<size_t>(event.router)],
                    now_);
        for (const auto& [whose, admitted] : telling.admitted) {
          if (whose != event.router) continue;
          std::unique_ptr<Flight>& flight = flights_[admitted.key.request.value()];
          router.Admit(worker, admitted, *flight);
          flight.reset();
        }
        return PlaceWaiting(event.router);
      }
    }
  }

  void PlaceWaiting(int32_t router) {
    std::deque<int32_t>& waiting = waiting_[static_cast<size_t>(router)];
    while (!waiting.empty()) {
      const int32_t number = waiting.front();
      const auto sent =
          routers_[static_cast<size_t>(router)]->Place(*flights_[static_cast<size_t>(number)]);
      if (!sent) return;
      waiting.pop_front();
      requests_[static_cast<size_t>(number)].submit_number = sent->submit_number;
      Push({.due = now_ + kSubmitDelay,
            .kind = Kind::kSubmit,
            .request = number,
            .worker = sent->worker});
    }
  }

  void Step(int32_t worker) {
    ModelWorker& model = workers_[static_cast<size_t>(worker)];
    if (stepping_[static_cast<size_t>(worker)] || model.idle()) return;
    stepping_[static_cast<size_t>(worker)] = true;
    Push({.due = now_ + model.Begin(), .kind = Kind::kStepEnd, .worker = worker});
  }

  void Tell(int32_t worker) {
    auto telling = std::make_shared<Telling>();
    ModelWorker& model = workers_[static_cast<size_t>(worker)];
    model.End(now_, telling->frame, telling->admitted);
    for (int32_t i = 0; i < options_.routers; ++i) {
      telling->last_submits.push_back(model.last_submit(i));
    }
    for (int32_t i = 0; i < options_.routers; ++i) {
      Micros& last = last_frame_[static_cast<size_t>(i * options_.workers + worker)];
      const auto half = static_cast<uint64_t>(options_.frame_delay / 2 + 1);
      last = std::max(last, now_ + options_.frame_delay + static_cast<Micros>(draw_() % half));
      Push({.due = last, .kind = Kind::kFrame, .worker = worker, .router = i, .telling = telling});
    }
  }

  std::vector<double> Work() const {
    std::vector<double> work;
    for (const ModelWorker& worker : workers_) work.push_back(worker.work_us());
    return work;
  }

  FleetModelResult Result() const {
    FleetModelResult result;
    int64_t cached = 0, prompts = 0;
    std::vector<double> first_ms;
    for (int32_t i = options_.warm_up; i < options_.requests; ++i) {
      const ModelRequest& request = requests_[static_cast<size_t>(i)];
      QUIRE_CHECK_MSG(request.written >= options_.output, "every request is served");
      cached += request.cached;
      prompts += request.prompt;
      first_ms.push_back(static_cast<double>(request.first_token - request.arrived) / 1000);
    }
    result.hit_rate = static_cast<double>(cached) / static_cast<double>(prompts);
    result.hit_rate_over_oracle = static_cast<double>(cached) / static_cast<double>(oracle_tokens_);
    double all = 0, most = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const double work = work_after_[i] - work_before_[i];
      all += work;
      most = std::max(most, work);
    }
    result.load_spread = most / (all / static_cast<double>(workers_.size()));
    std::sort(first_ms.begin(), first_ms.end());
    result.first_token_ms_mean = std::accumulate(first_ms.begin(), first_ms.end(), 0.0) /
                                 static_cast<double>(first_ms.size());
    result.first_token_ms_p99 = first_ms[first_ms.size() * 99 / 100];
    result.seconds = static_cast<double>(now_) / kMicrosPerSecond;
    for (const auto& router : routers_) {
      result.predictions_exact += router->counters().predictions_exact;
      result.predictions_raced += router->counters().predictions_raced;
      result.predictions_wrong += router->counters().predictions_wrong;
    }
    return result;
  }

  const FleetModelOptions options_;
  std::mt19937_64 draw_;
  std::vector<double> popularity_;
  std::vector<std::vector<TokenId>> prefixes_;  // by group
  std::vector<ModelRequest> requests_;
  std::vector<std::unique_ptr<Flight>> flights_;  // by request, until admitted
  std::vector<std::deque<int32_t>> waiting_;      // by router
  std::vector<Micros> last_frame_;                // by router and worker: when it arrives
  std::vector<bool> stepping_;
  std::deque<ModelWorker> workers_;
  std::vector<std::unique_ptr<ModelRouter>> routers_;
  std::priority_queue<Event> events_;
  uint64_t last_order_ = 0;
  Micros now_ = 0;
  int64_t oracle_tokens_ = 0;
  std::vector<double> work_before_;
  std::vector<double> work_after_;
};

}  // namespace

FleetModelResult RunFleetModel(const FleetModelOptions& options) {
  QUIRE_CHECK(FindPolicy(options.policy) != nullptr && options.workers > 0 && options.routers > 0);
  QUIRE_CHECK(options.warm_up >= 0 && options.warm_up < options.requests && options.groups > 0);
  return FleetModel(options).Run();
}

}  // namespace quire::bench

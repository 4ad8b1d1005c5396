#include "router/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/trace/context.h"
#include "common/wire/features.h"
#include "router/dispatch/refusal.h"

namespace quire {
namespace {

const Policy& PolicyOf(const DispatchOptions& options) {
  QUIRE_CHECK_MSG(options.policy != nullptr, "a dispatcher has a routing policy");
  return *options.policy;
}

}  // namespace

Dispatcher::Dispatcher(DispatchOptions options, Dialer& dialer, Executor& executor, Rng& rng,
                       std::function<void()> wake)
    : options_(std::move(options)),
      dialer_(dialer),
      executor_(executor),
      rng_(rng),
      fleet_(options_.limits),
      placement_(PolicyOf(options_), options_.limits, rng),
      budget_(options_.limits.placement_retry_percent, options_.limits.placement_retry_burst),
      pacer_(options_.limits.max_carry_on_tokens),
      ledger_({options_.limits.max_worker_deaths, options_.limits.max_suspect_prompts,
               Micros{options_.limits.suspect_prompt_s} * kMicrosPerSecond}),
      adapter_orders_(
          executor,
          [this](WorkerIndex worker, const AdapterOrder& order) {
            LinkOf(worker).SendAdapterOrder(order);
          },
          counters_),
      events_(std::move(wake)) {}

Dispatcher::~Dispatcher() {
  for (auto& [number, live] : live_) StopWaiting(*live);
  for (const AtWorker& at : at_) {
    if (at.move_timer != 0) executor_.Cancel(at.move_timer);
  }
}

Link& Dispatcher::LinkOf(WorkerIndex worker) {
  QUIRE_CHECK(worker.value() < at_.size() && at_[worker.value()].link != nullptr);
  return *at_[worker.value()].link;
}

LiveDispatch* Dispatcher::Find(RequestNumber request) {
  const auto it = live_.find(request);
  return it == live_.end() ? nullptr : it->second.get();
}

const LiveDispatch* Dispatcher::Peek(RequestNumber request) const {
  const auto it = live_.find(request);
  return it == live_.end() ? nullptr : it->second.get();
}

// ----------------------------------------------------------------------------------- workers

absl::Status Dispatcher::AddWorker(const std::string& target) {
  QUIRE_ASSIGN_OR_RETURN(const WorkerIndex worker, fleet_.AddWorker(target));
  if (worker.value() == at_.size()) at_.emplace_back();
  std::unique_ptr<Link>& place = at_.at(worker.value()).link;
  QUIRE_CHECK_MSG(place == nullptr, "a worker that went left its place empty");
  LinkOptions link = options_.link;
  link.target = target;
  link.worker = worker;
  link.router = options_.instance;
  link.wants_events = options_.policy->wants_caches;
  LinkListener& self = *this;
  place = std::make_unique<Link>(std::move(link), dialer_, executor_, rng_, self);
  place->Start();
  return absl::OkStatus();
}

void Dispatcher::RemoveWorker(WorkerIndex worker) {
  AtWorker& at = at_.at(worker.value());
  QUIRE_CHECK_MSG(at.running.empty(), "a worker with attempts stays");
  if (at.move_timer != 0) executor_.Cancel(at.move_timer);
  at = AtWorker();
  adapter_orders_.Lost(worker);
  placement_.index().Lost(worker);
  ledger_.Lives(worker);  // nothing will show any more whether it died
  if (fleet_.worker(worker).attached) fleet_.Detached(worker, "named no more", Now());
  fleet_.RemoveWorker(worker);
  // Another worker may get its index.
  for (auto& [number, live] : live_) std::erase(live->excluded, worker);
  events_.Add(FleetChanged{worker});
  events_.Wake();
}

void Dispatcher::NoteUnseen(WorkerIndex worker) {
  const Link& link = *at_[worker.value()].link;
  fleet_.SetUnseen(worker, link.UnseenSubmits(), link.UnseenTokens());
}

// ------------------------------------------------------------------------------- from the pipeline

void Dispatcher::Start(DispatchRequest request) {
  const RequestNumber number = request.number;
  auto [it, inserted] = live_.try_emplace(
      number, std::make_unique<LiveDispatch>(std::move(request), options_.limits.window_tokens));
  QUIRE_CHECK_MSG(inserted, "request numbers are unique");
  LiveDispatch& live = *it->second;
  QUIRE_CHECK_MSG(!live.journal.AllEnded(), "a request starts with a choice to go on with");
  budget_.RequestStarted();
  if (!ledger_.empty()) {
    // A client's repeated request keeps the deaths that its prompt has caused.
    if (ledger_.Refuses(live.Prompt(), Now())) {
      ++counters_.suspect_prompts_refused;
      live.refused = SuspectPromptError();
      Wait(live, PlaceOutcome::kHeld);
      return;
    }
    live.holds_prompt = ledger_.Hold(live.Prompt());
  }
  // Earlier requests go first.
  if (line_.Blocked(live.pool()) && !QUIRE_BUG(carry_on_not_ahead)) {
    Wait(live, PlaceOutcome::kBusy);
    return;
  }
  const PlaceOutcome outcome = Place(live);
  if (outcome != PlaceOutcome::kPlaced) Wait(live, outcome);
}

std::optional<AttemptReport> Dispatcher::Cancel(RequestNumber request) {
  LiveDispatch* live = Find(request);
  if (live == nullptr) return std::nullopt;
  auto report = EndAttempt(*live, /*tell_worker=*/true, AttemptEnd::kCancelled);
  Forget(*live);
  return report;
}

std::optional<AttemptReport> Dispatcher::FinishChoice(RequestNumber request, uint32_t choice,
                                                      EndReason reason, uint64_t output_count) {
  LiveDispatch* live = Find(request);
  if (live == nullptr) return std::nullopt;
  live->journal.End(choice, output_count);
  if (live->running && LinkOf(live->worker).up()) {
    const AttemptKey key{request, live->attempt};
    if (!QUIRE_BUG(finish_not_sent))
      LinkOf(live->worker).SendFinish({key, choice, reason, static_cast<uint32_t>(output_count)});
  }
  if (!live->journal.AllEnded()) return std::nullopt;
  auto report = EndAttempt(*live, /*tell_worker=*/false, AttemptEnd::kFinished);
  Forget(*live);
  return report;
}

void Dispatcher::Taken(RequestNumber request, uint32_t choice, uint64_t index) {
  LiveDispatch* live = Find(request);
  if (live == nullptr || choice >= live->windows.size()) return;
  const uint64_t taken = std::min(index, live->journal.accepted(choice));
  const std::optional<uint64_t> grant = live->windows[choice].Take(taken);
  if (!grant || !live->Windowed() || !live->running || live->journal.ended(choice)) return;
  const AttemptKey key{request, live->attempt};
  if (LinkOf(live->worker).up()) LinkOf(live->worker).SendGrant({key, choice, *grant});
}

Room Dispatcher::RoomFor(const std::string& model_id, const RoomNeed& need) const {
  RoomSearch search(need, options_.limits.max_prefill_ahead);
  fleet_.Look(model_id, Now(), [&search](const WorkerView& worker) { return !search.See(worker); });
  const Room room = search.found();
  // Requests that already wait here go first.
  const bool before = line_.Blocked(model_id) && !QUIRE_BUG(carry_on_not_ahead);
  return room == Room::kSome && before ? Room::kFull : room;
}

// ------------------------------------------------------------------------------------- placing

PlaceOutcome Dispatcher::Place(LiveDispatch& live) {
  QUIRE_CHECK_MSG(!live.running, "one attempt at a time");
  if (Held(live)) return PlaceOutcome::kHeld;
  const std::vector<WorkerIndex> spared = SparedFrom(live);
  Placement::Placed placed = ChooseFor(live, spared, live.ticket);
  const bool bound = !spared.empty() && placed.outcome != PlaceOutcome::kPlaced;
  if ((bound || placed.outcome == PlaceOutcome::kNobody) && live.carry_on &&
      !live.excluded.empty()) {
    // An answer that has begun is offered again, a little later, to the workers that refused it.
    live.excluded.clear();
    live.retry_at = Now() + kTurnedDownPause;
    return PlaceOutcome::kHeld;
  }
  if (bound) return PlaceOutcome::kHeld;
  if (placed.paced && !live.paced) ++counters_.carry_ons_paced;
  live.paced = placed.paced;
  if (placed.outcome != PlaceOutcome::kPlaced) return placed.outcome;
  StopWaiting(live);
  Send(live, placed.choice);
  return PlaceOutcome::kPlaced;
}

// Once a worker may have died under a prompt, no more workers run it at once than it may still
// kill: further requests with it go where it already runs.
std::vector<WorkerIndex> Dispatcher::SparedFrom(const LiveDispatch& live) const {
  std::vector<WorkerIndex> spared;
  if (ledger_.empty() || QUIRE_BUG(suspects_run_together)) return spared;
  const uint32_t count = ledger_.Of(live.Prompt()).total();
  if (count == 0) return spared;
  size_t have_it = 0;
  for (uint32_t i = 0; i < at_.size(); ++i) {
    const std::set<RequestNumber>& running = at_[i].running;
    const bool has_it = std::any_of(running.begin(), running.end(), [&](RequestNumber number) {
      return live_.at(number)->Prompt() == live.Prompt();
    });
    have_it += has_it ? 1 : 0;
    if (!has_it) spared.push_back(WorkerIndex(i));
  }
  // One at a time may always try, once it has waited for the result of open losses.
  if (have_it == 0 || have_it + count < options_.limits.max_worker_deaths) spared.clear();
  return spared;
}

Placement::Placed Dispatcher::ChooseFor(LiveDispatch& live, const std::vector<WorkerIndex>& spared,
                                        PlacementTicket& ticket) {
  const bool begun = live.journal.TotalOutputs() > 0;
  std::vector<WorkerIndex> excluded = live.excluded;
  excluded.insert(excluded.end(), spared.begin(), spared.end());
  fleet_.View(live.pool(), Now(), view_);
  return placement_.Choose(
      view_,
      {live.request.submit, live.journal, excluded, live.Features(), live.request.session,
       begun ? std::string_view(live.OutputsFrom()) : std::string_view(),
       options_.carry_on_mode == CarryOnMode::kExact,
       live.carry_on && !QUIRE_BUG(carry_ons_not_paced) ? &pacer_ : nullptr},
      ticket);
}

bool Dispatcher::IsSuspect(const PromptKey& prompt) const {
  const uint32_t count = ledger_.Of(prompt).total();
  return count > 0 && count + 1 >= options_.limits.max_worker_deaths;
}

bool Dispatcher::IsSuspect(const LiveDispatch& live) const {
  return !ledger_.empty() && IsSuspect(live.Prompt());
}

// It has to wait for its own reasons, even if there is room.
bool Dispatcher::Held(const LiveDispatch& live) const {
  const Micros now = Now();
  if (live.refused || now < live.retry_at) return true;
  if (ledger_.empty()) return false;
  const DeathLedger::Count count = ledger_.Of(live.Prompt());
  const uint32_t limit = options_.limits.max_worker_deaths;
  if (count.total() >= limit && now < count.last_loss + kDeathVerdictWait) return true;
  if (QUIRE_BUG(suspects_run_together)) return false;
  return IsSuspect(live) && suspect_turns_.contains(live.pool());
}

void Dispatcher::Send(LiveDispatch& live, const RouteChoice& choice) {
  const WorkerIndex worker = choice.worker;
  QUIRE_CHECK(LinkOf(worker).up() && !live.running);
  const RequestNumber number = live.request.number;
  if (!QUIRE_BUG(attempt_number_used_again)) live.attempt = Attempt(live.attempt.value() + 1);
  live.running = true;
  live.answered = false;
  live.worker = worker;
  at_[worker.value()].running.insert(number);
  fleet_.AttemptStarted(worker);
  ++counters_.attempts;
  QUIRE_CHECK_MSG(live.report.attempt < live.attempt, "each attempt has a higher number");
  live.report = BeginReport(fleet_.worker(worker), live.attempt, live.report, Now());
  live.report.carry_on = live.carry_on;
  live.report.route = live.ticket.route;
  counters_.carry_ons_inexact += live.report.inexact ? 1 : 0;
  if (live.carry_on) {
    live.recompute_tokens = live.ticket.uncached_tokens;
    pacer_.Started(worker, live.recompute_tokens);
  }
  if (IsSuspect(live)) {
    live.suspect_turn = suspect_turns_.emplace(live.pool(), number).second;
    QUIRE_CHECK_MSG(live.suspect_turn, "suspects run one at a time in a pool");
  }
  QUIRE_CHECK_MSG(live.carry_on || !line_.CarryOnsBlocked(live.pool()),
                  "carry-ons that find no room go before new requests");

  Submit submit = live.MakeSubmit();
  const AttemptKey key{number, live.attempt};
  submit.key = key;
  // A worker refuses fields that it does not know, and this one no answer needs.
  const std::vector<std::string>& offered = fleet_.worker(worker).hello.features;
  if (std::find(offered.begin(), offered.end(), kFeaturePrediction) == offered.end()) {
    submit.prediction_ids = {};
  }
  if (options_.traces_attempts) {
    submit.traceparent = trace::AttemptTraceparent(submit.traceparent, options_.instance.value(),
                                                   number.value(), live.attempt.value());
  }
  if (live.request.deadline != 0) {
    const Micros left = live.request.deadline - Now();
    submit.remaining_ms = static_cast<uint64_t>(std::max<Micros>(1, left / kMicrosPerMilli));
  }
  const uint64_t room = submit.initial_window;
  LinkOf(worker).SendSubmit(std::move(submit), live.ticket.uncached_tokens);
  NoteUnseen(worker);
  if (!live.Windowed()) return;
  // Choices with a larger window than the smallest get the rest by a Grant.
  for (uint32_t choice = 0; choice < live.windows.size(); ++choice) {
    if (live.journal.ended(choice)) continue;
    Window& window = live.windows[choice];
    window.Begin(live.journal.accepted(choice) + room);
    const std::optional<uint64_t> grant = window.Take(window.taken());
    if (grant) LinkOf(worker).SendGrant({key, choice, *grant});
  }
}

// ------------------------------------------------------------------------------------- waiting

void Dispatcher::Wait(LiveDispatch& live, PlaceOutcome outcome) {
  QUIRE_CHECK(!live.running && outcome != PlaceOutcome::kPlaced);
  if (!live.waiting) {
    live.waiting = true;
    line_.Add(live.pool(), live.request.number, live.carry_on);
    const Micros wait = Micros{options_.limits.empty_pool_wait_ms} * kMicrosPerMilli;
    ArmWait(live, live.refused ? Now() : Now() + wait);
    live.nobody_since = 0;
  }
  if (outcome == PlaceOutcome::kBusy) line_.SetBlocked(live.pool(), true);
  if (outcome != PlaceOutcome::kNobody) live.nobody_since = 0;
  if (outcome == PlaceOutcome::kNobody && live.nobody_since == 0) live.nobody_since = Now();
}

void Dispatcher::ArmWait(LiveDispatch& live, Micros due) {
  QUIRE_CHECK(live.wait_timer == 0);
  live.wait_timer = executor_.PostAt(due, [this, number = live.request.number, due] {
    QUIRE_CHECK_MSG(live_.contains(number), "a request that ends stops its timer");
    live_.at(number)->wait_timer = 0;
    WaitOver(number, due);
    if (!events_.empty()) events_.Wake();
  });
}

// It has failed when no worker was there for the whole wait. Time by which this timer ran late is
// this process's own delay: frames of a worker that returned meanwhile have not been read yet.
void Dispatcher::WaitOver(RequestNumber request, Micros due) {
  LiveDispatch& live = *live_.at(request);
  if (live.refused) {
    Fail(live, ApiError(*live.refused));
    return;
  }
  const Micros now = Now();
  const Micros wait = Micros{options_.limits.empty_pool_wait_ms} * kMicrosPerMilli;
  if (live.nobody_since == 0 && (live.carry_on || !line_.Blocked(live.pool()))) {
    const PlaceOutcome outcome = Place(live);
    if (outcome == PlaceOutcome::kPlaced) return;
    Wait(live, outcome);
  } else if (live.nobody_since != 0) {
    live.nobody_since = std::min(now, live.nobody_since + (now - due));
  }
  if (live.nobody_since != 0 && now - live.nobody_since >= wait) {
    Fail(live, NoWorkerError(live.request.model_name, live.journal.AnyAccepted()));
    return;
  }
  ArmWait(live, (live.nobody_since == 0 ? now : live.nobody_since) + wait);
}

void Dispatcher::StopWaiting(LiveDispatch& live) {
  if (live.wait_timer != 0) executor_.Cancel(live.wait_timer);
  live.wait_timer = 0;
  if (live.waiting) line_.Remove(live.pool(), live.request.number);
  live.waiting = false;
}

void Dispatcher::TryWaiting() {
  for (const std::string& pool : line_.Pools()) {
    line_.SetBlocked(pool, false);
    if (TryPool(pool)) line_.SetBlocked(pool, true);
  }
}

// Resumed requests first, then new ones, each in order of age. A request that finds no room makes
// those after it wait too, unless they need something else. True: some request found no room.
bool Dispatcher::TryPool(const std::string& pool) {
  bool blocked = false;
  // Numerics and adapters whose workers have no room for resumed requests.
  std::set<std::pair<std::string, std::string>> full;
  for (const RequestNumber number : line_.CarryOns(pool)) {
    LiveDispatch& live = *live_.at(number);
    const std::pair wants(live.OutputsFrom(), live.request.submit.adapter);
    if (full.contains(wants)) continue;
    const PlaceOutcome outcome = Place(live);
    if (outcome == PlaceOutcome::kPlaced) continue;
    Wait(live, outcome);
    if (outcome != PlaceOutcome::kBusy) continue;
    blocked = true;
    if (live.excluded.empty()) full.insert(wants);
  }
  line_.SetCarryOnsBlocked(pool, blocked);
  if (blocked) return true;
  for (const RequestNumber number : line_.Fresh(pool)) {
    LiveDispatch& live = *live_.at(number);
    const PlaceOutcome outcome = Place(live);
    if (outcome == PlaceOutcome::kPlaced) continue;
    Wait(live, outcome);
    if (outcome != PlaceOutcome::kBusy) continue;
    blocked = true;
    // Those behind it may find room where its adapter is not held.
    if (live.excluded.empty() && live.request.submit.adapter.empty()) break;
  }
  return blocked;
}

void Dispatcher::CheckInvariants() const {
  fleet_.CheckInvariants();
  placement_.index().CheckInvariants();
  for (size_t i = 0; i < at_.size(); ++i) {
    if (at_[i].link == nullptr) continue;
    const WorkerView& shown = fleet_.view(WorkerIndex(static_cast<uint32_t>(i)));
    QUIRE_CHECK_MSG(shown.unseen_submits == at_[i].link->UnseenSubmits() &&
                        shown.unseen_tokens == at_[i].link->UnseenTokens(),
                    "what is on its way to a worker is known");
  }
  size_t running = 0;
  std::vector<uint64_t> recompute(at_.size(), 0);
  for (const auto& [number, live] : live_) {
    QUIRE_CHECK(live->request.number == number);
    QUIRE_CHECK(!live->journal.AllEnded());
    QUIRE_CHECK_MSG(live->running != live->waiting, "a live request runs or waits");
    QUIRE_CHECK(live->waiting == line_.Contains(live->pool(), number));
    QUIRE_CHECK(live->waiting == (live->wait_timer != 0));
    QUIRE_CHECK(!live->suspect_turn || suspect_turns_.at(live->pool()) == number);
    QUIRE_CHECK(live->running || live->recompute_tokens == 0);
    if (live->running) {
      QUIRE_CHECK(at_[live->worker.value()].running.contains(number));
      recompute[live->worker.value()] += live->recompute_tokens;
    }
    running += live->running ? 1 : 0;
  }
  size_t listed = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    listed += at_[i].running.size();
    QUIRE_CHECK(fleet_.workers()[i].live_attempts == at_[i].running.size());
    const WorkerIndex worker(static_cast<uint32_t>(i));
    QUIRE_CHECK_MSG(pacer_.in_flight(worker) == recompute[i], "recompute is given back");
  }
  QUIRE_CHECK(listed == running);
  for (const auto& [pool, number] : suspect_turns_) {
    QUIRE_CHECK(live_.contains(number) && live_.at(number)->suspect_turn);
  }
  QUIRE_CHECK(ledger_.remembered() <= options_.limits.max_suspect_prompts);
  QUIRE_CHECK(!live_.empty() || ledger_.known() == ledger_.remembered());
}

}  // namespace quire

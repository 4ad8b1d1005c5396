#include "router/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/wire_features.h"
#include "router/dispatch/refusal.h"

namespace quire {
namespace {

std::vector<std::string> Features(const Submit& submit, const Journal& journal) {
  std::vector<std::string> features = RequiredFeatures(submit.sampling, journal.choice_count());
  if (journal.TotalOutputs() > 0) features.emplace_back(kFeatureResume);
  return features;
}

const Policy& PolicyOf(const DispatchOptions& options) {
  QUIRE_CHECK_MSG(options.policy != nullptr, "a dispatcher has a routing policy");
  return *options.policy;
}

}  // namespace

Dispatcher::Live::Live(DispatchRequest r, uint32_t window_size)
    : request(std::move(r)),
      journal(std::move(request.submit.choices),
              static_cast<uint64_t>(std::max(0, request.submit.sampling.max_tokens))) {
  request.submit.choices.clear();
  const size_t prompt = request.submit.prompt_ids.size();
  const bool scores = request.submit.sampling.prompt_logprobs > 0 && prompt > 0;
  journal.ExpectPrompt(scores ? static_cast<uint32_t>(prompt - 1) : 0);
  for (uint32_t choice = 0; choice < journal.choice_count(); ++choice) {
    windows.emplace_back(window_size).Take(journal.accepted(choice));
  }
}

Dispatcher::Dispatcher(DispatchOptions options, Dialer& dialer, Executor& executor, Rng& rng,
                       DispatchListener& listener)
    : options_(std::move(options)),
      dialer_(dialer),
      executor_(executor),
      rng_(rng),
      listener_(listener),
      fleet_(options_.limits),
      placement_(PolicyOf(options_), options_.limits, rng) {}

Dispatcher::~Dispatcher() {
  for (auto& [number, live] : live_) StopWaiting(*live);
}

Link& Dispatcher::LinkOf(WorkerIndex worker) {
  QUIRE_CHECK(worker.value() < links_.size() && links_[worker.value()] != nullptr);
  return *links_[worker.value()];
}

Window& Dispatcher::WindowOf(Live& live, uint32_t choice) {
  QUIRE_CHECK(choice < live.windows.size());
  return live.windows[choice];
}

// ------------------------------------------------------------------------------- from the pipeline

void Dispatcher::Start(DispatchRequest request) {
  const RequestNumber number = request.number;
  auto [it, inserted] = live_.emplace(
      number, std::make_unique<Live>(std::move(request), options_.limits.window_tokens));
  QUIRE_CHECK_MSG(inserted, "request numbers are unique");
  QUIRE_CHECK_MSG(!it->second->journal.AllEnded(), "a request starts with a choice to go on with");
  if (!Place(*it->second)) Wait(*it->second);
}

void Dispatcher::Cancel(RequestNumber request) {
  const auto it = live_.find(request);
  if (it == live_.end()) return;
  Abandon(*it->second, AttemptEnd::kCancelled, /*tell_worker=*/true);
  Forget(*it->second);
}

void Dispatcher::FinishChoice(RequestNumber request, uint32_t choice, EndReason reason,
                              uint64_t output_count) {
  const auto it = live_.find(request);
  if (it == live_.end()) return;
  Live& live = *it->second;
  live.journal.End(choice, output_count);
  if (live.running && LinkOf(live.worker).up()) {
    const AttemptKey key{request, live.attempt};
    LinkOf(live.worker).SendFinish({key, choice, reason, static_cast<uint32_t>(output_count)});
  }
  if (!live.journal.AllEnded()) return;
  Abandon(live, AttemptEnd::kFinished, /*tell_worker=*/false);
  Forget(live);
}

void Dispatcher::Taken(RequestNumber request, uint32_t choice, uint64_t index) {
  const auto it = live_.find(request);
  if (it == live_.end() || choice >= it->second->windows.size()) return;
  Live& live = *it->second;
  const uint64_t taken = std::min(index, live.journal.accepted(choice));
  const std::optional<uint64_t> grant = WindowOf(live, choice).Take(taken);
  if (!grant || !live.Windowed() || !live.running || live.journal.ended(choice)) return;
  const AttemptKey key{request, live.attempt};
  if (LinkOf(live.worker).up()) LinkOf(live.worker).SendGrant({key, choice, *grant});
}

// ------------------------------------------------------------------------------------- placing

bool Dispatcher::Place(Live& live) {
  QUIRE_CHECK_MSG(!live.running, "one attempt at a time");
  const std::optional<RouteChoice> choice =
      placement_.Choose(ViewOf(live.request.submit.model_id),
                        {live.request.submit, live.journal, live.excluded,
                         Features(live.request.submit, live.journal), live.request.session},
                        live.ticket);
  if (!choice) return false;
  StopWaiting(live);
  Send(live, choice->worker);
  return true;
}

void Dispatcher::Send(Live& live, WorkerIndex worker) {
  QUIRE_CHECK(LinkOf(worker).up());
  live.attempt = Attempt(live.attempt.value() + 1);
  live.running = true;
  live.answered = false;
  live.worker = worker;
  running_[worker.value()].insert(live.request.number);
  fleet_.AttemptStarted(worker);
  ++counters_.attempts;
  live.report =
      BeginReport(fleet_.worker(worker), live.attempt, live.report, executor_.clock().Now());

  Submit submit = live.request.submit;
  submit.key = {live.request.number, live.attempt};
  submit.choices = live.journal.choices();
  submit.required_features = Features(live.request.submit, live.journal);
  if (live.request.deadline != 0) {
    const Micros left = live.request.deadline - executor_.clock().Now();
    submit.remaining_ms = static_cast<uint64_t>(std::max<Micros>(1, left / kMicrosPerMilli));
  }
  // One number opens the windows of all choices; those that have more room get it by a Grant.
  uint64_t room = options_.limits.window_tokens;
  for (uint32_t choice = 0; choice < live.windows.size(); ++choice) {
    if (live.journal.ended(choice)) continue;
    room = std::min(room, live.windows[choice].Room(live.journal.accepted(choice)));
  }
  QUIRE_CHECK(room > 0);
  submit.initial_window = live.Windowed() ? static_cast<uint32_t>(room) : 0;
  const AttemptKey key = submit.key;
  LinkOf(worker).SendSubmit(std::move(submit), live.ticket.uncached_tokens);
  if (!live.Windowed()) return;
  for (uint32_t choice = 0; choice < live.windows.size(); ++choice) {
    if (live.journal.ended(choice)) continue;
    Window& window = live.windows[choice];
    window.Begin(live.journal.accepted(choice) + room);
    const std::optional<uint64_t> grant = window.Take(window.taken());
    if (grant) LinkOf(worker).SendGrant({key, choice, *grant});
  }
}

void Dispatcher::Wait(Live& live) {
  if (live.waiting) return;
  QUIRE_CHECK(!live.running && live.wait_timer == 0);
  live.waiting = true;
  const RequestNumber number = live.request.number;
  waiting_.insert(number);
  const Micros due = executor_.clock().Now() +
                     static_cast<Micros>(options_.limits.empty_pool_wait_ms) * kMicrosPerMilli;
  live.wait_timer = executor_.PostAt(due, [this, number] {
    const auto it = live_.find(number);
    QUIRE_CHECK_MSG(it != live_.end(), "a request that ends stops its timer");
    it->second->wait_timer = 0;
    Fail(*it->second,
         NoWorkerError(it->second->request.model_name, it->second->journal.AnyAccepted()));
  });
}

void Dispatcher::StopWaiting(Live& live) {
  if (live.wait_timer != 0) executor_.Cancel(live.wait_timer);
  live.wait_timer = 0;
  live.waiting = false;
  waiting_.erase(live.request.number);
}

void Dispatcher::TryWaiting() {
  if (waiting_.empty()) return;
  const std::vector<RequestNumber> numbers(waiting_.begin(), waiting_.end());
  std::set<std::string> full;  // models for which nobody has room: no need to ask for each request
  for (const RequestNumber number : numbers) {
    const auto it = live_.find(number);
    QUIRE_CHECK_MSG(it != live_.end() && it->second->waiting, "only live requests wait");
    Live& live = *it->second;
    const std::string& model_id = live.request.submit.model_id;
    if (live.excluded.empty() && full.contains(model_id)) continue;
    if (!Place(live) && live.excluded.empty()) full.insert(model_id);
  }
}

void Dispatcher::NextAttempt(Live& live, const ApiError& error, bool may_wait) {
  QUIRE_CHECK(!live.running);
  const bool resumes = live.journal.AnyAccepted();
  uint32_t& count = resumes ? live.carry_ons : live.placement_retries;
  const uint32_t limit =
      resumes ? options_.limits.max_carry_ons : options_.limits.max_placement_retries;
  const bool too_long = live.journal.TotalOutputs() > kMaxResumedIds;
  if (count >= limit || too_long || (resumes && !options_.carry_on)) {
    Fail(live, error);
    return;
  }
  ++count;
  ++(resumes ? counters_.carry_ons : counters_.placement_retries);
  if (Place(live)) return;
  if (may_wait) {
    Wait(live);
  } else {
    Fail(live, error);
  }
}

void Dispatcher::LoseAttemptsOf(WorkerIndex worker, AttemptEnd end) {
  const std::set<RequestNumber> numbers = running_[worker.value()];
  for (const RequestNumber number : numbers) {
    const auto it = live_.find(number);
    if (it == live_.end() || !it->second->running || it->second->worker != worker) continue;
    Live& live = *it->second;
    Abandon(live, end, /*tell_worker=*/true);
    live.excluded.push_back(worker);
    NextAttempt(live, NoWorkerError(live.request.model_name, live.journal.AnyAccepted()),
                /*may_wait=*/true);
  }
  QUIRE_CHECK_MSG(running_[worker.value()].empty(), "a lost worker runs nothing");
}

void Dispatcher::Abandon(Live& live, AttemptEnd end, bool tell_worker) {
  if (!live.running) return;
  const RequestNumber number = live.request.number;
  QUIRE_CHECK(running_[live.worker.value()].erase(number) == 1);
  fleet_.AttemptEnded(live.worker, live.answered);
  live.running = false;
  live.ticket = {};  // the next attempt has more to look up
  if (tell_worker && LinkOf(live.worker).up()) {
    LinkOf(live.worker).SendCancel({{number, live.attempt}, false, 0});
  }
  live.report.end = end;
  live.report.over_at = executor_.clock().Now();
  listener_.OnAttemptOver(number, live.report);
}

void Dispatcher::Fail(Live& live, const ApiError& error) {
  QUIRE_CHECK(!live.running);
  const RequestNumber number = live.request.number;
  const ApiError copy = error;
  Forget(live);
  listener_.OnRequestFailed(number, copy);
}

void Dispatcher::Forget(Live& live) {
  QUIRE_CHECK(!live.running);
  StopWaiting(live);
  QUIRE_CHECK(live_.erase(live.request.number) == 1);
}

void Dispatcher::Answered(Live& live) {
  if (live.answered) return;
  QUIRE_CHECK(live.running);
  live.answered = true;
  fleet_.AttemptAnswered(live.worker);
}

// ------------------------------------------------------------------------------- from the links

void Dispatcher::OnLinkUp(WorkerIndex worker, const WorkerHello& hello) {
  // Whether it may be used shows in its phase, and why not in its refusal.
  const absl::Status usable = fleet_.Attached(worker, hello, executor_.clock().UnixSeconds());
  QUIRE_CHECK(usable.ok() || fleet_.worker(worker).phase == WorkerPhase::kRefused);
  for (const RequestNumber number : waiting_) {
    std::erase(live_.at(number)->excluded, worker);  // it starts anew
  }
  if (usable.ok() && options_.policy->wants_caches) {
    placement_.index().Greeted(worker, hello, executor_.clock().Now());
    AskForSnapshots();
  }
  listener_.OnFleetChanged(worker);
}

void Dispatcher::OnLinkDown(WorkerIndex worker, LinkDownReason, const absl::Status& why) {
  if (fleet_.worker(worker).attached) ++counters_.links_lost;
  placement_.index().Lost(worker);
  fleet_.Detached(worker, StatusMessage(why).substr(0, kMaxHelloStringBytes));
  LoseAttemptsOf(worker, AttemptEnd::kLost);
  listener_.OnFleetChanged(worker);
}

void Dispatcher::OnDraining(WorkerIndex worker, uint64_t) {
  fleet_.Draining(worker);
  listener_.OnFleetChanged(worker);
}

void Dispatcher::OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) {
  placement_.index().Snapshot(worker,
                              {chunk.snapshot_number, chunk.cache_kind, chunk.hashes, chunk.last},
                              executor_.clock().Now());
  AskForSnapshots();
}

void Dispatcher::AskForSnapshots() {
  while (const auto ask = placement_.index().NextAsk(executor_.clock().Now())) {
    QUIRE_CHECK_MSG(LinkOf(ask->worker).up(), "a worker without a link is not followed");
    LinkOf(ask->worker).SendSnapshotRequest(ask->number);
  }
}

void Dispatcher::OnStep(WorkerIndex worker, const StepFrame& step) {
  const WorkerPhase before = fleet_.worker(worker).phase;
  const Micros now = executor_.clock().Now();
  fleet_.Stepped(worker, step, now);
  placement_.index().Stepped(worker, step, now);
  for (const Admitted& admitted : step.admitted) HandleAdmitted(worker, admitted);
  for (const PromptLogprobs& part : step.prompt_logprobs) HandlePrompt(worker, part);
  for (const Output& output : step.outputs) HandleOutput(worker, output);
  for (const Ended& ended : step.ended) HandleEnded(worker, ended);
  for (const Refused& refused : step.refused) HandleRefused(worker, refused);
  const WorkerPhase after = fleet_.worker(worker).phase;
  if (after == WorkerPhase::kStuck) LoseAttemptsOf(worker, AttemptEnd::kStuck);
  if (after != before) listener_.OnFleetChanged(worker);
  AskForSnapshots();
  TryWaiting();
  listener_.OnRoom();
}

Dispatcher::Live* Dispatcher::FindCurrent(WorkerIndex worker, const AttemptKey& key) {
  const auto it = live_.find(key.request);
  if (it == live_.end()) return nullptr;
  Live& live = *it->second;
  const bool current = live.running && live.worker == worker && live.attempt == key.attempt;
  return current ? &live : nullptr;
}

void Dispatcher::HandleAdmitted(WorkerIndex worker, const Admitted& admitted) {
  Live* live = FindCurrent(worker, admitted.key);
  if (live == nullptr) return;
  Answered(*live);
  live->report.admitted = true;
  live->report.cached_tokens = admitted.cached_tokens;
  placement_.OnAdmitted(worker, admitted, live->ticket);
  listener_.OnAdmitted(admitted.key.request, fleet_.worker(worker), admitted.cached_tokens);
}

void Dispatcher::HandlePrompt(WorkerIndex worker, const PromptLogprobs& part) {
  Live* live = FindCurrent(worker, part.key);
  if (live == nullptr) return;
  Answered(*live);
  const uint32_t count = static_cast<uint32_t>(part.logprobs.size());
  const bool shaped =
      part.ranks.size() == count &&
      (live->request.submit.sampling.prompt_logprobs <= 1 || part.top.size() == count);
  const std::optional<uint32_t> known =
      shaped ? live->journal.AcceptPrompt(part.first_position, count) : std::nullopt;
  if (!known) return HandleBroken(*live);
  // What is known is not asked for again: a worker that carries on need not compute it.
  if (live->journal.PromptComplete()) live->request.submit.sampling.prompt_logprobs = 0;
  if (*known == count) return;
  if (*known == 0) return listener_.OnPromptLogprobs(part.key.request, part);
  PromptLogprobs rest = part;
  rest.first_position += *known;
  rest.logprobs.erase(rest.logprobs.begin(), rest.logprobs.begin() + *known);
  rest.ranks.erase(rest.ranks.begin(), rest.ranks.begin() + *known);
  if (!rest.top.empty()) rest.top.erase(rest.top.begin(), rest.top.begin() + *known);
  listener_.OnPromptLogprobs(part.key.request, rest);
}

void Dispatcher::HandleBroken(Live& live) {
  ++counters_.attempts_broken;
  const WorkerIndex worker = live.worker;
  Abandon(live, AttemptEnd::kBroken, /*tell_worker=*/true);
  live.excluded.push_back(worker);
  NextAttempt(live, {ApiCode::kInternal, "a worker broke the order of its outputs", "", 0},
              /*may_wait=*/false);
}

void Dispatcher::HandleOutput(WorkerIndex worker, const Output& output) {
  Live* live = FindCurrent(worker, output.key);
  if (live == nullptr) {
    ++counters_.outputs_stale;
    return;
  }
  Answered(*live);
  if (!live->journal.PromptComplete()) return HandleBroken(*live);
  const uint64_t granted = live->Windowed() && output.choice < live->windows.size()
                               ? live->windows[output.choice].granted()
                               : 0;
  switch (live->journal.Accept(output.choice, output.first_index, output.ids, granted)) {
    case Verdict::kEnded:
      ++counters_.outputs_late;
      return;
    case Verdict::kDuplicate:
      ++counters_.outputs_duplicate;
      return;
    case Verdict::kGap:
    case Verdict::kOverrun:
    case Verdict::kNoChoice:
      return HandleBroken(*live);
    case Verdict::kAccepted:
      break;
  }
  counters_.tokens_accepted += output.ids.size();
  live->report.accepted_tokens += output.ids.size();
  if (live->request.router_is_taker) {
    Taken(output.key.request, output.choice, live->journal.accepted(output.choice));
  }
  listener_.OnOutput(output.key.request, output);
}

void Dispatcher::HandleEnded(WorkerIndex worker, const Ended& ended) {
  Live* live = FindCurrent(worker, ended.key);
  if (live == nullptr || ended.choice >= live->journal.choice_count()) return;
  if (live->journal.ended(ended.choice)) return;  // this router ended it first
  Answered(*live);
  if (ended.reason == EndReason::kStop || ended.reason == EndReason::kLength) {
    if (!live->journal.PromptComplete()) return HandleBroken(*live);
    live->journal.End(ended.choice, live->journal.accepted(ended.choice));
    if (live->journal.AllEnded()) {
      Abandon(*live, AttemptEnd::kFinished, /*tell_worker=*/false);
      Forget(*live);
    }
    listener_.OnChoiceOver(ended.key.request, ended);
    return;
  }
  Abandon(*live, AttemptEndOf(ended.reason), /*tell_worker=*/true);
  const ApiError error = ErrorOfEnd(ended);
  if (!WorthAnotherAttempt(ended)) {
    Fail(*live, error);
    return;
  }
  // A worker that lost sight of this router is as good as any other; one that drains or fails is
  // not.
  if (ended.reason != EndReason::kRouterLost) live->excluded.push_back(worker);
  NextAttempt(*live, error, /*may_wait=*/true);
}

void Dispatcher::HandleRefused(WorkerIndex worker, const Refused& refused) {
  Live* live = FindCurrent(worker, refused.key);
  if (live == nullptr) return;
  Answered(*live);
  Abandon(*live, AttemptEnd::kRefused, /*tell_worker=*/false);
  const ApiError error = ErrorOfRefusal(refused);
  if (!WorthAnotherWorker(refused.code)) {
    Fail(*live, error);
    return;
  }
  live->excluded.push_back(worker);
  NextAttempt(*live, error, /*may_wait=*/false);
}

void Dispatcher::CheckInvariants() const {
  fleet_.CheckInvariants();
  placement_.index().CheckInvariants();
  size_t running = 0;
  for (const auto& [number, live] : live_) {
    QUIRE_CHECK(live->request.number == number);
    QUIRE_CHECK(!live->journal.AllEnded());
    QUIRE_CHECK_MSG(live->running != live->waiting, "a live request runs or waits");
    QUIRE_CHECK(live->waiting == waiting_.contains(number));
    QUIRE_CHECK(live->waiting == (live->wait_timer != 0));
    if (live->running) QUIRE_CHECK(running_[live->worker.value()].contains(number));
    running += live->running ? 1 : 0;
  }
  size_t listed = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    listed += running_[i].size();
    QUIRE_CHECK(fleet_.workers()[i].live_attempts == running_[i].size());
  }
  QUIRE_CHECK(listed == running);
}

}  // namespace quire

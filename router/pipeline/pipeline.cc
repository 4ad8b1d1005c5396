// The router in one file: what happens to a request, from top to bottom.
//
//   Start      takes a place in this router (admission); then, in a separate turn of the loop,
//   Begin      finds the pool that serves the model, checks sampling and the client's fields,
//              then renders and tokenises in the background
//   Enqueue    checks lengths; the request waits for its turn until a worker has room
//   Launch     makes a stream per choice and a Submit, which the dispatcher places, and places
//              again if necessary
//   Append     accepted tokens become text, thoughts and calls, stop strings end a choice, deltas
//              go to the sink
//   EndChoice  after the last choice: OnFinished, and nothing of the request remains
//
// Invariants:
//  1. A sink may cancel any request. The table of requests shares each with the turn of the loop
//     that works on it: a request that ends meanwhile is `over`, and its sink hears no more of it.
//  2. Each request that Start named ends by exactly one of OnFinished, OnError and Cancel, which
//     release its place.
#include "router/pipeline/pipeline.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/runtime/timer.h"
#include "router/admission/admission.h"
#include "router/dispatch/dispatcher.h"
#include "router/pipeline/adapter_service.h"
#include "router/pipeline/make_pipeline.h"
#include "router/pipeline/model_directory.h"
#include "router/pipeline/operator_views.h"
#include "router/pipeline/prompt_work.h"
#include "router/pipeline/request.h"
#include "router/pipeline/request_lines.h"
#include "router/pipeline/request_memory.h"
#include "router/pipeline/router_metrics.h"
#include "router/pipeline/tokenize_service.h"
#include "router/pipeline/worker_roster.h"

namespace quire {
namespace {

class RouterPipeline final : public Pipeline {
 public:
  RouterPipeline(PipelineOptions options, const PipelineRuntime& runtime);
  ~RouterPipeline() override;
  absl::Status AddWorkers();

  RequestId Start(GenerateRequest ask, ResponseSink* sink) override;
  void Cancel(RequestId id) override;
  void Taken(RequestId id, uint32_t choice, uint64_t index) override {
    dispatcher_.Taken(RequestNumber(id), choice, index);
  }
  void WorkersNamed(const std::string& source, std::vector<std::string> targets) override {
    roster_.Named(source, std::move(targets));
  }
  void UseSaltKey(const std::string& key) override { salts_ = SaltBook(key); }
  std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile* tenant) override {
    return memory_.Of(tenant);
  }
  std::vector<ModelEntry> Models() const override { return models_.Entries(); }
  bool Serves(const std::string& name) const override { return models_.Serves(name); }
  Result<std::shared_ptr<const ModelText>> TextOf(const std::string& name) override {
    return models_.TextOf(name);
  }
  void Tokenize(TokenizeAsk ask, TokenizeDone done) override {
    TokenizeService::Place place = PlaceOf(ask.by);  // before `ask` is moved
    tokenize_.Tokenize(std::move(place), std::move(ask), std::move(done));
  }
  void Detokenize(TextAsk by, std::vector<TokenId> ids, DetokenizeDone done) override {
    tokenize_.Detokenize(PlaceOf(by), by, std::move(ids), std::move(done));
  }
  bool Ready() const override {
    return !admission_.draining() && (options_.ready_without_workers || models_.AnyReady());
  }
  // A ready worker reported so lately; no step, an idle probe included, is past its limit.
  bool Healthy() const override { return models_.AnyReady(); }
  void StartDraining() override { admission_.StartDraining(); }
  void EndAll(const ApiError& error) override;
  size_t LiveRequests() const override { return requests_.size(); }
  trace::RequestTrace TraceOf(RequestId id) const override { return TraceIn(requests_, id); }
  std::vector<WorkerStatus> Workers() const override { return StatusesOf(dispatcher_); }
  Result<std::unique_ptr<AdapterTask>> OrderAdapters(AdapterAsk ask, AdapterDone done) override {
    return OrderAdaptersOf(dispatcher_, std::move(ask), std::move(done));
  }
  std::vector<RunningRequest> Running(std::string_view id) const override {
    return RunningOf(requests_, dispatcher_, id, Now());
  }
  void CheckInvariants() const override;

 private:
  // The life of a request.
  void Begin(LiveRequest& request);
  void AwaitModel(LiveRequest& request, const ApiError& error);
  void BeginHeld();
  void Enqueue(LiveRequest& request, Result<PromptTokens> prompt);
  void LaunchNext();
  void Launch(LiveRequest& request);
  void DrainEvents();
  void On(const AttemptAdmitted& event) {
    NoteAdmitted(dispatcher_.fleet().worker(event.worker), event.cached_tokens,
                 *Dispatched(event.request));
  }
  void On(const AttemptOver& event) { Note(*event.report, *Dispatched(event.request)); }
  void On(const PromptScored& event) {
    TakePromptLogprobs(*Dispatched(event.part->key.request), *event.part);
  }
  void On(const OutputAccepted& event) {
    const SharedRequest request = Dispatched(event.output->key.request);
    if (EnsureStarted(*request)) Append(*request, *event.output);
  }
  void On(const ChoiceOver& event) {
    const SharedRequest request = Dispatched(event.ended->key.request);
    if (EnsureStarted(*request)) CloseChoice(*request, *event.ended);
  }
  void On(const RequestFailed& event) {
    if (const SharedRequest request = FindRequest(requests_, event.request.value())) {
      Fail(*request, InClientsWords(*request, *event.error));
    }
  }
  void On(const FleetChanged& event);
  void On(const RoomMade&) { LaunchNext(); }
  // False: the request is over.
  bool EnsureStarted(LiveRequest& request);
  void Append(LiveRequest& request, const Output& output);
  // False: the sink has cancelled the request.
  bool Deliver(LiveRequest& request, const Deltas& deltas);
  void CloseChoice(LiveRequest& request, const Ended& ended);
  void EndChoice(LiveRequest& request, const ChoiceEnd& end);
  bool IsQueued(LiveRequest& request, const QueueResult& result);
  void Reject(LiveRequest& request, const Refusal& refusal);
  void Fail(LiveRequest& request, ApiError error);  // by value: it may be a part of the request
  void Release(LiveRequest& request, RequestEnd end);
  void Note(const AttemptReport& report, LiveRequest& request) {
    NoteAttempt(report, request, runtime_.logger);
  }
  SharedRequest Dispatched(RequestNumber number) const { return requests_.at(number.value()); }

  TokenizeService::Place PlaceOf(const TextAsk& by) {
    return {++last_id_, memory_.Of(by.tenant.get()), models_.Find(by.model)};
  }
  void WatchEmptyPools();
  void Housekeep();
  Micros Now() const { return executor_.clock().Now(); }

  const PipelineOptions options_;
  const PipelineRuntime runtime_;
  const GenerationSettings no_defaults_;
  SaltBook salts_;
  Executor& executor_;
  RouterMetrics metrics_;
  Admission admission_;
  RequestMemory memory_;
  Dispatcher dispatcher_;
  ModelDirectory models_;
  TokenizeService tokenize_;
  WorkerRoster roster_;
  RequestTable requests_;
  RequestId last_id_ = 0;
  uint64_t models_seen_ = 0;  // ModelDirectory::changes when held requests were last begun
  Timer housekeeping_{executor_}, empty_pools_{executor_};
  Micros empty_pools_due_ = 0;
};

RouterPipeline::RouterPipeline(PipelineOptions options, const PipelineRuntime& runtime)
    : options_(std::move(options)),
      runtime_(runtime),
      salts_(options_.salt_key),
      executor_(runtime.executor),
      metrics_(runtime.metrics, std::string(options_.policy->name), options_.ready_without_workers),
      admission_(options_.limits),
      memory_(options_.memory,
              {options_.max_tenant_memory_bytes, options_.max_waiting_prompt_bytes}, admission_),
      dispatcher_(options_, runtime.dialer, runtime.executor, runtime.rng,
                  [this] { DrainEvents(); }),
      models_(options_, runtime, dispatcher_),
      tokenize_(options_.limits,
                {runtime.executor, runtime.background, admission_, runtime.metrics}),
      roster_(options_.limits, dispatcher_, runtime) {
  Housekeep();
}

RouterPipeline::~RouterPipeline() {
  while (!requests_.empty()) Cancel(requests_.begin()->first);  // each has its record
}

// ----------------------------------------------------------------- the life of a request

RequestId RouterPipeline::Start(GenerateRequest ask, ResponseSink* sink) {
  QUIRE_CHECK(sink != nullptr);
  const RequestId id = ++last_id_;
  const auto made = requests_.try_emplace(id, std::make_shared<LiveRequest>()).first;
  LiveRequest& request = *made->second;
  request.id = id;
  request.ask = std::move(ask);
  request.ask.priority = PriorityOf(request.ask);
  request.sink = sink;
  BeginRecord(options_.sampler, options_.instance, RequestNumber(id), request);
  request.arrived = Now();
  auto refusal = memory_.Hold(request);
  if (!refusal) refusal = admission_.Enter(id, request.ask.tenant, request.ask.priority, Now());
  if (refusal) request.refused = std::move(refusal->error);
  request.rejected = refusal.has_value();
  metrics_.LiveRequests(requests_.size());
  request.deadline = DeadlineOf(request);
  if (request.deadline != 0) {
    request.deadline_timer = executor_.PostAt(
        request.deadline, Later(request, [this](auto& live) {
          live.deadline_timer = 0;
          Fail(live, {ApiCode::kDeadlineExceeded, "the request's deadline passed", "", 0});
        }));
  }
  executor_.Post(Later(request, [this](LiveRequest& live) { Begin(live); }));
  return id;
}

void RouterPipeline::Begin(LiveRequest& request) {
  if (request.refused) return Fail(request, *request.refused);
  const GenerateRequest& ask = request.ask;
  const uint64_t key = ask.session.empty() ? runtime_.rng.Next() : RendezvousKey(ask.session);
  const std::string began_by = ask.resume ? ask.resume->model_id : "";
  Result<ServedModel> model = models_.Find(ask.model, key, began_by);
  if (!model.ok()) return AwaitModel(request, model.error());
  request.model = std::move(model.value());
  if (const auto error = CheckRequest(ask, request.model)) return Fail(request, *error);
  // A client that resumes states what the first router drew and when.
  request.created = ask.resume ? ask.resume->created : executor_.clock().UnixSeconds();
  const uint64_t seed = ask.resume ? ask.resume->seed : runtime_.rng.Next();
  const GenerationSettings& defaults =
      options_.generation_defaults ? request.model.text->generation() : no_defaults_;
  Result<SamplingParams> sampling =
      ResolveSampling(ask.sampling, defaults, request.model.facts, options_.limits, seed);
  if (!sampling.ok()) return Fail(request, sampling.error());
  request.sampling = std::move(sampling.value());
  const bool queued =
      TokenizePrompt(request, options_.limits, runtime_.background,
                     Later(request, [this](LiveRequest& live, Result<PromptTokens> prompt) {
                       Enqueue(live, std::move(prompt));
                     }));
  if (!queued)
    Fail(request, {ApiCode::kUnavailable, "too many prompts wait to be tokenised", "", 1000});
}

// A model that no worker serves yet may be about to come; one that no worker ever will is an error.
void RouterPipeline::AwaitModel(LiveRequest& request, const ApiError& error) {
  const Micros since = request.arrived;
  const Micros patience = Micros{options_.limits.empty_pool_wait_ms} * kMicrosPerMilli;
  if (error.code != ApiCode::kUnavailable) return Fail(request, error);
  if (Now() >= since + patience) {
    return Fail(request, models_.NobodyFor(request.ask, request.model));
  }
  if (IsQueued(request, admission_.Hold(request.id, since, Now()))) WatchEmptyPools();
}

void RouterPipeline::BeginHeld() {
  if (models_seen_ == models_.changes()) return;
  models_seen_ = models_.changes();
  for (const QueueEntry* entry : admission_.queue().Entries(kNoModel)) {
    executor_.Post(Later(*requests_.at(entry->id), [this](LiveRequest& live) {
      if (!admission_.held(live.id)) return;
      admission_.Release(live.id);
      Begin(live);
    }));
  }
}

void RouterPipeline::Enqueue(LiveRequest& request, Result<PromptTokens> prompt) {
  if (!prompt.ok()) return Fail(request, prompt.error());
  request.sampling.bad_words = std::move(prompt.value().bad_words);
  request.prompt_text = std::move(prompt.value().echo_text);
  request.prediction_ids = std::move(prompt.value().prediction_ids);
  if (const auto error = TakePlan(std::move(prompt.value().plan), request))
    return Fail(request, *error);
  if (const auto error = FitPrompt(request, std::move(prompt.value().ids), options_.limits)) {
    return Fail(request, *error);
  }
  if (const auto refusal = memory_.HoldTokens(request)) return Reject(request, *refusal);
  if (request.ask.resume) MakeStreams(request);
  request.felt = &metrics_.serving().Streams(request.model.facts.name, request.prompt_ids.size());
  request.need = RoomNeedOf(request);
  request.queued_at = Now();
  if (Complete(request)) return static_cast<void>(EnsureStarted(request));
  const QueueResult result = admission_.Queue(request.id, QueueWishOf(request), Now());
  if (IsQueued(request, result)) LaunchNext();
}

// Requests whose turn it is go to the workers, as long as these have room. A request for something
// that no worker offers goes too: the dispatcher waits for a worker that offers it, and others need
// not wait.
void RouterPipeline::LaunchNext() {
  if (admission_.queue().size() == 0) return;
  BeginHeld();
  for (const std::string& model_id : admission_.queue().Models()) {
    if (model_id == kNoModel) continue;
    while (const std::optional<RequestId> next = admission_.Next(model_id)) {
      const SharedRequest request = requests_.at(*next);
      const Room room = dispatcher_.RoomFor(model_id, request->need);
      if (room == Room::kAhead && !std::exchange(request->held_ahead, true)) metrics_.HeldAhead();
      admission_.PoolEmpty(model_id, room == Room::kEmptyPool, Now());
      if (room != Room::kSome && room != Room::kUnfit) break;
      Launch(*request);
    }
  }
  WatchEmptyPools();
}

void RouterPipeline::Launch(LiveRequest& request) {
  admission_.Launch(request.id, Now());
  request.record.queued_us = Now() - request.queued_at;
  metrics_.Waited(static_cast<double>(Now() - request.queued_at) / kMicrosPerSecond);
  MakeStreams(request);
  DispatchRequest dispatch;
  dispatch.number = RequestNumber(request.id);
  dispatch.submit = MakeSubmit(request, salts_);
  dispatch.model_name = request.model.facts.name;
  dispatch.session = request.ask.session;
  dispatch.deadline = request.deadline;
  dispatch.router_is_taker = !request.ask.streaming;
  dispatcher_.Start(std::move(dispatch));
}

bool RouterPipeline::EnsureStarted(LiveRequest& request) {
  if (request.over || request.started) return !request.over;
  request.started = true;
  NoteStart(request, Now());
  request.sink->OnStarted(StartedOf(request));
  if (request.over) return false;
  const std::vector<Ended> ends = std::move(request.resumed_ends);
  for (const Ended& ended : ends) CloseChoice(request, ended);
  return !request.over;
}

void RouterPipeline::DrainEvents() {
  while (const std::optional<DispatchEvent> event = dispatcher_.NextEvent()) {
    std::visit([this](const auto& what) { On(what); }, *event);
  }
}

void RouterPipeline::Append(LiveRequest& request, const Output& output) {
  NoteOutput(request, output, Now(), metrics_.serving());
  admission_.JournalGrew(request.id, output.ids.size() * sizeof(TokenId));
  ChoiceStream& stream = request.streams.at(output.choice);
  const Deltas deltas = stream.Append(output);
  const bool too_long =
      !request.ask.streaming && stream.text_bytes() > options_.limits.max_response_bytes;
  if (!stream.complete() && !too_long) return static_cast<void>(Deliver(request, deltas));
  Ended ended;
  ended.choice = output.choice;
  ended.reason = stream.complete() ? EndReason::kStop : EndReason::kLength;
  const auto attempt = dispatcher_.FinishChoice(output.key.request, output.choice, ended.reason,
                                                stream.completion_tokens());
  if (attempt) Note(*attempt, request);
  if (!stream.complete()) metrics_.ResponseCut();
  const ChoiceEnd end = ChoiceEndOf(request, ended);
  if (Deliver(request, deltas)) EndChoice(request, end);
}

bool RouterPipeline::Deliver(LiveRequest& request, const Deltas& deltas) {
  for (const Delta& delta : deltas) {
    if (request.over) return false;
    if (!SaysNothing(delta)) request.sink->OnDelta(delta);
  }
  return !request.over;
}

void RouterPipeline::CloseChoice(LiveRequest& request, const Ended& ended) {
  if (request.over) return;
  ChoiceStream& stream = request.streams.at(ended.choice);
  const Deltas rest = stream.complete() ? Deltas() : stream.Finish();
  const ChoiceEnd end = ChoiceEndOf(request, ended);
  if (Deliver(request, rest)) EndChoice(request, end);
}

void RouterPipeline::EndChoice(LiveRequest& request, const ChoiceEnd& end) {
  if (request.over) return;
  QUIRE_CHECK_MSG(!request.ended.at(end.choice), "a choice ends once");
  request.ended[end.choice] = true;
  request.finish_reasons[end.choice] = end.finish_reason;
  metrics_.AnswerRead(request.streams.at(end.choice).limit());
  request.sink->OnChoiceEnd(end);
  if (request.over) return;
  if (std::count(request.ended.begin(), request.ended.end(), false) > 0) return;
  const Usage usage = UsageOf(request);
  Release(request, RequestEnd::kFinished);
  request.sink->OnFinished(usage);
}

// Ends the request that the queue has no place for: the new one, or one that was pushed out for it.
bool RouterPipeline::IsQueued(LiveRequest& request, const QueueResult& result) {
  if (result.refusal) Reject(request, *result.refusal);
  if (result.pushed_out) Reject(*SharedRequest(requests_.at(*result.pushed_out)), result.push_out);
  return !result.refusal;
}

void RouterPipeline::Reject(LiveRequest& request, const Refusal& refusal) {
  request.rejected = true;
  Fail(request, refusal.error);
}

void RouterPipeline::Fail(LiveRequest& request, ApiError error) {
  if (request.over) return;
  request.record.error = error.code;
  Release(request, request.rejected ? RequestEnd::kRejected : RequestEnd::kFailed);
  request.sink->OnError(error);
}

void RouterPipeline::EndAll(const ApiError& error) {
  std::vector<SharedRequest> all;
  for (const auto& [id, request] : requests_) all.push_back(request);
  for (const SharedRequest& request : all) Fail(*request, error);
}

void RouterPipeline::Cancel(RequestId id) {
  const SharedRequest request = FindRequest(requests_, id);
  if (request != nullptr) Release(*request, RequestEnd::kCancelled);
}

void RouterPipeline::Release(LiveRequest& request, RequestEnd end) {
  QUIRE_CHECK_MSG(!std::exchange(request.over, true), "a request ends once");
  const auto attempt = dispatcher_.Cancel(RequestNumber(request.id));  // if one is under way
  if (attempt) Note(*attempt, request);
  if (request.deadline_timer != 0) executor_.Cancel(request.deadline_timer);
  if (request.cancelled != nullptr) *request.cancelled = true;
  admission_.Leave(request.id, TokensTaken(request), Now());
  const RequestRecord record = RecordOf(request, std::move(request.record), end, Now());
  LogEnd(record, runtime_.logger);
  const bool accepted = !request.refused;  // it was admitted, whatever happened then
  metrics_.RequestEnded(record, accepted);
  metrics_.serving().RequestEnded(request.model.facts.name, end, request.started);
  if (accepted && options_.records != nullptr) options_.records->Write(record);
  requests_.erase(request.id);
  metrics_.LiveRequests(requests_.size());
}

void RouterPipeline::On(const FleetChanged& event) {
  models_.Changed(event.worker);
  admission_.SetRouters(dispatcher_.fleet().RoutersAttached());
  LaunchNext();
}

// Requests that find no worker at all wait for one, but not forever.
void RouterPipeline::WatchEmptyPools() {
  const Micros due = admission_.NextExpiry().value_or(0);
  if (due == empty_pools_due_) return;
  empty_pools_.Stop();
  empty_pools_due_ = due;
  if (due == 0) return;
  empty_pools_.Set(due, [this] {
    empty_pools_due_ = 0;
    for (const RequestId id : admission_.Expired(Now())) {
      const SharedRequest request = FindRequest(requests_, id);  // a sink may have cancelled it
      if (request != nullptr) Fail(*request, models_.NobodyFor(request->ask, request->model));
    }
    LaunchNext();
  });
}

void RouterPipeline::Housekeep() {
  roster_.Refresh();
  models_.Refresh();
  admission_.SetRouters(dispatcher_.fleet().RoutersAttached());
  metrics_.Update(dispatcher_, admission_);
  housekeeping_.SetIn(kMicrosPerSecond, [this] { Housekeep(); });
}

void RouterPipeline::CheckInvariants() const {
  dispatcher_.CheckInvariants();
  admission_.CheckInvariants();
  size_t placed = 0;
  for (const auto& [id, request] : requests_) {
    placed += request->refused ? 0 : 1;
    QUIRE_CHECK(request->ended.size() == request->streams.size());
    QUIRE_CHECK(request->refused || request->sink != nullptr);
    QUIRE_CHECK(request->id == id && !request->over);
  }
  QUIRE_CHECK_MSG(placed + tokenize_.live() == admission_.live(),
                  "each live request and each text holds a place, and nothing else does");
  QUIRE_CHECK(dispatcher_.LiveRequests() + admission_.queue().size() <= requests_.size());
}

absl::Status RouterPipeline::AddWorkers() {
  for (const std::string& target : options_.workers) {
    QUIRE_RETURN_IF_ERROR(Annotate(dispatcher_.AddWorker(target), "--worker"));
  }
  roster_.Named("worker", options_.workers);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> MakePipeline(PipelineOptions options,
                                                       const PipelineRuntime& runtime) {
  options.instance = RouterInstance(runtime.rng.Next());
  options.traces_attempts = options.sampler.has_value();
  QUIRE_CHECK_MSG(options.text_factory != nullptr, "main says who reads text bundles");
  auto pipeline = std::make_unique<RouterPipeline>(std::move(options), runtime);
  QUIRE_RETURN_IF_ERROR(pipeline->AddWorkers());
  return std::unique_ptr<Pipeline>(std::move(pipeline));
}

}  // namespace quire

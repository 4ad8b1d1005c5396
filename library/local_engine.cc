#include "library/local_engine.h"

#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "library/events.h"
#include "library/local_worker.h"
#include "library/options.h"
#include "library/outbox.h"
#include "library/quire.h"
#include "router/chat/bundle_text.h"
#include "router/chat/prompt.h"
#include "router/chat/tool_fields.h"
#include "router/http/api_request.h"
#include "router/pipeline/make_pipeline.h"
#include "router/routing/policy.h"
#include "worker/find_device.h"

namespace quire {
namespace {

constexpr int kBackgroundThreads = 2;  // templates and tokens
constexpr Micros kReadyInterval = 2 * kMicrosPerMilli;
constexpr Micros kReadyLimit = 60 * kMicrosPerSecond;
constexpr std::string_view kPolicy = "least-loaded";  // needs to hear nothing of caches

RequestLimits NoHold() { return RequestLimits{}; }

absl::Status StatusOf(const ApiError& error) { return InvalidArgument(error.message); }

}  // namespace

// A request from Submit to its last event. Owner: the loop.
class LocalRequest final : public ResponseSink {
 public:
  // `on_end` runs with the last event.
  LocalRequest(uint64_t number, bool stream, Outbox& outbox, std::function<void()> on_end)
      : number_(number), stream_(stream), outbox_(outbox), on_end_(std::move(on_end)) {}

  RequestId id = 0;  // of the pipeline; 0 once it has ended

  void OnStarted(const Started& started) override {
    AppendStart(started, start_);
    if (stream_) Say("start", std::exchange(start_, ""));
  }
  void OnDelta(const Delta& delta) override {
    if (!stream_) return Join(delta, ChoiceOf(delta.choice));
    std::string members;
    AppendDelta(delta, members);
    Say("delta", members, delta.choice, delta.first_index + delta.ids.size());
  }
  void OnChoiceEnd(const ChoiceEnd& end) override {
    if (!stream_) {
      ChoiceOf(end.choice).end = end;
      return;
    }
    std::string members;
    AppendChoiceEnd(end, members);
    Say("end", members);
  }
  void OnFinished(const Usage& usage) override {
    std::string members = std::move(start_);
    AppendUsage(usage, members);
    if (!stream_) AppendOutputs(choices_, members);
    Say("done", members);
    End();
  }
  void OnError(const ApiError& error) override {
    std::string members;
    AppendError(error, members);
    Say("error", members);
    End();
  }

 private:
  // From here on it cannot be cancelled, although it is known for one more turn of the loop.
  void End() {
    id = 0;
    on_end_();
  }
  ChoiceText& ChoiceOf(uint32_t choice) {
    if (choice >= choices_.size()) choices_.resize(choice + 1);
    return choices_[choice];
  }
  void Say(std::string_view event, std::string_view members, uint32_t choice = 0,
           uint64_t taken = 0) {
    std::string text = "{\"request\":" + std::to_string(number_) + ",\"event\":\"";
    text += event;
    text += '"';
    text += members;
    text += '}';
    outbox_.Push({std::move(text), number_, choice, taken});
  }

  const uint64_t number_;
  const bool stream_;
  Outbox& outbox_;
  const std::function<void()> on_end_;
  std::string start_;  // members of "start", until they are said
  std::vector<ChoiceText> choices_;
};

class LocalEngine::Parts {
 public:
  absl::Status Load(std::string_view options);
  absl::Status Run();
  void Close();

  absl::StatusOr<uint64_t> Submit(std::string_view body, SubmitFlags flags);
  void Cancel(uint64_t number);
  absl::StatusOr<std::string> Poll(int timeout_ms);
  std::string Info() const;
  absl::StatusOr<Prompt> ReadPrompt(std::string_view request) const;
  const ModelText& text() const { return *text_; }
  absl::StatusOr<std::string> Tokenize(std::string_view request) const;

 private:
  void Loop();
  void AwaitReady(Micros until);
  absl::Status TakeRoom(size_t bytes);
  void FreeRoom(size_t bytes) {
    live_.fetch_sub(1);
    live_bytes_.fetch_sub(bytes);
  }
  void Start(uint64_t number, GenerateRequest ask, bool stream, size_t bytes);

  EngineSettings settings_;
  std::unique_ptr<Logger> log_;
  Metrics metrics_;
  RealClock clock_;
  RealRng rng_;  // the loop's
  AsioExecutor executor_;
  ThreadBackground background_{executor_, kBackgroundThreads, QUIRE_MAX_REQUESTS * 2};
  std::unique_ptr<LoadedWorker> loaded_;
  std::unique_ptr<LocalWorker> worker_;
  std::unique_ptr<Pipeline> pipeline_;
  std::shared_ptr<const ModelText> text_;
  std::map<uint64_t, std::unique_ptr<LocalRequest>> requests_;  // the loop's
  std::promise<absl::Status> ready_;
  Outbox outbox_;
  std::atomic<uint64_t> last_number_ = 0;
  std::atomic<int64_t> live_ = 0;  // requests between Submit and their last event
  std::atomic<size_t> live_bytes_ = 0;
  std::mutex closing_;
  std::thread loop_;  // under closing_
};

absl::Status LocalEngine::Parts::Load(std::string_view options) {
  QUIRE_ASSIGN_OR_RETURN(settings_, ReadEngineSettings(options));
  log_ = MakeLogger({.level = settings_.log_level});
  DeviceChoice device;
  StartFailure failure;
  const auto status = [&failure] {
    if (failure.exit_code == kExitBadArguments) return InvalidArgument(failure.message);
    return absl::NotFoundError(AbslView(failure.message));
  };
  if (!FindDevice(settings_.worker, *log_, device, failure)) return status();
  WorkerLoader loader(settings_.worker, device, clock_, metrics_, *log_);
  if (!loader.Prepare(failure)) return status();
  loaded_ = loader.Load(failure);
  if (loaded_ == nullptr) return status();
  worker_ = std::make_unique<LocalWorker>(settings_.worker, *loaded_, executor_, metrics_, *log_);
  PipelineOptions pipeline;
  pipeline.workers = {LocalWorker::kTarget};
  pipeline.policy = FindPolicy(kPolicy);
  pipeline.limits.max_live_requests = QUIRE_MAX_REQUESTS;
  pipeline.limits.max_queued_requests = QUIRE_MAX_REQUESTS;
  pipeline.text_factory = MakeBundleText;
  QUIRE_ASSIGN_OR_RETURN(text_, MakeBundleText(loaded_->model->bundle_bytes));
  QUIRE_ASSIGN_OR_RETURN(
      pipeline_,
      MakePipeline(std::move(pipeline), {executor_, background_, *worker_, rng_, *log_, metrics_}));
  return absl::OkStatus();
}

absl::Status LocalEngine::Parts::Run() {
  worker_->Start();
  std::future<absl::Status> ready = ready_.get_future();
  executor_.Post([this] { AwaitReady(clock_.Now() + kReadyLimit); });
  loop_ = std::thread([this] { Loop(); });
  return ready.get();
}

void LocalEngine::Parts::AwaitReady(Micros until) {
  if (pipeline_->Ready() && pipeline_->Healthy()) return ready_.set_value(absl::OkStatus());
  if (clock_.Now() >= until) {
    return ready_.set_value(absl::InternalError("the model computes nothing within a minute"));
  }
  executor_.PostAt(clock_.Now() + kReadyInterval, [this, until] { AwaitReady(until); });
}

// What the loop owns ends on its thread.
void LocalEngine::Parts::Loop() {
  executor_.Run();
  background_.Stop();
  pipeline_.reset();
  requests_.clear();
}

void LocalEngine::Parts::Close() {
  const std::lock_guard<std::mutex> lock(closing_);
  outbox_.Close();
  if (!loop_.joinable()) return;
  executor_.Stop();
  loop_.join();
  worker_->Stop();
}

absl::StatusOr<uint64_t> LocalEngine::Parts::Submit(std::string_view body, SubmitFlags flags) {
  const absl::StatusOr<json::Value> value = json::Parse(body);
  QUIRE_RETURN_IF_ERROR(value.status());
  const json::Object* object = value->if_object();
  if (object == nullptr) return InvalidArgument("the request must be a JSON object");
  const bool is_chat = json::Find(*object, "messages") != nullptr;
  ApiRequest api;
  if (const auto error =
          ParseApiRequest(is_chat ? ApiKind::kChat : ApiKind::kCompletion, body, NoHold(), api)) {
    return StatusOf(*error);
  }
  if (!api.unknown_fields.empty()) {
    return InvalidArgument(api.unknown_fields.front() + ": is not a field of requests");
  }
  if (api.stream) return InvalidArgument("stream: is said by QUIRE_STREAM; leave it out");
  if (api.requests.size() != 1) return InvalidArgument("prompt: must be one prompt");
  QUIRE_RETURN_IF_ERROR(TakeRoom(body.size()));
  GenerateRequest ask = std::move(api.requests.front());
  ask.streaming = flags.stream;
  if (flags.raw) ask.read_answer = false;
  const uint64_t number = ++last_number_;
  auto moved = std::make_shared<GenerateRequest>(std::move(ask));
  executor_.Post([this, number, moved, stream = flags.stream, bytes = body.size()] {
    Start(number, std::move(*moved), stream, bytes);
  });
  return number;
}

// Released with the request's last event.
absl::Status LocalEngine::Parts::TakeRoom(size_t bytes) {
  const int64_t others = live_.fetch_add(1);
  const size_t held = live_bytes_.fetch_add(bytes) + bytes;
  if (others < QUIRE_MAX_REQUESTS && held <= QUIRE_MAX_REQUESTS_BYTES) return absl::OkStatus();
  FreeRoom(bytes);
  return absl::ResourceExhaustedError(
      AbslView("as many requests are under way as may be, " + std::to_string(QUIRE_MAX_REQUESTS) +
               " or " + std::to_string(QUIRE_MAX_REQUESTS_BYTES) + " bytes; take events first"));
}

void LocalEngine::Parts::Start(uint64_t number, GenerateRequest ask, bool stream, size_t bytes) {
  // The pipeline is done with a request when it calls its last sink function, which must not end
  // it.
  auto request = std::make_unique<LocalRequest>(number, stream, outbox_, [this, number, bytes] {
    FreeRoom(bytes);
    executor_.Post([this, number] { requests_.erase(number); });
  });
  LocalRequest& placed = *request;
  requests_.emplace(number, std::move(request));
  placed.id = pipeline_->Start(std::move(ask), &placed);
}

void LocalEngine::Parts::Cancel(uint64_t number) {
  executor_.Post([this, number] {
    const auto found = requests_.find(number);
    if (found == requests_.end() || found->second->id == 0) return;
    pipeline_->Cancel(std::exchange(found->second->id, 0));
    found->second->OnError({ApiCode::kCancelled, "the request was cancelled", "", 0});
  });
}

absl::StatusOr<std::string> LocalEngine::Parts::Poll(int timeout_ms) {
  std::vector<Event> events;
  if (!outbox_.Take(std::chrono::milliseconds(std::max(timeout_ms, 0)), timeout_ms < 0, events)) {
    return absl::CancelledError("the engine was destroyed");
  }
  std::string list = "[";
  std::vector<Event> taken;
  for (Event& event : events) {
    if (list.size() > 1) list += ',';
    list += event.json;
    event.json.clear();
    if (event.taken > 0) taken.push_back(std::move(event));
  }
  if (!taken.empty()) {
    executor_.Post([this, taken = std::move(taken)] {
      for (const Event& event : taken) {
        const auto found = requests_.find(event.request);
        if (found == requests_.end() || found->second->id == 0) continue;
        pipeline_->Taken(found->second->id, event.choice, event.taken);
      }
    });
  }
  return list + "]";
}

std::string LocalEngine::Parts::Info() const {
  const WorkerHello& hello = loaded_->hello;
  json::Object info;
  info["model_id"] = hello.model_id;
  info["name"] = hello.served_names.front();
  info["max_model_len"] = hello.limits.max_model_len;
  info["vocab_size"] = hello.vocab_size;
  info["chat_problem"] = text_->ChatProblem();
  const GenerationSettings& defaults = text_->generation();
  json::Array eos;
  for (const TokenId id : defaults.eos_token_ids) eos.emplace_back(id);
  info["eos_token_ids"] = std::move(eos);
  json::Object generation;
  if (defaults.temperature) generation["temperature"] = *defaults.temperature;
  if (defaults.top_p) generation["top_p"] = *defaults.top_p;
  if (defaults.top_k) generation["top_k"] = *defaults.top_k;
  if (defaults.min_p) generation["min_p"] = *defaults.min_p;
  if (defaults.repetition_penalty) generation["repetition_penalty"] = *defaults.repetition_penalty;
  info["generation"] = std::move(generation);
  return json::Serialize(info);
}

absl::StatusOr<Prompt> LocalEngine::Parts::ReadPrompt(std::string_view request) const {
  TokenizeBody body;
  if (const auto error = ParseTokenizeBody(request, body, NoHold())) return StatusOf(*error);
  if (body.unknown_fields.empty()) return std::move(body.prompt);
  return InvalidArgument(body.unknown_fields.front() + ": is not a field of it");
}

absl::StatusOr<std::string> LocalEngine::Parts::Tokenize(std::string_view request) const {
  QUIRE_ASSIGN_OR_RETURN(const Prompt prompt, ReadPrompt(request));
  PromptOptions options;
  options.vocab_size = loaded_->hello.vocab_size;
  options.max_model_len = loaded_->hello.limits.max_model_len;
  options.now_unix_seconds = clock_.UnixSeconds();
  const Result<std::vector<TokenId>> ids = BuildPrompt(*text_, prompt, options);
  if (!ids.ok()) return StatusOf(ids.error());
  std::string list;
  AppendIds(ids.value(), list);
  return list;
}

LocalEngine::LocalEngine() : parts_(std::make_unique<Parts>()) {}
LocalEngine::~LocalEngine() { Close(); }

absl::StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Make(std::string_view options) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine());
  QUIRE_RETURN_IF_ERROR(engine->parts_->Load(options));
  QUIRE_RETURN_IF_ERROR(engine->parts_->Run());
  return engine;
}

absl::StatusOr<uint64_t> LocalEngine::Submit(std::string_view request, SubmitFlags flags) {
  return parts_->Submit(request, flags);
}
void LocalEngine::Cancel(uint64_t number) { parts_->Cancel(number); }
absl::StatusOr<std::string> LocalEngine::Poll(int timeout_ms) { return parts_->Poll(timeout_ms); }
void LocalEngine::Close() { parts_->Close(); }
std::string LocalEngine::Info() const { return parts_->Info(); }

absl::StatusOr<std::string> LocalEngine::Tokenize(std::string_view request) const {
  return parts_->Tokenize(request);
}

absl::StatusOr<std::string> LocalEngine::Render(std::string_view request) const {
  QUIRE_ASSIGN_OR_RETURN(const Prompt prompt, parts_->ReadPrompt(request));
  const auto* chat = std::get_if<ChatPrompt>(&prompt);
  if (chat == nullptr) return InvalidArgument("messages: is missing");
  return parts_->text().Render(*chat, RealClock().UnixSeconds());
}

absl::StatusOr<std::string> LocalEngine::Detokenize(std::span<const TokenId> ids,
                                                    bool skip_special) const {
  for (const TokenId id : ids) {
    if (id < 0) return InvalidArgument("ids: a token id is not negative");
  }
  return parts_->text().Decode(ids, skip_special);
}

}  // namespace quire

// A pipeline that a test plays by hand: it records what the edge asked for, and answers by script.
//
// Event loop only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/pipeline/pipeline.h"
#include "tests/router/support/fake_text.h"

namespace quire {

class FakePipeline : public Pipeline {
 public:
  enum class Mode {
    kEcho,  // answers "tok0 tok1 …" with max_tokens (default 3) tokens, one per turn of the loop
    kManual,     // the test calls the sinks
    kRefuse,     // answers with `refusal`
    kSilentEnd,  // two tokens, then OnFinished without a finish reason
    kBreak,      // two tokens, then an error
    kFlood,      // echoes within a window: at most `window` tokens beyond what was taken
  };
  struct Live {
    GenerateRequest request;
    ResponseSink* sink = nullptr;
    uint64_t sent = 0;
    uint64_t taken = 0;
    bool ended = false;
  };

  explicit FakePipeline(Executor& executor) : executor_(executor) {}
  ~FakePipeline() override { *alive_ = false; }

  Mode mode = Mode::kEcho;
  ApiError refusal{ApiCode::kRateLimited, "the queue is full", "", 2000};
  uint64_t window = 16;
  std::vector<ModelEntry> adapters;  // listed besides its model
  std::shared_ptr<const ModelText> text = std::make_shared<FakeText>();
  std::optional<ApiError> text_problem;   // instead of it
  std::vector<AdapterAsk> orders;         // about adapters, in order
  std::optional<ApiError> order_end;      // of each, later; none: success
  std::optional<ApiError> order_refusal;  // of each, at once
  bool orders_wait = false;               // they do not end
  int orders_left = 0;                    // whose client has gone, or that have ended
  bool ready = true;
  bool healthy = true;
  bool draining = false;
  std::vector<GenerateRequest> seen;  // every request, in order
  std::vector<RequestId> cancelled;
  std::shared_ptr<const std::atomic<bool>> tokenize_cancelled;  // of the last Tokenize
  std::vector<WorkerStatus> workers;                            // as operators see them
  std::vector<RunningRequest> running;                          // these too
  uint64_t max_ahead = 0;  // the most tokens that were ever out and not taken
  std::map<RequestId, Live> live;
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);

  std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile*) override { return memory; }

  RequestId Start(GenerateRequest request, ResponseSink* sink) override {
    const RequestId id = next_id_++;
    seen.push_back(request);
    live[id] = Live{std::move(request), sink};
    if (mode != Mode::kManual) Later([this, id] { Turn(id); });
    return id;
  }

  void Cancel(RequestId request) override {
    cancelled.push_back(request);
    live.erase(request);
  }

  void Taken(RequestId request, uint32_t, uint64_t index) override {
    auto found = live.find(request);
    if (found == live.end()) return;
    const bool stalled = mode == Mode::kFlood && Ahead(found->second) >= window;
    found->second.taken = std::max(found->second.taken, index);
    if (stalled) Later([this, request] { Turn(request); });
  }

  // Without an exporter: a client's trace goes on, and is not recorded.
  trace::RequestTrace TraceOf(RequestId request) const override {
    const auto found = live.find(request);
    if (found == live.end()) return {};
    return trace::BeginTrace(std::nullopt, found->second.request.traceparent, 1, request);
  }
  void UseSaltKey(const std::string&) override {}
  void WorkersNamed(const std::string&, std::vector<std::string>) override {}
  std::vector<ModelEntry> Models() const override {
    std::vector<ModelEntry> models = {{"demo", "id-of-demo", 2048, 1, 1700000000}};
    models.insert(models.end(), adapters.begin(), adapters.end());
    return models;
  }

  Result<std::shared_ptr<const ModelText>> TextOf(const std::string& name) override {
    if (text_problem) return *text_problem;
    if (name != "demo" && !name.empty()) return NotServed(name, {"demo"});
    return text;
  }
  void Tokenize(TokenizeAsk ask, std::function<void(Result<TokenizeResult>)> done) override {
    const std::string& model = ask.by.model;
    tokenize_cancelled = ask.by.cancelled;
    Result<TokenizeResult> answer = TokenizeResult();
    if (model != "demo" && !model.empty()) {
      answer = ApiError{ApiCode::kNotFound, "model: \"" + model + "\" is not served; served: demo",
                        "model", 0};
    } else {
      TokenizeResult& result = answer.value();
      result.max_model_len = 2048;
      if (const auto* text = std::get_if<TextPrompt>(&ask.prompt)) {
        if (text->add_special_tokens) Add(result, 1, "<s>");
        for (const char c : text->text) Add(result, c, std::string(1, c));
      } else {
        Add(result, 7, "chat");
      }
    }
    Later([done = std::move(done), answer = std::move(answer)] { done(answer); });
  }

  void Detokenize(TextAsk, std::vector<TokenId> ids,
                  std::function<void(Result<std::string>)> done) override {
    std::string text;
    for (const TokenId id : ids) text += static_cast<char>(id);
    Later([done = std::move(done), text] { done(text); });
  }

  Result<std::unique_ptr<AdapterTask>> OrderAdapters(AdapterAsk ask, AdapterDone done) override {
    if (order_refusal) return *order_refusal;
    struct Task final : AdapterTask {
      explicit Task(FakePipeline& pipeline) : owner(pipeline) {}
      ~Task() override { ++owner.orders_left; }
      FakePipeline& owner;
    };
    orders.push_back(std::move(ask));
    if (!orders_wait) Later([this, done = std::move(done)] { done(order_end); });
    return std::unique_ptr<AdapterTask>(std::make_unique<Task>(*this));
  }

  bool Ready() const override { return ready && !draining; }
  bool Healthy() const override { return healthy; }
  void StartDraining() override { draining = true; }
  void EndAll(const ApiError& error) override {
    const std::map<RequestId, Live> all = std::exchange(live, {});
    for (const auto& [id, one] : all) one.sink->OnError(error);
  }
  size_t LiveRequests() const override { return live.size(); }
  std::vector<WorkerStatus> Workers() const override { return workers; }
  std::vector<RunningRequest> Running(std::string_view request_id) const override {
    std::vector<RunningRequest> of_id = running;
    std::erase_if(of_id, [&](const RunningRequest& one) {
      return !request_id.empty() && one.record.request_id != request_id;
    });
    return of_id;
  }

  static Started StartedFor(const GenerateRequest& request) {
    Started started;
    started.model = "demo";
    started.model_id = "id-of-demo";
    started.seed = request.sampling.seed.value_or(42);
    started.created = 1700000001;
    started.prompt_ids = {1, 2, 3};
    started.worker = "w0";
    if (const auto* ids = std::get_if<TokenPrompt>(&request.prompt)) started.prompt_ids = ids->ids;
    if (request.echo) started.prompt_text = "p0 p1 p2";
    if (!request.sampling.prompt_logprobs) return started;
    for (size_t i = 0; i < started.prompt_ids.size(); ++i) {
      TokenLogprob& token = started.prompt_logprobs.emplace_back();
      token.id = started.prompt_ids[i];
      token.token = token.bytes = (i > 0 ? " p" : "p") + std::to_string(i);
      token.unscored = i == 0;
      if (i == 0) continue;
      token.logprob = -0.25f * static_cast<float>(i);
      token.rank = static_cast<uint32_t>(2 * i);
      const int tops = *request.sampling.prompt_logprobs;
      for (int k = 0; k < tops; ++k) {
        token.top.push_back({50 + k, "t" + std::to_string(k), "", -0.125f * (k + 1), {}});
      }
    }
    return started;
  }

  static Delta Token(uint32_t choice, uint64_t index) {
    Delta delta;
    delta.choice = choice;
    delta.first_index = index;
    delta.text = (index > 0 ? " tok" : "tok") + std::to_string(index);
    delta.ids = {static_cast<TokenId>(100 + index)};
    return delta;
  }

 private:
  static void Add(TokenizeResult& result, TokenId id, std::string piece) {
    result.ids.push_back(id);
    result.pieces.push_back(std::move(piece));
  }
  static uint64_t Ahead(const Live& request) { return request.sent - request.taken; }

  void Later(std::function<void()> work) {
    executor_.Post([alive = alive_, work = std::move(work)] {
      if (*alive) work();
    });
  }

  // One step of a request: the next token of every choice, or its end.
  void Turn(RequestId id) {
    auto found = live.find(id);
    if (found == live.end()) return;
    Live& request = found->second;
    ResponseSink* sink = request.sink;
    if (mode == Mode::kRefuse ||
        (!request.request.model.empty() && request.request.model != "demo")) {
      ApiError error = refusal;
      if (mode != Mode::kRefuse) {
        error = {ApiCode::kNotFound, "model: not served; served: demo", "model", 0};
      }
      live.erase(found);
      sink->OnError(error);
      return;
    }
    const uint64_t wanted =
        mode == Mode::kEcho || mode == Mode::kFlood
            ? static_cast<uint64_t>(request.request.sampling.max_tokens.value_or(3))
            : 2;
    if (request.sent == 0) sink->OnStarted(StartedFor(request.request));
    if (live.count(id) == 0) return;
    if (request.sent == wanted) {
      End(id);
      return;
    }
    const uint64_t index = request.sent++;
    if (request.request.streaming) max_ahead = std::max(max_ahead, Ahead(request));
    for (int32_t choice = 0; choice < request.request.sampling.n; ++choice) {
      Delta delta = Token(static_cast<uint32_t>(choice), index);
      if (request.request.sampling.logprobs) {
        delta.logprobs = {
            {delta.ids[0], delta.text, delta.text, -0.5f, {{9, "alt", "alt", -1.5f, {}}}}};
      }
      sink->OnDelta(delta);
      if (live.count(id) == 0) return;
    }
    const bool stalled =
        mode == Mode::kFlood && request.request.streaming && Ahead(request) >= window;
    if (!stalled) Later([this, id] { Turn(id); });
  }

  void End(RequestId id) {
    Live request = std::move(live[id]);
    live.erase(id);
    ResponseSink* sink = request.sink;
    if (mode == Mode::kBreak) {
      sink->OnError({ApiCode::kUnavailable, "the worker went away", "", 0});
      return;
    }
    if (mode != Mode::kSilentEnd) {
      for (int32_t choice = 0; choice < request.request.sampling.n; ++choice) {
        ChoiceEnd end;
        end.choice = static_cast<uint32_t>(choice);
        end.finish_reason = "length";
        sink->OnChoiceEnd(end);
      }
    }
    Usage usage;
    usage.prompt_tokens = 3;
    usage.completion_tokens = static_cast<uint32_t>(request.sent * request.request.sampling.n);
    usage.cached_tokens = 1;
    if (request.request.prediction) {
      usage.has_prediction = true;
      usage.accepted_prediction_tokens = 7;
      usage.rejected_prediction_tokens = 4;
    }
    sink->OnFinished(usage);
  }

  Executor& executor_;
  RequestId next_id_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire

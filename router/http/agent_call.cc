#include "router/http/agent_call.h"

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/release.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/http/body_job.h"
#include "router/http/errors.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
struct AgentCall::ParseJob : BodyJob {
  ParseJob(AgentCall& owner, HttpServices& services)
      : BodyJob(services, owner.http_),
        call(owner),
        api(owner.api_),
        keeping{services.responses, NameOf(owner.http_.tenant)} {}
  void Parse() {
    problem = api.read(body, limits, keeping, parsed);
    if (problem) return;
    // What is left once the body is released.
    read.Resize(HeldBytes(parsed.generate) + PromptBytes(parsed.generate.prompt) +
                parsed.answer->held_bytes());
  }
  void Done() { call.Parsed(std::move(problem), std::move(parsed)); }

  AgentCall& call;  // of Done: it may go while its body is parsed
  const AgentApi& api;
  const responses::Keeping keeping;
  AgentRequest parsed;
};

std::unique_ptr<Call> AgentCall::Begin(HttpServices& services, const AgentApi& api,
                                       HttpRequest request, Exchange& exchange) {
  std::unique_ptr<AgentCall> call(new AgentCall(services, api, std::move(request), exchange));
  call->parse_job_ = std::make_shared<ParseJob>(*call, services);
  if (!ParseBody(services, call->http_.tenant, std::shared_ptr(call->parse_job_))) {
    call->Refuse(TooManyLargeRequests());
  }
  if (call->finished_) return nullptr;
  return call;
}

AgentCall::AgentCall(HttpServices& services, const AgentApi& api, HttpRequest request,
                     Exchange& exchange)
    : services_(services),
      exchange_(exchange),
      http_(std::move(request)),
      api_(api),
      answer_hold_(std::make_shared<MemoryHold>(services.pipeline.MemoryOf(http_.tenant.get()))),
      events_(services, exchange) {
  events_.Use(api_.form);
}

AgentCall::~AgentCall() {
  if (parse_job_) parse_job_->cancelled = true;
  Stop();
}

// The pipeline gets no more calls, and no timer runs.
void AgentCall::Stop() {
  finished_ = true;
  events_.Stop();
  release_timer_.Stop();
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
}

void AgentCall::Refuse(const ApiError& error) {
  QUIRE_CHECK(!events_.begun());
  Stop();
  exchange_.Reply(ErrorResponse(error));
}

void AgentCall::Parsed(std::optional<ApiError> problem, AgentRequest parsed) {
  parse_job_.reset();
  GenerateRequest& generate = parsed.generate;
  if (!problem && api_.served_name != nullptr) {
    generate.model = api_.served_name(services_, generate.model);
  }
  if (!problem) problem = ReadTimeouts(http_, generate.timeout_ms);
  if (!problem) problem = CheckModelAccess(services_, http_.tenant, generate.model);
  if (problem) return Refuse(*problem);
  if (parsed.only_load) {
    CountUnknownFields(services_, http_.request_id, {}, parsed.unknown_fields);
    instead_ = api_.only_load(services_, std::move(parsed), exchange_);
    finished_ = instead_ == nullptr;
    return;
  }
  KeepLoaded(parsed);
  generate.request_id = http_.request_id;
  ApplyHeaders(http_, generate);
  if (generate.session.empty()) generate.session = std::move(parsed.session);
  services_.counters.tools_left_out.Add(parsed.tools_left_out);
  stream_ = parsed.stream;
  answer_ = std::move(parsed.answer);
  answer().Name(http_.request_id, services_.executor.clock().UnixSeconds());
  if (std::string bytes = answer_->KeepAlive(); !bytes.empty()) {
    events_.KeepAliveBy(std::move(bytes));
  }
  id_ = services_.pipeline.Start(std::move(generate), this);
  const trace::RequestTrace trace = services_.pipeline.TraceOf(id_);
  exchange_.SetTraceResponse(trace::TraceResponse(trace));
  CountUnknownFields(services_, http_.request_id, trace, parsed.unknown_fields);
  if (Hold() && stream_) events_.BeginInTime();
}

// A client may say so where it may load and unload, too.
void AgentCall::KeepLoaded(const AgentRequest& request) {
  if (!request.keep_alive || services_.models == nullptr || !services_.fleet_is_open) return;
  const std::string model = services_.models->MachineName(request.generate.model);
  if (!model.empty()) services_.models->KeepAlive(model, *request.keep_alive);
}

AnswerEvents& AgentCall::answer() {
  answer_->At(services_.executor.clock().Now());
  return *answer_;
}

void AgentCall::OnWaiting(const std::string& what) {
  answer().Wait();
  if (stream_) events_.Comment(what);
}

bool AgentCall::Hold() {
  if (answer_hold_->TryResize(answer_->held_bytes())) return true;
  services_.pipeline.Cancel(id_);
  OnError(NoMemoryForAnswer());
  return false;
}

void AgentCall::OnStarted(const Started& started) {
  events_.SetWorker(started.worker);
  answer().Begin(started, out());
}

void AgentCall::OnDelta(const Delta& delta) {
  answer().Add(delta, out());
  if (!Hold() || !stream_) return;
  WriteOut();
  if (delta.ids.empty()) return;
  marks_.push_back({queued_bytes_, delta.first_index + delta.ids.size()});
  if (marks_.front().bytes <= written_bytes_ && !release_timer_.running()) {
    // Nothing waits to be written, since the text is still held back: the outputs are reported as
    // taken anyway, but not from inside the pipeline's own call.
    release_timer_.SetIn(0, [this] { ReleaseMarks(); });
  }
}

void AgentCall::OnChoiceEnd(const ChoiceEnd& end) {
  ended_ = true;
  answer().End(end);
}

void AgentCall::OnFinished(const Usage& usage) {
  id_ = 0;
  if (!ended_) {
    ApiError error;
    error.message = "the answer ended without a finish reason";
    return OnError(error);
  }
  answer().Finish(usage, out());
  if (stream_) {
    WriteOut();
    Stop();
    return exchange_.EndStream();
  }
  Stop();
  FinishWhole();
}

void AgentCall::FinishWhole() {
  struct Whole {
    std::shared_ptr<MemoryHold> hold;
    std::unique_ptr<AnswerEvents> answer;
  };
  const size_t bytes = answer_hold_->bytes();
  const auto whole = std::make_shared<Whole>();
  whole->hold = std::move(answer_hold_);
  whole->answer = std::move(answer_);
  HttpResponse head;
  events_.AddWorker(head.headers);
  auto write = [whole, response = std::move(head)]() mutable {
    response.body = whole->answer->Whole();
    whole->answer.reset();
    whole->hold->Resize(0);
    return std::move(response);
  };
  if (!WholeAnswerWriter::IsLarge(services_, bytes)) return exchange_.Reply(write());
  const auto problem =
      whole_writer_.Write(services_, http_.tenant, bytes, std::move(write),
                          [this](HttpResponse response) { exchange_.Reply(std::move(response)); });
  if (problem) exchange_.Reply(ErrorResponse(*problem));
}

void AgentCall::OnError(const ApiError& failure) {
  id_ = 0;
  const ApiError error = api_.in_clients_words(failure);
  if (!events_.begun()) return Refuse(error);
  Stop();
  services_.counters.stream_error_events.Add();
  answer().Fail(error, scratch_);
  WriteOut();
  exchange_.EndStream();
}

void AgentCall::WriteOut() {
  events_.Begin();
  queued_bytes_ = events_.Write(scratch_);
  EventStream::Empty(scratch_);
}

void AgentCall::OnWritten(uint64_t total) {
  written_bytes_ = total;
  ReleaseMarks();
}

void AgentCall::ReleaseMarks() {
  uint64_t taken = 0;
  while (!marks_.empty() && marks_.front().bytes <= written_bytes_) {
    taken = marks_.front().index;
    marks_.pop_front();
  }
  if (id_ != 0 && taken > 0) services_.pipeline.Taken(id_, 0, taken);
}

namespace {

struct CountJob : BodyJob {
  CountJob(HttpServices& from, const CountApi& of, HttpRequest& request, Exchange& to)
      : BodyJob(from, request),
        services(from),
        api(of),
        exchange(to),
        request_id(std::move(request.request_id)),
        tenant(std::move(request.tenant)),
        keeping{from.responses, NameOf(tenant)} {}
  void Parse() { problem = api.read(body, limits, keeping, parsed); }
  void Done();

  HttpServices& services;
  const CountApi& api;
  Exchange& exchange;
  const std::string request_id;
  const std::shared_ptr<const TenantProfile> tenant;
  const responses::Keeping keeping;
  std::weak_ptr<CountJob> self;
  AgentRequest parsed;
};

void CountJob::Done() {
  if (!problem) problem = CheckModelAccess(services, tenant, parsed.generate.model);
  if (problem) return exchange.Reply(ErrorResponse(*problem));
  Release(body);
  hold.reset();
  services.counters.tools_left_out.Add(parsed.tools_left_out);
  CountUnknownFields(services, request_id, {}, parsed.unknown_fields);
  if (auto* chat = std::get_if<ChatPrompt>(&parsed.generate.prompt)) {
    ApplyThinking(parsed.generate.thinking, *chat);
  }
  const std::shared_ptr<CountJob> job = self.lock();
  TokenizeAsk ask{{std::move(parsed.generate.model), tenant, {job, &cancelled}},
                  std::move(parsed.generate.prompt)};
  read.Resize(0);  // from here on the pipeline counts it
  services.pipeline.Tokenize(std::move(ask), [job](Result<TokenizeResult> result) {
    if (job->cancelled) return;
    HttpResponse response;
    if (!result.ok()) {
      response = ErrorResponse(job->api.in_clients_words(result.error()));
    } else {
      response.body = "{";
      if (!job->api.kind.empty()) {
        response.body += "\"object\":\"" + std::string(job->api.kind) + "\",";
      }
      response.body += "\"input_tokens\":" + std::to_string(result.value().ids.size()) + "}";
    }
    job->exchange.Reply(std::move(response));
  });
}

class CountCall final : public Call {
 public:
  explicit CountCall(std::shared_ptr<CountJob> job) : job_(std::move(job)) {}
  ~CountCall() override { job_->cancelled = true; }

 private:
  std::shared_ptr<CountJob> job_;
};

}  // namespace

std::unique_ptr<Call> BeginCount(HttpServices& services, const CountApi& api, HttpRequest request,
                                 Exchange& exchange) {
  const auto job = std::make_shared<CountJob>(services, api, request, exchange);
  job->self = job;
  auto call = std::make_unique<CountCall>(job);
  if (!ParseBody(services, job->tenant, job)) {
    exchange.Reply(ErrorResponse(TooManyLargeRequests()));
  }
  return call;
}

}  // namespace quire

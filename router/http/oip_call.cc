#include "router/http/oip_call.h"

#include <atomic>
#include <optional>
#include <utility>

#include "common/check.h"
#include "router/core/utf8.h"
#include "router/http/errors.h"
#include "router/http/oip_routes.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"

namespace quire {

// A large body is parsed off the event loop; `call` is cleared when its request is given up
// meanwhile, and nothing is parsed for it any more.
struct OipCall::ParseJob {
  OipCall* call = nullptr;
  OipKind kind = OipKind::kInfer;
  oip::ModelPath path;
  std::atomic<bool> cancelled{false};
  std::shared_ptr<const MemoryHold> hold;
  std::optional<MemoryHold> read;  // what is made of the body
  std::string body;
  std::string json_length;
  RequestLimits limits;
  std::optional<ApiError> problem;
  oip::GenerateBody parsed;

  void Run() {
    if (kind == OipKind::kInfer) {
      problem = oip::ReadInferJson({body, json_length}, path, limits, parsed.request);
    } else {
      const auto answering =
          kind == OipKind::kGenerate ? oip::Answering::kOnce : oip::Answering::kStream;
      problem = oip::ReadGenerateJson(body, path, answering, limits, parsed);
    }
  }
  void Done() {
    if (call != nullptr) call->Parsed(std::move(problem), std::move(parsed));
  }
};

std::unique_ptr<Call> OipCall::Begin(HttpServices& services, OipKind kind, oip::ModelPath path,
                                     HttpRequest request, Exchange& exchange) {
  std::unique_ptr<OipCall> call(new OipCall(services, kind, std::move(request), exchange));
  auto job = std::make_shared<ParseJob>();
  job->call = call.get();
  job->kind = kind;
  job->path = std::move(path);
  job->hold = std::move(call->http_.hold);
  job->body = std::move(call->http_.body);
  job->json_length = call->http_.json_length;
  job->read.emplace(services.pipeline.MemoryOf(call->http_.tenant.get()));
  job->limits = services.request_limits;
  job->limits.hold = &*job->read;
  call->parse_job_ = job;
  const WorkShare share{NameOf(call->http_.tenant), job->body.size(),
                        std::shared_ptr<const std::atomic<bool>>(job, &job->cancelled)};
  if (job->body.size() <= services.limits.background_parse_bytes) {
    job->Run();
    job->Done();
  } else if (!services.background.RunFor(
                 share, [job] { job->Run(); }, [job] { job->Done(); })) {
    call->Refuse(TooManyLargeRequests());
  }
  if (call->finished_) return nullptr;
  return call;
}

OipCall::~OipCall() {
  if (parse_job_) {
    parse_job_->call = nullptr;
    parse_job_->cancelled = true;
  }
  Stop();
}

// Nothing is asked of the pipeline any more, and no timer runs.
void OipCall::Stop() {
  finished_ = true;
  for (TimerId* timer : {&timer_, &flush_timer_}) {
    if (*timer != 0) services_.executor.Cancel(std::exchange(*timer, 0));
  }
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
}

void OipCall::Refuse(const ApiError& error) {
  QUIRE_CHECK(!committed_);
  Stop();
  exchange_.Reply(OipError(error));
}

void OipCall::Parsed(std::optional<ApiError> problem, oip::GenerateBody body) {
  parse_job_.reset();
  GenerateRequest& generate = body.request.generate;
  if (!problem) problem = ReadTimeouts(http_, generate.timeout_ms);
  if (!problem && NarrowsModels(http_.tenant)) {
    problem = CheckModelAccess(services_.pipeline.Models(), http_.tenant.get(), generate.model);
  }
  if (problem) return Refuse(*problem);
  generate.request_id = http_.request_id;
  generate.traceparent = http_.traceparent;
  generate.tracestate = http_.tracestate;
  generate.session = http_.session;
  ApplyTenant(http_.tenant, generate);
  body_ = std::move(body);
  answer_ = std::make_unique<oip::InferAnswer>(body_.request);
  id_ = services_.pipeline.Start(std::move(body_.request.generate), this);
  exchange_.SetTraceResponse(trace::TraceResponse(services_.pipeline.TraceOf(id_)));
  if (kind_ == OipKind::kGenerateStream) ArmTimer(services_.limits.sse_commit_after);
}

void OipCall::OnStarted(const Started& started) {
  answer_->Add(started);
  // A worker names itself: no name may end a header's line.
  if (IsVisibleAscii(started.worker)) worker_ = started.worker;
}

// A step's outputs wait for the end of this turn of the loop: whether they are the last ones shows
// by then.
void OipCall::OnDelta(const Delta& delta) {
  if (body_.request.stream && answer_->pending() && !delta.ids.empty()) WriteEvent();
  answer_->Add(delta);
  if (!body_.request.stream && !answer_hold_.TryResize(answer_->held_bytes())) {
    services_.pipeline.Cancel(id_);
    return OnError(NoMemoryForAnswer());
  }
  if (!body_.request.stream || flush_timer_ != 0) return;
  flush_timer_ = services_.executor.PostAt(services_.executor.clock().Now(), [this] {
    flush_timer_ = 0;
    if (answer_->pending() && !answer_->ended()) WriteEvent();
  });
}

void OipCall::OnFinished(const Usage&) {
  id_ = 0;
  if (!answer_->ended()) {
    ApiError error;
    error.message = "the answer ended without a finish reason";
    return OnError(error);
  }
  if (kind_ == OipKind::kGenerateStream) {
    WriteEvent();
    Stop();
    return exchange_.EndStream();
  }
  Stop();
  HttpResponse response;
  if (!worker_.empty()) response.headers.emplace_back("X-Quire-Worker", worker_);
  const std::vector<oip::OutputTensor> outputs = answer_->Take();
  if (kind_ == OipKind::kInfer) {
    oip::InferText text = oip::InferJson(body_.request, outputs);
    response.body = std::move(text.body);
    if (text.json_bytes < response.body.size()) {
      response.content_type = "application/octet-stream";
      response.headers.emplace_back("Inference-Header-Content-Length",
                                    std::to_string(text.json_bytes));
    }
  } else {
    response.body = oip::GenerateJson(body_, outputs, *answer_);
  }
  exchange_.Reply(std::move(response));
}

void OipCall::OnError(const ApiError& error) {
  id_ = 0;
  if (!committed_) return Refuse(error);
  Stop();
  services_.counters.stream_error_events.Add();
  WriteOut("data: " + oip::ErrorText(error) + "\n\n");
  exchange_.EndStream();
}

void OipCall::Commit() {
  if (std::exchange(committed_, true)) return;
  HeaderList headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  if (!worker_.empty()) headers.emplace_back("X-Quire-Worker", worker_);
  exchange_.StartStream(200, "text/event-stream; charset=utf-8", headers);
  ArmTimer(services_.limits.sse_keep_alive);
}

void OipCall::WriteEvent() {
  Commit();
  const std::vector<oip::OutputTensor> outputs = answer_->Take();
  const uint64_t queued = WriteOut("data: " + oip::GenerateJson(body_, outputs, *answer_) + "\n\n");
  marks_.push_back({queued, answer_->next_index()});
}

uint64_t OipCall::WriteOut(const std::string& bytes) {
  last_write_ = services_.executor.clock().Now();
  return exchange_.Write(bytes);
}

void OipCall::OnWritten(uint64_t total) {
  written_bytes_ = total;
  uint64_t taken = 0;
  while (!marks_.empty() && marks_.front().bytes <= written_bytes_) {
    taken = marks_.front().index;
    marks_.pop_front();
  }
  if (id_ != 0 && taken > 0 && body_.request.stream) services_.pipeline.Taken(id_, 0, taken);
}

void OipCall::ArmTimer(Micros delay) {
  if (timer_ != 0) services_.executor.Cancel(timer_);
  timer_ = services_.executor.PostAt(services_.executor.clock().Now() + delay, [this] {
    timer_ = 0;
    OnTimer();
  });
}

void OipCall::OnTimer() {
  if (finished_) return;
  const Micros now = services_.executor.clock().Now();
  const Micros silence = services_.limits.sse_keep_alive;
  if (committed_ && now < last_write_ + silence) return ArmTimer(last_write_ + silence - now);
  Commit();
  WriteOut(": keep-alive\n\n");
  ArmTimer(silence);
}

}  // namespace quire

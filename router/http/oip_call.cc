#include "router/http/oip_call.h"

#include <optional>
#include <utility>

#include "common/check.h"
#include "router/http/body_job.h"
#include "router/http/errors.h"
#include "router/http/oip_routes.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"

namespace quire {

struct OipCall::ParseJob : BodyJob {
  ParseJob(OipCall& owner, HttpServices& services, oip::ModelPath of)
      : BodyJob(services, owner.http_),
        call(owner),
        kind(owner.kind_),
        json_length(owner.http_.json_length),
        path(std::move(of)) {}
  void Parse() {
    if (kind == OipKind::kInfer) {
      problem = oip::ReadInferJson({body, json_length}, path, limits, parsed.request);
    } else {
      const auto answering =
          kind == OipKind::kGenerate ? oip::Answering::kOnce : oip::Answering::kStream;
      problem = oip::ReadGenerateJson(body, path, answering, limits, parsed);
    }
  }
  void Done() { call.Parsed(std::move(problem), std::move(parsed)); }

  OipCall& call;  // of Done: it may go while its body is parsed
  const OipKind kind;
  const std::string json_length;
  const oip::ModelPath path;
  oip::GenerateBody parsed;
};

std::unique_ptr<Call> OipCall::Begin(HttpServices& services, OipKind kind, oip::ModelPath path,
                                     HttpRequest request, Exchange& exchange) {
  std::unique_ptr<OipCall> call(new OipCall(services, kind, std::move(request), exchange));
  call->parse_job_ = std::make_shared<ParseJob>(*call, services, std::move(path));
  if (!ParseBody(services, call->http_.tenant, std::shared_ptr(call->parse_job_))) {
    call->Refuse(TooManyLargeRequests());
  }
  if (call->finished_) return nullptr;
  return call;
}

OipCall::~OipCall() {
  if (parse_job_) parse_job_->cancelled = true;
  Stop();
}

// The pipeline gets no more calls, and no timer runs.
void OipCall::Stop() {
  finished_ = true;
  events_.Stop();
  flush_timer_.Stop();
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
}

void OipCall::Refuse(const ApiError& error) {
  QUIRE_CHECK(!events_.begun());
  Stop();
  exchange_.Reply(OipError(error));
}

void OipCall::Parsed(std::optional<ApiError> problem, oip::GenerateBody body) {
  parse_job_.reset();
  GenerateRequest& generate = body.request.generate;
  if (!problem) problem = ReadTimeouts(http_, generate.timeout_ms);
  if (!problem) problem = CheckModelAccess(services_, http_.tenant, generate.model);
  if (problem) return Refuse(*problem);
  generate.request_id = http_.request_id;
  ApplyHeaders(http_, generate);
  body_ = std::move(body);
  answer_ = std::make_unique<oip::InferAnswer>(body_.request);
  id_ = services_.pipeline.Start(std::move(body_.request.generate), this);
  exchange_.SetTraceResponse(trace::TraceResponse(services_.pipeline.TraceOf(id_)));
  if (kind_ == OipKind::kGenerateStream) events_.BeginInTime();
}

void OipCall::OnStarted(const Started& started) {
  answer_->Add(started);
  events_.SetWorker(started.worker);
}

// A step's outputs wait for the end of this turn of the loop: by then it is known whether they are
// the last ones.
void OipCall::OnDelta(const Delta& delta) {
  if (body_.request.stream && answer_->pending() && !delta.ids.empty()) WriteEvent();
  answer_->Add(delta);
  if (!body_.request.stream && !answer_hold_->TryResize(answer_->held_bytes())) {
    services_.pipeline.Cancel(id_);
    return OnError(NoMemoryForAnswer());
  }
  if (!body_.request.stream || flush_timer_.running()) return;
  flush_timer_.SetIn(0, [this] {
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
  FinishWhole();
}

void OipCall::FinishWhole() {
  struct Whole {
    std::shared_ptr<MemoryHold> hold;
    std::unique_ptr<oip::InferAnswer> answer;
    oip::GenerateBody body;
  };
  const size_t bytes = answer_->held_bytes();
  const auto whole = std::make_shared<Whole>();
  whole->hold = std::move(answer_hold_);
  whole->answer = std::move(answer_);
  whole->body = std::move(body_);
  HttpResponse head;
  events_.AddWorker(head.headers);
  auto write = [whole, kind = kind_, response = std::move(head)]() mutable {
    const std::vector<oip::OutputTensor> outputs = whole->answer->Take();
    if (kind == OipKind::kInfer) {
      oip::InferText text = oip::InferJson(whole->body.request, outputs);
      response.body = std::move(text.body);
      if (text.json_bytes < response.body.size()) {
        response.content_type = "application/octet-stream";
        response.headers.emplace_back("Inference-Header-Content-Length",
                                      std::to_string(text.json_bytes));
      }
    } else {
      response.body = oip::GenerateJson(whole->body, outputs, *whole->answer);
    }
    return std::move(response);
  };
  if (!WholeAnswerWriter::IsLarge(services_, bytes)) return exchange_.Reply(write());
  const auto problem =
      whole_writer_.Write(services_, http_.tenant, bytes, std::move(write),
                          [this](HttpResponse response) { exchange_.Reply(std::move(response)); });
  if (problem) exchange_.Reply(OipError(*problem));
}

void OipCall::OnError(const ApiError& error) {
  id_ = 0;
  if (!events_.begun()) return Refuse(error);
  Stop();
  services_.counters.stream_error_events.Add();
  events_.Write("data: " + oip::ErrorText(error) + "\n\n");
  exchange_.EndStream();
}

void OipCall::WriteEvent() {
  events_.Begin();
  const std::vector<oip::OutputTensor> outputs = answer_->Take();
  const uint64_t queued =
      events_.Write("data: " + oip::GenerateJson(body_, outputs, *answer_) + "\n\n");
  marks_.push_back({queued, answer_->next_index()});
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

}  // namespace quire

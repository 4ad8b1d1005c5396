#include "router/grpc/oip/stream_call.h"

#include <utility>

#include "common/check.h"
#include "router/grpc/call_facts.h"
#include "router/grpc/oip/oip_messages.h"
#include "router/keys/tenant_access.h"

namespace quire::oip {

StreamCall::StreamCall(GrpcServices& services, std::shared_ptr<GrpcCall> call)
    : services_(services), call_(std::move(call)), writer_(*call_) {
  services_.counters.grpc_requests.Add();
}

StreamCall::~StreamCall() { QUIRE_CHECK(ended_ && parts_.empty()); }

GrpcCallHandler::Step StreamCall::Read(std::string_view message) {
  std::optional<ReadRequest> read =
      ReadInferMessage(services_, call_->head(), message, Answering::kStream);
  if (!read) return {};
  return [this, read = *std::move(read)]() mutable { Take(std::move(read)); };
}

void StreamCall::Take(ReadRequest read) {
  services_.counters.grpc_stream_requests.Add();
  // Output that finds no memory ends the call.
  if (!std::exchange(tenant_known_, true)) (void)call_->CountFor(read.hold->account());
  InferRequest& request = read.request;
  owner_ = NameOf(request.generate.tenant);
  std::optional<ApiError>& problem = read.problem;
  const RequestLimits& limits = services_.request_limits;
  if (!problem && ids_.count(request.id) > 0) {
    problem = InvalidField("id", "\"" + request.id + "\" is running already in this call");
  } else if (!problem && ids_.size() >= services_.limits.max_requests_per_call) {
    problem = PastLimit("requests of this call", "--max-requests-per-call",
                        services_.limits.max_requests_per_call,
                        limits.counters ? &limits.counters->call_requests : nullptr);
    problem->code = ApiCode::kRateLimited;
  } else if (!problem) {
    problem = CheckModelAccess(services_, request.generate.tenant, request.model);
  }
  if (problem) {
    Refuse(request, *problem);
  } else {
    Launch(std::move(request));
  }
  PauseOrReadOn();
}

void StreamCall::Launch(InferRequest request) {
  if (request.generate.request_id.empty()) {
    request.generate.request_id = NewRequestId(services_.rng);
  }
  const uint64_t number = next_number_++;
  ids_.insert(request.id);
  auto part = std::make_unique<Part>(*this, number, std::move(request));
  part->id = services_.pipeline.Start(std::move(part->request.generate), part.get());
  part->trace_response = trace::TraceResponse(services_.pipeline.TraceOf(part->id));
  parts_.emplace(number, std::move(part));
}

void StreamCall::Refuse(const InferRequest& request, const ApiError& error) {
  services_.counters.grpc_stream_request_errors.Add();
  auto message = std::make_unique<StreamWriter::Message>();
  ToProto(request, error, message->response);
  Send(std::move(message));
}

// A step's outputs wait for the end of this turn of the loop: by then it is known whether they are
// the last ones.
void StreamCall::PartDelta(Part& part, const Delta& delta) {
  const bool next_step = part.request.stream && part.answer.pending() && !delta.ids.empty();
  if (next_step && !Emit(part, false)) return;
  part.answer.Add(delta);
  if (!part.request.stream && !part.hold.TryResize(part.answer.held_bytes())) {
    services_.pipeline.Cancel(part.id);
    return PartError(part, NoMemoryForAnswer());
  }
  if (!part.request.stream || part.flush_posted) return;
  part.flush_posted = true;
  call_->host().AfterTurn(
      [self = shared_from_this(), number = part.number] { self->Flush(number); });
}

void StreamCall::Flush(uint64_t number) {
  const auto found = parts_.find(number);
  if (found == parts_.end()) return;
  Part& part = *found->second;
  part.flush_posted = false;
  if (part.answer.pending() && !part.answer.ended()) (void)Emit(part, false);
}

bool StreamCall::Emit(Part& part, bool final) {
  auto message = std::make_unique<StreamWriter::Message>();
  inference::ModelInferResponse& response = *message->response.mutable_infer_response();
  ToProto(part.request, part.answer.Take(), response);
  MarkFinal(final, response);
  // The call's metadata applies to all of its requests: each has its own in its first response.
  if (const std::string trace = std::exchange(part.trace_response, {}); !trace.empty()) {
    (*response.mutable_parameters())["traceresponse"].set_string_param(trace);
  }
  if (const auto problem = CheckSize(message->response, services_.limits.max_send_bytes)) {
    if (part.id != 0) services_.pipeline.Cancel(std::exchange(part.id, 0));
    Fail(part, *problem);
    return false;
  }
  message->whose = part.number;
  if (part.request.stream && part.answer.next_index() >= part.told + services_.limits.taken_step) {
    message->taken = part.told = part.answer.next_index();
  }
  Send(std::move(message));
  return true;
}

void StreamCall::Send(std::unique_ptr<StreamWriter::Message> message) {
  writer_.Add(std::move(message));
  if (std::exchange(write_posted_, true)) return;
  call_->host().AfterTurn([self = shared_from_this()] {
    self->write_posted_ = false;
    self->writer_.Write();
  });
}

void StreamCall::PartFinished(Part& part) {
  part.id = 0;
  if (!part.answer.ended()) {
    ApiError error;
    error.message = "the answer ended without a finish reason";
    return PartError(part, error);
  }
  if (!part.request.stream && IsLarge(services_, part.answer.held_bytes())) {
    return AnswerOffLoop(part);
  }
  if (Emit(part, !part.request.empty_final)) EndAnswered(part);
}

void StreamCall::AnswerOffLoop(Part& part) {
  AnswerWork work{owner_, part.answer.held_bytes(), cancelled_};
  const auto answer = std::make_shared<WholeAnswer>(part.hold.account());
  answer->request = part.request;
  answer->outputs = part.answer.Take();
  answer->of_stream = true;
  answer->final = !part.request.empty_final;
  answer->trace_response = std::exchange(part.trace_response, {});
  const auto done = [self = shared_from_this(), number = part.number, answer] {
    self->Written(number, *answer);
  };
  if (const auto problem = WriteOffLoop(services_, work, answer, done)) Fail(part, *problem);
}

void StreamCall::Written(uint64_t number, WholeAnswer& answer) {
  const auto found = parts_.find(number);
  if (found == parts_.end()) return;  // its client has left
  Part& part = *found->second;
  if (answer.problem) return Fail(part, *answer.problem);
  auto message = std::make_unique<StreamWriter::Message>();
  message->written = std::move(answer.bytes);
  message->whose = number;
  Send(std::move(message));
  EndAnswered(part);
}

// All of its outputs are sent.
void StreamCall::EndAnswered(Part& part) {
  if (part.request.empty_final) {
    auto message = std::make_unique<StreamWriter::Message>();
    ToProto(part.request, {}, *message->response.mutable_infer_response());
    MarkFinal(true, *message->response.mutable_infer_response());
    Send(std::move(message));
  }
  Drop(part);
}

void StreamCall::PartError(Part& part, const ApiError& error) {
  part.id = 0;
  if (part.request.stream && part.answer.pending() && !Emit(part, false)) return;
  Fail(part, error);
}

void StreamCall::Fail(Part& part, const ApiError& error) {
  Refuse(part.request, error);
  Drop(part);
}

// `part` is gone after this.
void StreamCall::Drop(Part& part) {
  QUIRE_CHECK(ids_.erase(part.request.id) == 1);
  QUIRE_CHECK(parts_.erase(part.number) == 1);
  EndIfDone();
}

void StreamCall::PauseOrReadOn() {
  const bool pause = writer_.waiting() > kMaxWaiting;
  if (pause && !reading_paused_) services_.counters.grpc_stream_pauses.Add();
  reading_paused_ = pause;
  call_->SetReading(!pause);
}

void StreamCall::OnHalfClose() {
  half_closed_ = true;
  EndIfDone();
}

void StreamCall::EndIfDone() {
  if (ended_ || !half_closed_ || !parts_.empty()) return;
  ended_ = true;
  writer_.End(absl::OkStatus());
}

void StreamCall::OnCancelled() {
  if (std::exchange(ended_, true)) return;
  *cancelled_ = true;
  services_.counters.grpc_cancelled.Add();
  for (const auto& [number, part] : parts_) {
    if (part->id != 0) services_.pipeline.Cancel(part->id);
  }
  parts_.clear();
  ids_.clear();
  writer_.Drop();
}

void StreamCall::OnTaken(uint64_t whose, uint64_t index) {
  const auto part = parts_.find(whose);
  if (part == parts_.end() || part->second->id == 0) return;
  services_.pipeline.Taken(part->second->id, 0, index);
}

void StreamCall::OnDrained() {
  writer_.Write();
  if (reading_paused_) PauseOrReadOn();
}

}  // namespace quire::oip

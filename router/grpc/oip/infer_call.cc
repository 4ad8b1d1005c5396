#include "router/grpc/oip/infer_call.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "inference/open_inference.pb.h"
#include "router/grpc/auth.h"
#include "router/grpc/call_facts.h"
#include "router/grpc/messages.h"
#include "router/grpc/oip/oip_messages.h"
#include "router/grpc/parsed_bytes.h"
#include "router/keys/tenant_access.h"
#include "router/pipeline/held_bytes.h"

namespace quire::oip {

std::optional<ReadRequest> ReadInferMessage(const GrpcServices& services, const GrpcCallHead& head,
                                            std::string_view bytes, Answering answering) {
  ReadRequest read;
  Result<KeyRing::Tenant> tenant = TenantOf(head, services.keys);
  read.hold = std::make_shared<MemoryHold>(
      services.pipeline.MemoryOf(tenant.ok() ? tenant.value().get() : nullptr));
  const auto& type = *inference::ModelInferRequest::descriptor();
  // The message, and the request that is made of it.
  if (!read.hold->TryResize(ParsedBytes(type, bytes) + bytes.size())) {
    read.problem = TooManyLargeRequests();
    return read;
  }
  inference::ModelInferRequest message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  RequestLimits limits = services.request_limits;
  limits.hold = read.hold.get();
  read.problem = FromProto(message, answering, limits, read.request);
  if (!tenant.ok()) {
    read.problem = tenant.error();
    return read;
  }
  GenerateRequest& generate = read.request.generate;
  ApplyTenant(std::move(tenant.value()), generate);
  generate.request_id = RequestIdOf(head, read.request.id);
  ReadCallFacts(head, services.executor.clock().Now(), generate);
  read.hold->Resize(HeldBytes(generate) + PromptBytes(generate.prompt));
  return read;
}

InferCall::~InferCall() { QUIRE_CHECK(id_ == 0); }

GrpcCallHandler::Step InferCall::Read(std::string_view message) {
  std::optional<ReadRequest> read =
      ReadInferMessage(services_, call_->head(), message, Answering::kOnce);
  if (!read) return {};
  return [this, read = *std::move(read)]() mutable { Begin(std::move(read)); };
}

void InferCall::Begin(ReadRequest read) {
  services_.counters.grpc_requests.Add();
  memory_ = read.hold->account();
  (void)call_->CountFor(memory_);  // a message that finds no memory ends the call
  request_ = std::move(read.request);
  GenerateRequest& generate = request_.generate;
  if (generate.request_id.empty()) generate.request_id = NewRequestId(services_.rng);
  call_->AddInitialMetadata("x-request-id", generate.request_id);
  if (!read.problem) {
    read.problem = CheckModelAccess(services_, generate.tenant, generate.model);
  }
  if (read.problem) return OnError(*read.problem);
  answer_ = std::make_unique<InferAnswer>(request_);
  owner_ = NameOf(generate.tenant);
  id_ = services_.pipeline.Start(std::move(generate), this);
  const std::string trace = trace::TraceResponse(services_.pipeline.TraceOf(id_));
  if (!trace.empty()) call_->AddInitialMetadata("traceresponse", trace);
}

void InferCall::OnCancelled() {
  services_.counters.grpc_cancelled.Add();
  *cancelled_ = true;
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
}

void InferCall::OnFinished(const Usage&) {
  id_ = 0;
  if (!answer_->ended()) {
    ApiError error;
    error.message = "the answer ended without a finish reason";
    return OnError(error);
  }
  const size_t held_bytes = answer_->held_bytes();
  const auto answer = std::make_shared<WholeAnswer>(memory_);
  answer->request = std::move(request_);
  answer->outputs = answer_->Take();
  if (IsLarge(services_, held_bytes)) return AnswerOffLoop(held_bytes, answer);
  inference::ModelInferResponse response;
  answer->Fill(response);
  if (const auto problem = CheckSize(response, services_.limits.max_send_bytes)) {
    return OnError(*problem);
  }
  (void)call_->HoldAnswers(0);
  call_->Send(response);
  call_->Finish(absl::OkStatus());
}

void InferCall::AnswerOffLoop(size_t held_bytes, const std::shared_ptr<WholeAnswer>& answer) {
  const auto done = [self = shared_from_this(), answer] {
    if (!*self->cancelled_) self->Written(*answer);
  };
  const auto problem = WriteOffLoop(services_, {owner_, held_bytes, cancelled_}, answer, done);
  if (problem) OnError(*problem);
}

void InferCall::Written(const WholeAnswer& answer) {
  if (answer.problem) return OnError(*answer.problem);
  (void)call_->HoldAnswers(0);
  call_->SendBytes(answer.bytes);
  call_->Finish(absl::OkStatus());
}

void InferCall::OnError(const ApiError& error) {
  id_ = 0;
  services_.counters.grpc_errors.Add();
  call_->Finish(EndOf(error));
}

}  // namespace quire::oip

#include "router/grpc/oip/infer_call_grpc.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "router/grpc/call_facts_grpc.h"
#include "router/grpc/messages_grpc.h"
#include "router/grpc/oip/oip_messages_grpc.h"
#include "router/keys/tenant_access.h"

namespace quire::oip {

InferCall::~InferCall() { QUIRE_CHECK(reactor_ == nullptr && id_ == 0); }

void InferCall::Begin(grpc::CallbackServerContext& context, std::optional<ApiError> problem,
                      InferRequest request) {
  if (reactor_ == nullptr) return;  // the client was faster with leaving
  context_ = &context;
  services_.counters.grpc_requests.Add();
  request_ = std::move(request);
  GenerateRequest& generate = request_.generate;
  if (generate.request_id.empty()) generate.request_id = NewRequestId(services_.rng);
  context.AddInitialMetadata("x-request-id", generate.request_id);
  if (!problem && NarrowsModels(generate.tenant)) {
    problem = CheckModelAccess(services_.pipeline.Models(), generate.tenant.get(), generate.model);
  }
  if (problem) return OnError(*problem);
  answer_ = std::make_unique<InferAnswer>(request_);
  id_ = services_.pipeline.Start(std::move(generate), this);
  const std::string trace = trace::TraceResponse(services_.pipeline.TraceOf(id_));
  if (!trace.empty()) context.AddInitialMetadata("traceresponse", trace);
}

void InferCall::Cancelled() {
  if (reactor_ == nullptr) return;
  services_.counters.grpc_cancelled.Add();
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
  Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client gave the call up"));
}

void InferCall::OnFinished(const Usage&) {
  id_ = 0;
  if (!answer_->ended()) {
    ApiError error;
    error.message = "the answer ended without a finish reason";
    return OnError(error);
  }
  ToProto(request_, answer_->Take(), *response_);
  MarkFinal(true, *response_);
  if (const auto problem = CheckSize(*response_, services_.limits.max_send_bytes)) {
    return OnError(*problem);
  }
  Finish(grpc::Status::OK);
}

void InferCall::OnError(const ApiError& error) {
  id_ = 0;
  if (reactor_ == nullptr) return;
  services_.counters.grpc_errors.Add();
  if (error.retry_after_ms > 0) {
    const uint32_t seconds = (error.retry_after_ms + 999) / 1000;
    context_->AddTrailingMetadata("retry-after", std::to_string(seconds));
    context_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after_ms));
  }
  Finish(ToStatus(error));
}

void InferCall::Finish(const grpc::Status& status) {
  std::exchange(reactor_, nullptr)->Finish(status);
}

}  // namespace quire::oip

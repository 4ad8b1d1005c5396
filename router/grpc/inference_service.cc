#include "router/grpc/inference_service.h"

#include <memory>
#include <utility>

#include "quire/v1/inference.pb.h"
#include "router/grpc/answer_call.h"
#include "router/grpc/auth.h"
#include "router/grpc/call_facts.h"
#include "router/grpc/messages.h"
#include "router/grpc/parsed_bytes.h"
#include "router/grpc/tokenize_call.h"
#include "router/keys/tenant_access.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

using Step = GrpcCallHandler::Step;

template <class Message>
class AnswerHandler final : public AnswerCall {
 public:
  using AnswerCall::AnswerCall;

  Step Read(std::string_view bytes) override {
    const GrpcCallHead& head = call().head();
    const GrpcServices& services = this->services();
    GenerateRequest request;
    std::optional<ApiError> problem;
    Result<KeyRing::Tenant> tenant = TenantOf(head, services.keys);
    const auto hold = std::make_shared<MemoryHold>(
        services.pipeline.MemoryOf(tenant.ok() ? tenant.value().get() : nullptr));
    // The message, and the request that is made of it.
    if (!hold->TryResize(ParsedBytes(*Message::descriptor(), bytes) + bytes.size())) {
      return [this] { Begin(TooManyLargeRequests(), {}, false); };
    }
    Message message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
    if (tenant.ok()) {
      RequestLimits limits = services.request_limits;
      limits.hold = hold.get();
      problem = FromProto(message, request, limits);
      ApplyTenant(std::move(tenant.value()), request);
    } else {
      problem = tenant.error();
    }
    request.request_id = RequestIdOf(head, message.request_id());
    ReadCallFacts(head, services.executor.clock().Now(), request);
    hold->Resize(HeldBytes(request) + PromptBytes(request.prompt));
    return [this, problem = std::move(problem), request = std::move(request), hold,
            joins = message.joined_events()]() mutable {
      (void)call().CountFor(hold->account());  // a message that finds no memory ends the call
      Begin(std::move(problem), std::move(request), joins);
    };
  }
};

template <class Message>
GrpcMethod AnswerMethod(GrpcServices& services) {
  return {false, [&services](std::shared_ptr<GrpcCall> call) {
            return std::make_shared<AnswerHandler<Message>>(services, std::move(call));
          }};
}

Step ListModels(GrpcServices& services, const std::shared_ptr<GrpcCall>& call) {
  return [&services, call, tenant = TenantOf(call->head(), services.keys)] {
    if (!tenant.ok()) return call->Finish(EndOf(tenant.error()));
    services.counters.grpc_requests.Add();
    v1::ListModelsResponse response;
    for (const ModelEntry& model :
         VisibleModels(services.pipeline.Models(), tenant.value().get())) {
      ToProto(model, *response.add_models());
    }
    call->Send(response);
    call->Finish(absl::OkStatus());
  };
}

}  // namespace

void AddInference(GrpcServices& services, GrpcMethods& methods) {
  const std::string service = "quire.v1.Inference";
  methods.Add(service, "Generate", AnswerMethod<v1::GenerateRequest>(services));
  methods.Add(service, "Chat", AnswerMethod<v1::ChatRequest>(services));
  methods.Add(service, "ListModels",
              OneMessageMethod<v1::ListModelsRequest>([&services](const auto& call, const auto&) {
                return ListModels(services, call);
              }));
  methods.Add(service, "Tokenize", TokenizeMethod(services));
}

}  // namespace quire

#include "router/grpc/tokenize_call.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "quire/v1/inference.pb.h"
#include "router/grpc/auth.h"
#include "router/grpc/call_facts.h"
#include "router/grpc/messages.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

// At most, for an id in a packed list: vocabularies are far below 2^21.
constexpr size_t kBytesPerId = 3;

// The answer as bytes of its message.
std::string BytesOf(const TokenizeResult& result) {
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(result.ids.begin(), result.ids.end());
  response.set_max_model_len(result.max_model_len);
  return response.SerializeAsString();
}

// Owners: its call, and the work that it waits for; event loop only, except for Read.
class TokenizeHandler final : public GrpcCallHandler,
                              public std::enable_shared_from_this<TokenizeHandler> {
 public:
  TokenizeHandler(GrpcServices& services, std::shared_ptr<GrpcCall> call)
      : services_(services), call_(std::move(call)) {}

  Step Read(std::string_view message) override {
    v1::TokenizeRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    Prompt prompt;
    Result<KeyRing::Tenant> tenant = TenantOf(call_->head(), services_.keys);
    std::optional<ApiError> problem = tenant.ok()
                                          ? FromProto(request, prompt, services_.request_limits)
                                          : std::optional(tenant.error());
    if (problem) {
      return [this, problem = std::move(problem)] { call_->Finish(EndOf(*problem)); };
    }
    return [this, model = request.model(), prompt = std::move(prompt),
            tenant = std::move(tenant.value())]() mutable {
      Ask({model, std::move(tenant), cancelled_}, std::move(prompt));
    };
  }

  void OnCancelled() override { *cancelled_ = true; }

 private:
  void Ask(TextAsk by, Prompt prompt) {
    services_.counters.grpc_requests.Add();
    const auto forbidden = CheckModelAccess(services_, by.tenant, by.model);
    if (forbidden) return call_->Finish(EndOf(*forbidden));
    (void)call_->CountFor(services_.pipeline.MemoryOf(by.tenant.get()));
    owner_ = NameOf(by.tenant);
    services_.pipeline.Tokenize(
        {std::move(by), std::move(prompt)},
        [self = shared_from_this()](Result<TokenizeResult> result) {
          if (!result.ok()) return self->call_->Finish(EndOf(result.error()));
          self->Answer(std::make_shared<TokenizeResult>(std::move(result.value())));
        });
  }

  void Answer(std::shared_ptr<const TokenizeResult> result) {
    const size_t bytes = result->ids.size() * kBytesPerId;
    if (bytes <= services_.limits.background_write_bytes) return Reply(BytesOf(*result));
    // What is written counts in the result's hold until the call has it.
    auto written = std::make_shared<std::string>();
    const auto work = [result, written] { *written = BytesOf(*result); };
    const auto done = [self = shared_from_this(), result, written] {
      if (!*self->cancelled_) self->Reply(*written);
    };
    if (services_.background.RunFor({owner_, bytes, cancelled_}, work, done)) return;
    call_->Finish(EndOf(TooManyLargeRequests()));
  }

  void Reply(const std::string& message) {
    call_->SendBytes(message);
    call_->Finish(absl::OkStatus());
  }

  GrpcServices& services_;
  const std::shared_ptr<GrpcCall> call_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::string owner_;  // the tenant's name
};

}  // namespace

GrpcMethod TokenizeMethod(GrpcServices& services) {
  GrpcMethod method;
  method.begin = [&services](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<TokenizeHandler>(services, std::move(call));
  };
  return method;
}

}  // namespace quire

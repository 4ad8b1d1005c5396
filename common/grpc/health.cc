#include "common/grpc/health.h"

#include <memory>
#include <optional>
#include <utility>

#include "grpc/health/v1/health.pb.h"

namespace quire {
namespace {

constexpr char kService[] = "grpc.health.v1.Health";

using Request = grpc::health::v1::HealthCheckRequest;
using Response = grpc::health::v1::HealthCheckResponse;

GrpcMethod Modest(GrpcMethod method) {
  method.keeps_metadata = false;
  method.max_message_bytes = kMaxHealthQuestionBytes;
  method.message_timeout = kHealthQuestionTimeout;
  return method;
}

}  // namespace

class HealthService::Watcher final : public GrpcCallHandler {
 public:
  Watcher(HealthService& health, std::shared_ptr<GrpcCall> call)
      : health_(health), call_(std::move(call)) {}

  Step Read(std::string_view message) override {
    Request request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return [this, service = request.service()] {
      service_ = service;
      begun_ = true;
      health_.Watch(*this);
      Tell();
    };
  }
  void OnCancelled() override { health_.Forget(*this); }
  void OnDrained() override { Tell(); }
  void Tell() {
    if (!begun_ || !call_->drained()) return;
    const auto state = !health_.Knows(service_) ? Response::SERVICE_UNKNOWN
                       : health_.serving()      ? Response::SERVING
                                                : Response::NOT_SERVING;
    if (told_ == state) return;
    told_ = state;
    Response response;
    response.set_status(state);
    call_->Send(response);
  }

 private:
  HealthService& health_;
  const std::shared_ptr<GrpcCall> call_;
  std::string service_;
  bool begun_ = false;
  std::optional<Response::ServingStatus> told_;
};

bool HealthService::Knows(const std::string& service) const {
  return service.empty() ||
         (!service.starts_with("grpc.") && methods_.services().contains(service));
}

void HealthService::Set(bool serving) {
  if (serving == std::exchange(serving_, serving)) return;
  for (Watcher* watcher : watchers_) watcher->Tell();
}

void AddHealth(HealthService& health, GrpcMethods& methods) {
  const auto check = [&health](const std::shared_ptr<GrpcCall>& call, const Request& request) {
    return [&health, call, service = request.service()] {
      if (!health.Knows(service)) {
        return call->Finish(absl::NotFoundError("service name unknown"));
      }
      Response response;
      response.set_status(health.serving() ? Response::SERVING : Response::NOT_SERVING);
      call->Send(response);
      call->Finish(absl::OkStatus());
    };
  };
  methods.Add(kService, "Check", Modest(OneMessageMethod<Request>(check)));
  const auto list = [&health, &methods](const std::shared_ptr<GrpcCall>& call,
                                        const grpc::health::v1::HealthListRequest&) {
    return [&health, &methods, call] {
      Response state;
      state.set_status(health.serving() ? Response::SERVING : Response::NOT_SERVING);
      grpc::health::v1::HealthListResponse response;
      (*response.mutable_statuses())[""] = state;
      for (const std::string& service : methods.services()) {
        if (health.Knows(service)) (*response.mutable_statuses())[service] = state;
      }
      call->Send(response);
      call->Finish(absl::OkStatus());
    };
  };
  methods.Add(kService, "List",
              Modest(OneMessageMethod<grpc::health::v1::HealthListRequest>(list)));
  GrpcMethod watch = Modest({.begin = [&health](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<HealthService::Watcher>(health, std::move(call));
  }});
  watch.max_per_connection = kMaxWatchesPerConnection;
  methods.Add(kService, "Watch", std::move(watch));
}

}  // namespace quire

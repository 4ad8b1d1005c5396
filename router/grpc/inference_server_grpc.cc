#include "router/grpc/inference_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "grpc/health/v1/health.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "router/grpc/answer_call_grpc.h"
#include "router/grpc/auth_grpc.h"
#include "router/grpc/call_facts_grpc.h"
#include "router/grpc/messages_grpc.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

// The face that gRPC's threads see of an AnswerCall; deletes itself when gRPC is done with it.
class AnswerReactor final : public AnswerCall::Reactor {
 public:
  explicit AnswerReactor(GrpcServices& services)
      : services_(services), call_(std::make_shared<AnswerCall>(services, this)) {}

  template <class Message>
  void Begin(grpc::CallbackServerContext& context, const Message& message) {
    GenerateRequest request;
    std::optional<ApiError> problem;
    Result<KeyRing::Tenant> tenant = TenantOf(context, services_.keys);
    if (tenant.ok()) {
      problem = FromProto(message, request, services_.request_limits);
      ApplyTenant(std::move(tenant.value()), request);
    } else {
      problem = tenant.error();
    }
    call_->JoinEvents(message.joined_events());
    request.request_id = RequestIdOf(context, message.request_id());
    ReadCallFacts(context, request);
    services_.executor.Post([&services = services_, &context, call = call_,
                             problem = std::move(problem), request = std::move(request)]() mutable {
      services.counters.grpc_requests.Add();
      call->SetContext(&context);
      if (request.request_id.empty()) request.request_id = NewRequestId(services.rng);
      // Nothing has been written and the call has not been finished: the context is still there.
      context.AddInitialMetadata("x-request-id", request.request_id);
      if (!problem && NarrowsModels(request.tenant)) {
        problem = CheckModelAccess(services.pipeline.Models(), request.tenant.get(), request.model);
      }
      if (problem) {
        call->Refuse(*problem);
        return;
      }
      call->Begin(std::move(request));
    });
  }

  // The loop hears of what it has to act on alone.
  void OnWriteDone(bool ok) override {
    const WriteNews news = call_->Written(ok);
    if (!news.broken && !news.taken) return;
    services_.executor.Post([call = call_, news] { call->Heard(news); });
  }
  void OnCancel() override {
    services_.executor.Post([call = call_] { call->Cancelled(); });
  }
  void OnDone() override { delete this; }

 private:
  GrpcServices& services_;
  std::shared_ptr<AnswerCall> call_;
};

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(GrpcServices& services) : services_(services) {}

  AnswerCall::Reactor* Generate(grpc::CallbackServerContext* context,
                                const v1::GenerateRequest* request) override {
    auto* reactor = new AnswerReactor(services_);
    reactor->Begin(*context, *request);
    return reactor;
  }

  AnswerCall::Reactor* Chat(grpc::CallbackServerContext* context,
                            const v1::ChatRequest* request) override {
    auto* reactor = new AnswerReactor(services_);
    reactor->Begin(*context, *request);
    return reactor;
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Result<KeyRing::Tenant> tenant = TenantOf(*context, services_.keys);
    if (!tenant.ok()) {
      reactor->Finish(ToStatus(tenant.error()));
      return reactor;
    }
    services_.executor.Post(
        [&services = services_, reactor, response, tenant = std::move(tenant.value())] {
          services.counters.grpc_requests.Add();
          for (const ModelEntry& model : VisibleModels(services.pipeline.Models(), tenant.get())) {
            ToProto(model, *response->add_models());
          }
          reactor->Finish(grpc::Status::OK);
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Prompt prompt;
    Result<KeyRing::Tenant> tenant = TenantOf(*context, services_.keys);
    const std::optional<ApiError> problem =
        tenant.ok() ? FromProto(*request, prompt, services_.request_limits)
                    : std::optional(tenant.error());
    if (problem) {
      reactor->Finish(ToStatus(*problem));
      return reactor;
    }
    services_.executor.Post([&services = services_, reactor, response, model = request->model(),
                             prompt = std::move(prompt),
                             tenant = std::move(tenant.value())]() mutable {
      services.counters.grpc_requests.Add();
      if (NarrowsModels(tenant)) {
        const auto forbidden = CheckModelAccess(services.pipeline.Models(), tenant.get(), model);
        if (forbidden) return reactor->Finish(ToStatus(*forbidden));
      }
      services.pipeline.Tokenize(
          model, std::move(prompt), [reactor, response](absl::StatusOr<TokenizeResult> result) {
            if (!result.ok()) {
              // The codes of Abseil's statuses are gRPC's.
              reactor->Finish(grpc::Status(static_cast<grpc::StatusCode>(result.status().code()),
                                           StatusMessage(result.status())));
              return;
            }
            response->mutable_token_ids()->Add(result->ids.begin(), result->ids.end());
            response->set_max_model_len(result->max_model_len);
            reactor->Finish(grpc::Status::OK);
          });
    });
    return reactor;
  }

 private:
  GrpcServices& services_;
};

void SetLimits(const GrpcLimits& limits, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(limits.max_receive_bytes);
  builder.SetMaxSendMessageSize(limits.max_send_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  // No probes for a better window: their pings and timers cost more than short requests do, and a
  // long message is given the window that it needs.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A client that vanished without a word is noticed by these pings, through the front, and proxies
  // on the way see that a connection is in use whose streams are queued.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(limits.keep_alive / kMicrosPerMilli));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      static_cast<int>(std::max<Micros>(1, limits.idle_timeout / kMicrosPerMilli)));
  grpc::ResourceQuota quota("quire-router");
  quota.Resize(limits.memory_quota_bytes);
  builder.SetResourceQuota(quota);
}

}  // namespace

void GrpcServices::AfterTurn(std::function<void()> work) {
  after_turn.push_back(std::move(work));
  if (after_turn.size() > 1) return;
  executor.Post([this] {
    const std::vector<std::function<void()>> all = std::exchange(after_turn, {});
    for (const std::function<void()>& one : all) one();
  });
}

struct InferenceServer::State {
  explicit State(GrpcServices& grpc_services) : services(grpc_services), service(grpc_services) {}

  void RefreshHealth() {
    const bool serving = !draining && services.pipeline.Ready() && services.pipeline.Healthy();
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    if (health != nullptr && (!health_set || serving != healthy)) {
      health->SetServingStatus("", serving);
      health->SetServingStatus(v1::Inference::service_full_name(), serving);
      for (const AddedService& added : more) health->SetServingStatus(added.name, serving);
      healthy = serving;
      health_set = true;
    }
    health_timer = services.executor.PostAt(
        services.executor.clock().Now() + services.limits.health_interval, [this] {
          health_timer = 0;
          RefreshHealth();
        });
  }

  struct AddedService {
    std::string name;
    std::unique_ptr<grpc::Service> service;
  };

  GrpcServices& services;
  InferenceService service;
  std::vector<AddedService> more;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  TimerId health_timer = 0;
  bool health_set = false;
  bool healthy = false;
  bool draining = false;
};

InferenceServer::InferenceServer(GrpcServices& services)
    : state_(std::make_unique<State>(services)) {}

InferenceServer::~InferenceServer() {
  if (state_->health_timer != 0) state_->services.executor.Cancel(state_->health_timer);
}

void InferenceServer::AddService(std::string name, std::unique_ptr<grpc::Service> service) {
  QUIRE_CHECK(!state_->server);
  state_->more.push_back({std::move(name), std::move(service)});
}

absl::Status InferenceServer::Start() {
  grpc::EnableDefaultHealthCheckService(true);
  // Naming the messages brings their descriptors into the program, where reflection looks for them.
  QUIRE_CHECK(grpc::health::v1::HealthCheckRequest::descriptor() != nullptr);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(state_->services.limits, builder);
  builder.RegisterService(&state_->service);
  for (const State::AddedService& added : state_->more) {
    builder.RegisterService(added.service.get());
  }
  state_->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      MakeEdgeCredentials(state_->services.keys));
  state_->server = builder.BuildAndStart();
  if (!state_->server) return absl::InternalError("the gRPC server did not start");
  state_->RefreshHealth();
  return absl::OkStatus();
}

void InferenceServer::Adopt(int fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd;
  state_->acceptor->HandleNewConnection(&connection);
}

void InferenceServer::StartDraining() {
  state_->services.leaving = true;
  state_->draining = true;
  if (state_->health_timer != 0) state_->services.executor.Cancel(state_->health_timer);
  state_->health_timer = 0;
  state_->RefreshHealth();
}

void InferenceServer::CancelCalls() { grpc_server_cancel_all_calls(state_->server->c_server()); }

void InferenceServer::Shutdown(Micros grace) {
  if (!state_->server) return;
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::microseconds(grace));
}

}  // namespace quire

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "inference/open_inference.grpc.pb.h"
#include "router/grpc/auth_grpc.h"
#include "router/grpc/call_facts_grpc.h"
#include "router/grpc/messages_grpc.h"
#include "router/grpc/oip/infer_call_grpc.h"
#include "router/grpc/oip/oip_messages_grpc.h"
#include "router/grpc/oip/open_inference.h"
#include "router/grpc/oip/stream_call_grpc.h"
#include "router/keys/tenant_access.h"

namespace quire::oip {
namespace {

using Problem = std::optional<ApiError>;

// On one of gRPC's threads: credentials, the message, and what the call says beside it.
Problem ReadRequest(const GrpcServices& services, const grpc::CallbackServerContext& context,
                    const inference::ModelInferRequest& message, Answering answering,
                    InferRequest& out) {
  Result<KeyRing::Tenant> tenant = TenantOf(context, services.keys);
  Problem problem = FromProto(message, answering, services.request_limits, out);
  if (!tenant.ok()) return tenant.error();
  ApplyTenant(std::move(tenant.value()), out.generate);
  out.generate.request_id = RequestIdOf(context, out.id);
  ReadCallFacts(context, out.generate);
  return problem;
}

// The faces that gRPC's threads see of a call; they delete themselves when gRPC is done with them.
class InferReactor final : public grpc::ServerUnaryReactor {
 public:
  InferReactor(GrpcServices& services, grpc::CallbackServerContext& context,
               const inference::ModelInferRequest& message, inference::ModelInferResponse* response)
      : services_(services), call_(std::make_shared<InferCall>(services, this, response)) {
    InferRequest request;
    Problem problem = ReadRequest(services, context, message, Answering::kOnce, request);
    services.executor.Post([call = call_, &context, problem = std::move(problem),
                            request = std::move(request)]() mutable {
      call->Begin(context, std::move(problem), std::move(request));
    });
  }

  void OnCancel() override {
    services_.executor.Post([call = call_] { call->Cancelled(); });
  }
  void OnDone() override { delete this; }

 private:
  GrpcServices& services_;
  std::shared_ptr<InferCall> call_;
};

class StreamReactor final : public StreamWriter::Reactor {
 public:
  StreamReactor(GrpcServices& services, grpc::CallbackServerContext& context)
      : services_(services),
        context_(context),
        call_(std::make_shared<StreamCall>(services, this, [this] { StartRead(&message_); })) {
    services.executor.Post([&services] { services.counters.grpc_requests.Add(); });
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      services_.executor.Post([call = call_] { call->HalfClosed(); });
      return;
    }
    InferRequest request;
    Problem problem = ReadRequest(services_, context_, message_, Answering::kStream, request);
    services_.executor.Post(
        [call = call_, problem = std::move(problem), request = std::move(request)]() mutable {
          call->Take(std::move(problem), std::move(request));
        });
  }
  void OnWriteDone(bool ok) override {
    const WriteNews news = call_->Written(ok);
    if (!news.broken && !news.taken && !news.drained) return;
    services_.executor.Post([call = call_, news] { call->Heard(news); });
  }
  void OnCancel() override {
    services_.executor.Post([call = call_] { call->Cancelled(); });
  }
  void OnDone() override { delete this; }

 private:
  GrpcServices& services_;
  grpc::CallbackServerContext& context_;
  inference::ModelInferRequest message_;
  std::shared_ptr<StreamCall> call_;
};

// The model of that name that this tenant may see.
Result<ModelEntry> FindModel(GrpcServices& services, const TenantProfile* tenant,
                             std::string_view name) {
  for (ModelEntry& model : VisibleModels(services.pipeline.Models(), tenant)) {
    if (model.name == name) return std::move(model);
  }
  ApiError error;
  error.code = ApiCode::kNotFound;
  error.param = "model_name";
  error.message = "model_name: \"" + std::string(name.substr(0, 256)) + "\" is not served";
  return error;
}

class OpenInferenceService final : public inference::GRPCInferenceService::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;

  explicit OpenInferenceService(GrpcServices& services) : services_(services) {}

  grpc::ServerUnaryReactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                                       inference::ServerLiveResponse* response) override {
    return Answer(*context, [response](GrpcServices&, const TenantProfile*) {
      response->set_live(true);
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                                        inference::ServerReadyResponse* response) override {
    return Answer(*context, [response](GrpcServices& services, const TenantProfile*) {
      const Pipeline& pipeline = services.pipeline;
      response->set_ready(!services.leaving && pipeline.Ready() && pipeline.Healthy());
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* ModelReady(Context* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override {
    return OfModel(*context, *request, [response](const ModelEntry& model) {
      response->set_ready(model.workers_ready > 0);
    });
  }

  grpc::ServerUnaryReactor* ServerMetadata(Context* context,
                                           const inference::ServerMetadataRequest*,
                                           inference::ServerMetadataResponse* response) override {
    return Answer(*context, [response](GrpcServices& services, const TenantProfile*) {
      response->set_name("quire");
      response->set_version(services.version);
      response->add_extensions("model_configuration");
      response->add_extensions("generate");
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* ModelMetadata(Context* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override {
    return OfModel(*context, *request,
                   [response](const ModelEntry& model) { DescribeModel(model.name, *response); });
  }

  grpc::ServerUnaryReactor* ModelConfig(Context* context,
                                        const inference::ModelConfigRequest* request,
                                        inference::ModelConfigResponse* response) override {
    return OfModel(*context, *request, [response](const ModelEntry& model) {
      DescribeModel(model.name, *response->mutable_config());
    });
  }

  grpc::ServerUnaryReactor* ModelInfer(Context* context,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override {
    return new InferReactor(services_, *context, *request, response);
  }

  StreamWriter::Reactor* ModelStreamInfer(Context* context) override {
    return new StreamReactor(services_, *context);
  }

 private:
  // `answer` runs on the loop: Status(GrpcServices&, const TenantProfile*).
  template <class Function>
  grpc::ServerUnaryReactor* Answer(Context& context, Function answer) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    Result<KeyRing::Tenant> tenant = TenantOf(context, services_.keys);
    if (!tenant.ok()) {
      reactor->Finish(ToStatus(tenant.error()));
      return reactor;
    }
    services_.executor.Post([&services = services_, reactor, answer = std::move(answer),
                             tenant = std::move(tenant.value())] {
      services.counters.grpc_requests.Add();
      reactor->Finish(answer(services, tenant.get()));
    });
    return reactor;
  }

  // What is asked of one model: `describe` runs on the loop with it.
  template <class Request, class Function>
  grpc::ServerUnaryReactor* OfModel(Context& context, const Request& request, Function describe) {
    return Answer(context, [name = request.name(), version = request.version(),
                            describe = std::move(describe)](GrpcServices& services,
                                                            const TenantProfile* tenant) {
      if (const Problem problem = CheckVersion(version, "version")) return ToStatus(*problem);
      const Result<ModelEntry> model = FindModel(services, tenant, name);
      if (!model.ok()) return ToStatus(model.error());
      describe(model.value());
      return grpc::Status::OK;
    });
  }

  GrpcServices& services_;
};

}  // namespace

void AddOpenInference(GrpcServices& services, InferenceServer& server) {
  server.AddService(inference::GRPCInferenceService::service_full_name(),
                    std::make_unique<OpenInferenceService>(services));
}

}  // namespace quire::oip

#include "router/grpc/oip/open_inference.h"

#include <memory>
#include <string>
#include <utility>

#include "inference/open_inference.pb.h"
#include "router/grpc/auth.h"
#include "router/grpc/oip/infer_call.h"
#include "router/grpc/oip/oip_messages.h"
#include "router/grpc/oip/stream_call.h"
#include "router/keys/tenant_access.h"

namespace quire::oip {
namespace {

constexpr char kService[] = "inference.GRPCInferenceService";

// The model of that name that this tenant may see.
Result<ModelEntry> FindModel(const GrpcServices& services, const TenantProfile* tenant,
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

// `answer` runs on the loop: optional<ApiError>(const GrpcServices&, const TenantProfile*,
// const Request&, Response&).
template <class Request, class Response, class Function>
GrpcMethod Answer(Function answer) {
  return OneMessageMethod<Request>([answer](const std::shared_ptr<GrpcCall>& call,
                                            const Request& request) -> GrpcCallHandler::Step {
    return [answer, call, request, tenant = TenantOf(call->head(), call->services().keys)] {
      if (!tenant.ok()) return call->Finish(tenant.error());
      call->services().counters.grpc_requests.Add();
      Response response;
      const std::optional<ApiError> problem =
          answer(call->services(), tenant.value().get(), request, response);
      if (problem) return call->Finish(*problem);
      call->Send(response);
      call->Finish(absl::OkStatus());
    };
  });
}

// What is asked of one model: `describe` is given it.
template <class Request, class Response, class Function>
GrpcMethod OfModel(Function describe) {
  return Answer<Request, Response>(
      [describe](const GrpcServices& services, const TenantProfile* tenant, const Request& request,
                 Response& response) -> std::optional<ApiError> {
        if (auto problem = CheckVersion(request.version(), "version")) return problem;
        const Result<ModelEntry> model = FindModel(services, tenant, request.name());
        if (!model.ok()) return model.error();
        describe(model.value(), response);
        return std::nullopt;
      });
}

template <class Handler>
std::shared_ptr<GrpcCallHandler> Make(std::shared_ptr<GrpcCall> call) {
  return std::make_shared<Handler>(std::move(call));
}

void AddServer(GrpcMethods& methods) {
  using inference::ServerLiveRequest, inference::ServerLiveResponse;
  using inference::ServerMetadataRequest, inference::ServerMetadataResponse;
  using inference::ServerReadyRequest, inference::ServerReadyResponse;
  methods.Add(kService, "ServerLive",
             Answer<ServerLiveRequest, ServerLiveResponse>(
                 [](const auto&, const auto*, const auto&, ServerLiveResponse& response) {
                   response.set_live(true);
                   return std::nullopt;
                 }));
  methods.Add(kService, "ServerReady",
             Answer<ServerReadyRequest, ServerReadyResponse>([](const GrpcServices& services,
                                                                const auto*, const auto&,
                                                                ServerReadyResponse& response) {
               const Pipeline& pipeline = services.pipeline;
               response.set_ready(!services.leaving && pipeline.Ready() && pipeline.Healthy());
               return std::nullopt;
             }));
  methods.Add(kService, "ServerMetadata",
             Answer<ServerMetadataRequest, ServerMetadataResponse>(
                 [](const GrpcServices& services, const auto*, const auto&,
                    ServerMetadataResponse& response) {
                   response.set_name("quire");
                   response.set_version(services.version);
                   response.add_extensions("model_configuration");
                   response.add_extensions("generate");
                   return std::nullopt;
                 }));
}

void AddModels(GrpcMethods& methods) {
  using inference::ModelConfigRequest, inference::ModelConfigResponse;
  using inference::ModelMetadataRequest, inference::ModelMetadataResponse;
  using inference::ModelReadyRequest, inference::ModelReadyResponse;
  methods.Add(kService, "ModelReady",
             OfModel<ModelReadyRequest, ModelReadyResponse>(
                 [](const ModelEntry& model, ModelReadyResponse& response) {
                   response.set_ready(model.workers_ready > 0);
                 }));
  methods.Add(kService, "ModelMetadata",
             OfModel<ModelMetadataRequest, ModelMetadataResponse>(
                 [](const ModelEntry& model, ModelMetadataResponse& response) {
                   DescribeModel(model.name, response);
                 }));
  methods.Add(kService, "ModelConfig",
             OfModel<ModelConfigRequest, ModelConfigResponse>(
                 [](const ModelEntry& model, ModelConfigResponse& response) {
                   DescribeModel(model.name, *response.mutable_config());
                 }));
}

}  // namespace

void AddOpenInference(GrpcMethods& methods) {
  AddServer(methods);
  AddModels(methods);
  methods.Add(kService, "ModelInfer", {false, Make<InferCall>});
  methods.Add(kService, "ModelStreamInfer", {true, Make<StreamCall>});
}

}  // namespace quire::oip

#include "router/grpc/oip/open_inference.h"

#include <memory>
#include <string>
#include <utility>

#include "inference/open_inference.pb.h"
#include "router/grpc/auth.h"
#include "router/grpc/messages.h"
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
GrpcMethod Answer(GrpcServices& services, Function answer) {
  return OneMessageMethod<Request>(
      [&services, answer](const std::shared_ptr<GrpcCall>& call,
                          const Request& request) -> GrpcCallHandler::Step {
        return [&services, answer, call, request, tenant = TenantOf(call->head(), services.keys)] {
          if (!tenant.ok()) return call->Finish(EndOf(tenant.error()));
          services.counters.grpc_requests.Add();
          Response response;
          const std::optional<ApiError> problem =
              answer(services, tenant.value().get(), request, response);
          if (problem) return call->Finish(EndOf(*problem));
          call->Send(response);
          call->Finish(absl::OkStatus());
        };
      });
}

// A query about one model: `describe` gets the model.
template <class Request, class Response, class Function>
GrpcMethod OfModel(GrpcServices& services, Function describe) {
  return Answer<Request, Response>(
      services,
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
GrpcMethod Handled(GrpcServices& services, bool many_messages) {
  return {many_messages, [&services](std::shared_ptr<GrpcCall> call) {
            return std::make_shared<Handler>(services, std::move(call));
          }};
}

void AddServer(GrpcServices& services, GrpcMethods& methods) {
  using inference::ServerLiveRequest, inference::ServerLiveResponse;
  using inference::ServerMetadataRequest, inference::ServerMetadataResponse;
  using inference::ServerReadyRequest, inference::ServerReadyResponse;
  methods.Add(
      kService, "ServerLive",
      Answer<ServerLiveRequest, ServerLiveResponse>(
          services, [](const auto&, const auto*, const auto&, ServerLiveResponse& response) {
            response.set_live(true);
            return std::nullopt;
          }));
  methods.Add(kService, "ServerReady",
              Answer<ServerReadyRequest, ServerReadyResponse>(
                  services, [](const GrpcServices& asked, const auto*, const auto&,
                               ServerReadyResponse& response) {
                    const Pipeline& pipeline = asked.pipeline;
                    response.set_ready(!asked.leaving && pipeline.Ready() && pipeline.Healthy());
                    return std::nullopt;
                  }));
  methods.Add(kService, "ServerMetadata",
              Answer<ServerMetadataRequest, ServerMetadataResponse>(
                  services, [](const GrpcServices& asked, const auto*, const auto&,
                               ServerMetadataResponse& response) {
                    response.set_name("quire");
                    response.set_version(asked.version);
                    response.add_extensions("model_configuration");
                    response.add_extensions("generate");
                    return std::nullopt;
                  }));
}

void AddModels(GrpcServices& services, GrpcMethods& methods) {
  using inference::ModelConfigRequest, inference::ModelConfigResponse;
  using inference::ModelMetadataRequest, inference::ModelMetadataResponse;
  using inference::ModelReadyRequest, inference::ModelReadyResponse;
  methods.Add(kService, "ModelReady",
              OfModel<ModelReadyRequest, ModelReadyResponse>(
                  services, [](const ModelEntry& model, ModelReadyResponse& response) {
                    response.set_ready(model.workers_ready > 0);
                  }));
  methods.Add(kService, "ModelMetadata",
              OfModel<ModelMetadataRequest, ModelMetadataResponse>(
                  services, [](const ModelEntry& model, ModelMetadataResponse& response) {
                    DescribeModel(model.name, response);
                  }));
  methods.Add(kService, "ModelConfig",
              OfModel<ModelConfigRequest, ModelConfigResponse>(
                  services, [](const ModelEntry& model, ModelConfigResponse& response) {
                    DescribeModel(model.name, *response.mutable_config());
                  }));
}

}  // namespace

void AddOpenInference(GrpcServices& services, GrpcMethods& methods) {
  AddServer(services, methods);
  AddModels(services, methods);
  methods.Add(kService, "ModelInfer", Handled<InferCall>(services, false));
  methods.Add(kService, "ModelStreamInfer", Handled<StreamCall>(services, true));
}

}  // namespace quire::oip

#include "router/http/oip_routes.h"

#include <utility>

#include "common/json/json.h"
#include "router/http/errors.h"
#include "router/http/oip_call.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;

constexpr std::string_view kModels = "/v2/models/";
constexpr std::string_view kVersions = "/versions/";

CallPtr Reply(Exchange& exchange, int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  response.headers.emplace_back("Cache-Control", "no-store");
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr Fail(Exchange& exchange, const ApiError& error) {
  exchange.Reply(OipError(error));
  return nullptr;
}

// A served name may have slashes in it: the path is read from its end.
bool CutSuffix(std::string_view suffix, std::string_view& path) {
  if (!path.ends_with(suffix)) return false;
  path.remove_suffix(suffix.size());
  return true;
}

oip::ModelPath PathOf(std::string_view rest) {
  oip::ModelPath path;
  const size_t at = rest.rfind(kVersions);
  const bool versioned = at != std::string_view::npos && at > 0 &&
                         rest.find('/', at + kVersions.size()) == std::string_view::npos;
  if (versioned) {
    path.version = std::string(rest.substr(at + kVersions.size()));
    rest = rest.substr(0, at);
  }
  path.model = std::string(rest);
  return path;
}

ApiError NotFound(std::string message) { return {ApiCode::kNotFound, std::move(message), "", 0}; }

}  // namespace

HttpResponse OipError(const ApiError& error) {
  HttpResponse response = ErrorResponse(error);
  response.body = oip::ErrorText(error);
  return response;
}

CallPtr OipServer(HttpServices& services, HttpRequest, Exchange& exchange) {
  std::string body = "{\"name\":\"quire\",\"version\":";
  json::AppendQuoted(services.version, body);
  return Reply(exchange, 200, body + ",\"extensions\":[\"generate\",\"binary_tensor_data\"]}");
}

// Clients read these bodies, though the specification has none.
CallPtr OipLive(HttpServices&, HttpRequest, Exchange& exchange) {
  return Reply(exchange, 200, "{\"live\":true}");
}

CallPtr OipReady(HttpServices& services, HttpRequest, Exchange& exchange) {
  const bool ready = !services.leaving && services.pipeline.Ready() && services.pipeline.Healthy();
  return Reply(exchange, ready ? 200 : 503, ready ? "{\"ready\":true}" : "{\"ready\":false}");
}

CallPtr OipModels(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string body = "{\"models\":[";
  for (const ModelEntry& model : VisibleModels(services.pipeline.Models(), request.tenant.get())) {
    if (body.back() != '[') body += ',';
    json::AppendQuoted(model.name, body);
  }
  return Reply(exchange, 200, body + "]}");
}

CallPtr OipModel(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string_view rest = std::string_view(request.path).substr(kModels.size());
  const bool of_readiness = CutSuffix("/ready", rest);
  const oip::ModelPath path = PathOf(rest);
  for (const ModelEntry& model : VisibleModels(services.pipeline.Models(), request.tenant.get())) {
    if (model.name != path.model) continue;
    if (auto problem = oip::CheckVersion(path.version, "version")) {
      problem->code = ApiCode::kNotFound;
      return Fail(exchange, *problem);
    }
    if (!of_readiness) return Reply(exchange, 200, oip::ModelJson(model.name));
    const bool ready = model.workers_ready > 0;
    std::string body = "{\"name\":";
    json::AppendQuoted(model.name, body);
    return Reply(exchange, ready ? 200 : 503,
                 body + (ready ? ",\"ready\":true}" : ",\"ready\":false}"));
  }
  return Fail(exchange, NotFound("model: \"" + path.model.substr(0, 256) + "\" is not served"));
}

CallPtr OipAsk(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string_view rest = std::string_view(request.path).substr(kModels.size());
  OipKind kind = OipKind::kInfer;
  if (CutSuffix("/generate", rest)) {
    kind = OipKind::kGenerate;
  } else if (CutSuffix("/generate_stream", rest)) {
    kind = OipKind::kGenerateStream;
  } else if (!CutSuffix("/infer", rest)) {
    return Fail(exchange, NotFound("POST is served at " + std::string(kModels) +
                                   "NAME/infer, /generate and /generate_stream"));
  }
  oip::ModelPath path = PathOf(rest);
  return OipCall::Begin(services, kind, std::move(path), std::move(request), exchange);
}

}  // namespace quire

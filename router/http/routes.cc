#include "router/http/routes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "common/ascii.h"
#include "common/json/json.h"
#include "router/core/result.h"
#include "router/http/adapter_routes.h"
#include "router/http/agent_routes.h"
#include "router/http/api_request.h"
#include "router/http/batch_routes.h"
#include "router/http/errors.h"
#include "router/http/fleet_view.h"
#include "router/http/generate_call.h"
#include "router/http/machine_routes.h"
#include "router/http/oip_routes.h"
#include "router/http/ollama_machine.h"
#include "router/http/ollama_routes.h"
#include "router/http/page.h"
#include "router/http/tokenize_call.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;

CallPtr Completions(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return GenerateCall::Begin(services, ApiKind::kCompletion, std::move(request), exchange);
}

CallPtr ChatCompletions(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return GenerateCall::Begin(services, ApiKind::kChat, std::move(request), exchange);
}

void AppendNameOrNull(std::string_view key, std::string_view name, std::string& out) {
  out += ",\"" + std::string(key) + "\":";
  if (name.empty()) {
    out += "null";
  } else {
    json::AppendQuoted(name, out);
  }
}

void AppendModel(const ModelEntry& model, std::string& out) {
  out += "{\"id\":";
  json::AppendQuoted(model.name, out);
  out += ",\"object\":\"model\",\"created\":" + std::to_string(model.created) +
         ",\"owned_by\":\"quire\",\"root\":";
  json::AppendQuoted(model.parent.empty() ? model.name : model.parent, out);
  AppendNameOrNull("parent", model.parent, out);
  AppendNameOrNull("adapter", model.adapter, out);
  out += ",\"max_model_len\":" + std::to_string(model.max_model_len) + ",\"model_ids\":[";
  for (size_t i = 0; i < model.model_ids.size(); ++i) {
    if (i > 0) out += ',';
    json::AppendQuoted(model.model_ids[i], out);
  }
  out += ']';
  const std::pair<std::string_view, std::string_view> parsers[] = {
      {"tool_call_parser", model.tool_call_parser}, {"reasoning_parser", model.reasoning_parser}};
  for (const auto& [key, name] : parsers) AppendNameOrNull(key, name, out);
  if (!model.state.empty()) out += ",\"state\":\"" + std::string(model.state) + '"';
  AppendNameOrNull("chat_problem", model.chat_problem, out);
  out += '}';
}

CallPtr ListModels(HttpServices& services, HttpRequest request, Exchange& exchange) {
  HttpResponse response;
  response.body = "{\"object\":\"list\",\"data\":[";
  bool first = true;
  for (const ModelEntry& model : VisibleModels(services.pipeline.Models(), request.tenant.get())) {
    if (!first) response.body += ',';
    first = false;
    AppendModel(model, response.body);
  }
  response.body += "]}";
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr OneModel(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  std::vector<std::string> known;
  for (const ModelEntry& model : VisibleModels(services.pipeline.Models(), request.tenant.get())) {
    if (model.name == name) {
      HttpResponse response;
      AppendModel(model, response.body);
      exchange.Reply(std::move(response));
      return nullptr;
    }
    known.push_back(model.name);
  }
  exchange.Reply(ErrorResponse(NotServed(name, known)));
  return nullptr;
}

void ReplyHealth(Exchange& exchange, bool good, std::string_view what) {
  HttpResponse response;
  response.status = good ? 200 : 503;
  response.body = "{\"status\":\"";
  response.body += good ? "ok" : what;
  response.body += "\"}";
  response.headers.emplace_back("Cache-Control", "no-store");
  exchange.Reply(std::move(response));
}

CallPtr Livez(HttpServices&, HttpRequest, Exchange& exchange) {
  ReplyHealth(exchange, true, "");
  return nullptr;
}

CallPtr Readyz(HttpServices& services, HttpRequest, Exchange& exchange) {
  ReplyHealth(exchange, !services.leaving && services.pipeline.Ready(), "not ready");
  return nullptr;
}

CallPtr Health(HttpServices& services, HttpRequest, Exchange& exchange) {
  ReplyHealth(exchange, services.pipeline.Healthy(), "no worker can produce a token now");
  return nullptr;
}

CallPtr Version(HttpServices& services, HttpRequest, Exchange& exchange) {
  HttpResponse response;
  response.body = "{\"version\":";
  json::AppendQuoted(services.version, response.body);
  response.body += '}';
  exchange.Reply(std::move(response));
  return nullptr;
}

// The answer may take a moment; the client may have left by then.
class MetricsCall final : public Call {
 public:
  explicit MetricsCall(std::shared_ptr<Exchange*> exchange) : exchange_(std::move(exchange)) {}
  ~MetricsCall() override { *exchange_ = nullptr; }

 private:
  std::shared_ptr<Exchange*> exchange_;
};

CallPtr Metrics(HttpServices& services, HttpRequest, Exchange& exchange) {
  if (!services.metrics_text) {
    exchange.Reply(ErrorResponse(404, "metrics are switched off", "not_found"));
    return nullptr;
  }
  const auto asked = std::make_shared<Exchange*>(&exchange);
  services.metrics_text([asked](std::shared_ptr<const std::string> text) {
    Exchange* const asking = std::exchange(*asked, nullptr);
    if (asking == nullptr) return;
    if (text == nullptr) return asking->Reply(ErrorResponse(TooMuchHeld()));
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.shared_body = std::move(text);
    asking->Reply(std::move(response));
  });
  return *asked == nullptr ? nullptr : std::make_unique<MetricsCall>(asked);
}

CallPtr Page(HttpServices&, HttpRequest request, Exchange& exchange) {
  exchange.Reply(PageFile(request.path));
  return nullptr;
}

CallPtr FleetLive(HttpServices& services, HttpRequest, Exchange& exchange) {
  HttpResponse response;
  response.headers.emplace_back("Cache-Control", "no-store");
  FleetPicture picture{services.pipeline.Workers(), services.pipeline.Running({}),
                       services.pipeline.LiveRequests()};
  if (services.models != nullptr) picture.models = services.models->MachineModels();
  response.body = FleetJson(picture);
  exchange.Reply(std::move(response));
  return nullptr;
}

// For operators, as on the admin port.
CallPtr Requests(HttpServices& services, HttpRequest request, Exchange& exchange) {
  if (services.request_view == nullptr) {
    exchange.Reply(ErrorResponse(404, "this router keeps no records of requests", "not_found"));
    return nullptr;
  }
  constexpr std::string_view kBelow = "/admin/requests/";
  exchange.Reply(services.request_view(
      request.path.size() > kBelow.size() ? request.path.substr(kBelow.size()) : std::string()));
  return nullptr;
}

constexpr Route kRoutes[] = {
    {Access::kKey, "POST", "/v1/chat/completions", ChatCompletions},
    {Access::kKey, "POST", "/v1/completions", Completions},
    {Access::kKey, "POST", "/v1/responses", CreateResponse},
    {Access::kKey, "POST", "/v1/responses/input_tokens", CountResponseInput},
    {Access::kKey, "GET", "/v1/responses/", ReadResponse},
    {Access::kKey, "DELETE", "/v1/responses/", DeleteResponse},
    {Access::kKey, "POST", "/v1/responses/", CancelResponse},
    {Access::kKey, "POST", "/v1/messages", CreateMessage},
    {Access::kKey, "POST", "/v1/messages/count_tokens", CountMessageTokens},
    {Access::kKey, "POST", "/v1/files", UploadFile, "multipart/form-data"},
    {Access::kKey, "GET", "/v1/files", ListFiles},
    {Access::kKey, "GET", "/v1/files/", ReadFile},
    {Access::kKey, "DELETE", "/v1/files/", DeleteFile},
    {Access::kKey, "POST", "/v1/batches", CreateBatch},
    {Access::kKey, "GET", "/v1/batches", ListBatches},
    {Access::kKey, "GET", "/v1/batches/", ReadBatch},
    {Access::kKey, "POST", "/v1/batches/", CancelBatch},
    {Access::kKey, "GET", "/v1/models", ListModels},
    {Access::kKey, "GET", "/v1/models/", OneModel},
    {Access::kKey, "POST", "/api/generate", OllamaGenerate},
    {Access::kKey, "POST", "/api/chat", OllamaChat},
    {Access::kKey, "GET", "/api/tags", OllamaTags},
    {Access::kKey, "GET", "/api/ps", OllamaLoaded},
    {Access::kKey, "POST", "/api/show", OllamaShow},
    {Access::kKey, "GET", "/api/version", Version},
    {Access::kKey, "POST", "/api/create", OllamaNotServed},
    {Access::kKey, "POST", "/api/copy", OllamaNotServed},
    {Access::kKey, "POST", "/api/push", OllamaNotServed},
    {Access::kKey, "POST", "/api/blobs/", OllamaNotServed},
    {Access::kKey, "POST", "/api/embed", OllamaNotServed},
    {Access::kKey, "POST", "/api/embeddings", OllamaNotServed},
    {Access::kKey, "POST", "/tokenize", BeginTokenize},
    {Access::kKey, "POST", "/detokenize", BeginDetokenize},
    {Access::kKey, "GET", "/tokenizer_info", TokenizerInfo},
    {Access::kKey, "GET", "/tokenizer_info/", TokenizerInfo},
    {Access::kKey, "GET", "/v2", OipServer},
    {Access::kOpen, "GET", "/v2/health/live", OipLive},
    {Access::kOpen, "GET", "/v2/health/ready", OipReady},
    {Access::kKey, "GET", "/v2/models", OipModels},
    {Access::kKey, "GET", "/v2/models/", OipModel},
    {Access::kKey, "POST", "/v2/models/", OipAsk, "application/json application/octet-stream"},
    {Access::kOpen, "GET", "/livez", Livez},
    {Access::kOpen, "GET", "/readyz", Readyz},
    {Access::kOpen, "GET", "/health", Health},
    {Access::kKey, "GET", "/version", Version},
    {Access::kMetrics, "GET", "/metrics", Metrics},
    {Access::kOpen, "GET", "/", Page},
    {Access::kOpen, "GET", "/page.css", Page},
    {Access::kOpen, "GET", "/page.js", Page},
    {Access::kOpen, "GET", "/chat.js", Page},
    {Access::kOpen, "GET", "/markdown.js", Page},
    {Access::kOperator, "POST", "/v1/load_lora_adapter", LoadLoraAdapter},
    {Access::kOperator, "POST", "/v1/unload_lora_adapter", UnloadLoraAdapter},
    {Access::kOperator, "GET", "/fleet", FleetLive},
    {Access::kOperator, "GET", "/admin/requests", Requests},
    {Access::kOperator, "GET", "/admin/requests/", Requests},
};

// Under `quire serve` alone: a cluster's router has none of them.
constexpr Route kMachineRoutes[] = {
    {Access::kOperator, "POST", "/v2/repository/index", RepositoryIndex},
    {Access::kOperator, "POST", "/v2/repository/models/", RepositoryModel},
    {Access::kOperator, "POST", "/sleep", Sleep},
    {Access::kOperator, "POST", "/wake_up", WakeUp},
    {Access::kOperator, "GET", "/is_sleeping", IsSleeping},
    {Access::kOperator, "POST", "/api/pull", OllamaPull},
    {Access::kOperator, "DELETE", "/api/delete", OllamaDelete},
};

template <size_t A, size_t B>
constexpr std::array<Route, A + B> Joined(const Route (&first)[A], const Route (&second)[B]) {
  std::array<Route, A + B> all{};
  std::copy(std::begin(first), std::end(first), all.begin());
  std::copy(std::begin(second), std::end(second), all.begin() + A);
  return all;
}
// Not constexpr: g++ 12 takes it for no constant where UndefinedBehaviorSanitizer is on.
const auto kOnMachine = Joined(kRoutes, kMachineRoutes);

constexpr Route kMetricsRoutes[] = {
    {Access::kMetrics, "GET", "/metrics", Metrics},
    {Access::kOpen, "GET", "/livez", Livez},
    {Access::kOpen, "GET", "/readyz", Readyz},
    {Access::kOpen, "GET", "/health", Health},
};

constexpr RouteTable kTable{kRoutes};
const RouteTable kMachineTable{kOnMachine};
constexpr RouteTable kMetricsTable{kMetricsRoutes};

constexpr std::string_view kAlias = "/openai/v1/";  // where runtimes of KServe have OpenAI's API

bool Fits(const Route& route, std::string_view path) {
  if (route.path.size() > 1 && route.path.ends_with('/')) {
    return path.size() > route.path.size() && path.starts_with(route.path);
  }
  return path == route.path;
}

}  // namespace

const RouteTable& PublicRoutes() { return kTable; }
const RouteTable& MachineRoutes() { return kMachineTable; }
const RouteTable& MetricsRoutes() { return kMetricsTable; }

Access AccessOf(const RouteTable& table, std::string_view path) {
  for (const Route& route : table.routes) {
    if (route.access != Access::kKey && Fits(route, path)) return route.access;
  }
  return Access::kKey;
}

std::string_view BodyTypesOf(const RouteTable& table, std::string_view method,
                             std::string_view path) {
  if (method == "GET" || method == "HEAD") return {};
  for (const Route& route : table.routes) {
    if (route.method == method && Fits(route, path)) return route.body_types;
  }
  return {};
}

std::unique_ptr<Call> Dispatch(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const std::string_view wanted =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : services.routes->routes) {
    if (!Fits(route, request.path)) continue;
    if (route.method == wanted) return route.handle(services, std::move(request), exchange);
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method;
    if (route.method == "GET") allowed += ", HEAD";
  }
  HttpResponse response;
  if (allowed.empty()) {
    response = ErrorResponse(404,
                             "nothing is served at " + request.method + " " +
                                 request.path.substr(0, 256) + "; try /v1/models",
                             "not_found");
  } else if (request.method == "OPTIONS") {
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", allowed + ", OPTIONS");
  } else {
    response = ErrorResponse(405, request.path + " is served by " + allowed + " only",
                             "method_not_allowed");
    response.headers.emplace_back("Allow", allowed + ", OPTIONS");
  }
  exchange.Reply(std::move(response));
  return nullptr;
}

void CountUnknownFields(HttpServices& services, const std::string& request_id,
                        const trace::RequestTrace& trace, const std::vector<std::string>& names) {
  if (names.empty()) return;
  services.counters.http_unknown_fields.Add(names.size());
  if (!services.log.Enabled(LogLevel::kDebug)) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  services.log.Debug("unknown fields of a request are ignored",
                     {{"request_id", request_id},
                      {"trace_id", trace.id.valid() ? trace::TraceIdHex(trace.id) : ""},
                      {"fields", list}});
}

std::optional<ApiError> ReadTimeouts(const HttpRequest& request, uint64_t& timeout_ms) {
  const struct {
    const char* name;
    const std::string& text;
    double unit_ms;
  } headers[] = {{"x-request-timeout-ms", request.timeout_ms, 1},
                 {"x-quire-timeout", request.timeout, 1000}};
  for (const auto& header : headers) {
    if (header.text.empty()) continue;
    const std::optional<uint64_t> ms = ParseTimeoutMs(header.text, header.unit_ms);
    if (!ms) {
      return InvalidField(header.name, "must be a time from 1 ms to a day, such as 30s or 1500ms");
    }
    timeout_ms = *ms;
  }
  return std::nullopt;
}

void ApplyHeaders(const HttpRequest& request, GenerateRequest& out) {
  out.traceparent = request.traceparent;
  out.tracestate = request.tracestate;
  out.session = request.session;
  ApplyTenant(request.tenant, out);
}

std::string_view QueryOfTarget(std::string_view target) {
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  return mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
}

bool PathOfTarget(std::string_view target, std::string& path) {
  path.clear();
  // A proxy's absolute form names the host again.
  for (std::string_view scheme : {std::string_view("http://"), std::string_view("https://")}) {
    if (!target.starts_with(scheme)) continue;
    const size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
    break;
  }
  if (target == "*") {
    path = "*";
    return true;
  }
  if (target.empty() || target[0] != '/') return false;
  target = target.substr(0, target.find_first_of("?#"));
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path += target[i];
      continue;
    }
    if (i + 2 >= target.size()) return false;
    const int high = HexDigit(target[i + 1]);
    const int low = HexDigit(target[i + 2]);
    if (high < 0 || low < 0 || high * 16 + low == 0) return false;
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (path.starts_with(kAlias)) path.erase(0, kAlias.size() - std::string_view("/v1/").size());
  return true;
}

}  // namespace quire

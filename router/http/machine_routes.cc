#include "router/http/machine_routes.h"

#include <string>
#include <string_view>
#include <utility>

#include "common/json/json.h"
#include "router/http/errors.h"
#include "router/http/oip_routes.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;
using serve::ModelState;

constexpr std::string_view kRepositoryModels = "/v2/repository/models/";

// Waits until the models are as they shall be.
class ControlCall final : public Call {
 public:
  using Begin = std::function<std::unique_ptr<ControlTask>(ControlDone done)>;
  using Shape = HttpResponse (*)(const ApiError& error);

  ControlCall(Exchange& exchange, Shape shape, const Begin& begin)
      : exchange_(exchange), shape_(shape) {
    task_ = begin([this, here = std::weak_ptr(here_)](const std::optional<ApiError>& error) {
      if (!here.expired()) Answer(error);
    });
  }

 private:
  void Answer(const std::optional<ApiError>& error) {
    HttpResponse response;
    response.body = "{}";
    exchange_.Reply(error ? shape_(*error) : std::move(response));
  }

  Exchange& exchange_;
  const Shape shape_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::unique_ptr<ControlTask> task_;
};

HttpResponse OpenAiError(const ApiError& error) { return ErrorResponse(error); }

std::string_view OipState(const MachineModel& model) {
  switch (model.state) {
    case ModelState::kReady:
      return "READY";
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kStopping:
      return "UNLOADING";
    case ModelState::kAbsent:
      return "UNAVAILABLE";
  }
  return "UNAVAILABLE";
}

// The body's {"ready": true}: only those that are loaded.
bool WantsReadyOnly(const std::string& body) {
  const absl::StatusOr<json::Value> value = json::Parse(body, {.max_bytes = 4096, .max_depth = 4});
  if (!value.ok() || !value->is_object()) return false;
  const json::Value* ready = json::Find(value->get_object(), "ready");
  return ready != nullptr && ready->is_bool() && ready->get_bool();
}

}  // namespace

CallPtr RepositoryIndex(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const bool ready_only = WantsReadyOnly(request.body);
  HttpResponse response;
  response.body = "[";
  for (const MachineModel& model : services.models->MachineModels()) {
    if (ready_only && model.state != ModelState::kReady) continue;
    if (response.body.back() != '[') response.body += ',';
    response.body += "{\"name\":";
    json::AppendQuoted(model.name, response.body);
    response.body += ",\"version\":\"1\",\"state\":\"";
    response.body += OipState(model);
    response.body += "\",\"reason\":";
    json::AppendQuoted(model.error, response.body);
    response.body += '}';
  }
  response.body += ']';
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr RepositoryModel(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string_view rest = std::string_view(request.path).substr(kRepositoryModels.size());
  const bool load = rest.ends_with("/load");
  if (!load && !rest.ends_with("/unload")) {
    exchange.Reply(OipError(
        {ApiCode::kNotFound,
         "POST is served at " + std::string(kRepositoryModels) + "NAME/load and /unload", "", 0}));
    return nullptr;
  }
  rest.remove_suffix(load ? std::string_view("/load").size() : std::string_view("/unload").size());
  const std::string model = services.models->MachineName(std::string(rest));
  if (model.empty()) {
    exchange.Reply(
        OipError({ApiCode::kNotFound,
                  "model: \"" + std::string(rest.substr(0, 256)) +
                      "\" is not on this machine; /v2/repository/index lists those that are",
                  "", 0}));
    return nullptr;
  }
  return std::make_unique<ControlCall>(exchange, OipError, [&](ControlDone done) {
    return load ? services.models->Load(model, std::move(done))
                : services.models->Unload(model, std::move(done));
  });
}

CallPtr Sleep(HttpServices& services, HttpRequest, Exchange& exchange) {
  return std::make_unique<ControlCall>(exchange, OpenAiError, [&](ControlDone done) {
    return services.models->Sleep(std::move(done));
  });
}

CallPtr WakeUp(HttpServices& services, HttpRequest, Exchange& exchange) {
  return std::make_unique<ControlCall>(exchange, OpenAiError, [&](ControlDone done) {
    return services.models->WakeUp(std::move(done));
  });
}

CallPtr IsSleeping(HttpServices& services, HttpRequest, Exchange& exchange) {
  HttpResponse response;
  response.body = services.models->Asleep() ? "{\"is_sleeping\":true}" : "{\"is_sleeping\":false}";
  exchange.Reply(std::move(response));
  return nullptr;
}

}  // namespace quire

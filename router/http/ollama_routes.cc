#include "router/http/ollama_routes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "router/core/result.h"
#include "router/http/agent_call.h"
#include "router/http/errors.h"
#include "router/keys/tenant_access.h"
#include "router/ollama/request.h"
#include "router/ollama/words.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;
using serve::ModelState;

std::optional<ApiError> ReadOllamaGenerate(std::string_view body, const RequestLimits& limits,
                                           AgentRequest& out) {
  return ollama::ReadRequest(ollama::Kind::kGenerate, body, limits, out);
}
std::optional<ApiError> ReadOllamaChat(std::string_view body, const RequestLimits& limits,
                                       AgentRequest& out) {
  return ollama::ReadRequest(ollama::Kind::kChat, body, limits, out);
}
ApiError InGenerateWords(ApiError error) {
  return ollama::InClientsWords(ollama::Kind::kGenerate, std::move(error));
}
ApiError InChatWords(ApiError error) {
  return ollama::InClientsWords(ollama::Kind::kChat, std::move(error));
}

// --- loading without a prompt

// Loads or unloads a model, and answers when that is done.
class OllamaLoadCall final : public Call {
 public:
  OllamaLoadCall(HttpServices& services, AgentRequest request, Exchange& exchange)
      : services_(services), exchange_(exchange), answer_(std::move(request.answer)) {
    answer_->At(services_.executor.clock().Now());
    answer_->Name("", services_.executor.clock().UnixSeconds());
  }

  void Load(const std::string& model) { task_ = services_.models->Load(model, Done("load", "")); }
  // A model that is in use is unloaded as soon as it is idle.
  void Unload(const std::string& model) {
    task_ = services_.models->Unload(model, Done("unload", model));
  }
  void Reply(std::string_view reason) {
    ChoiceEnd end;
    end.finish_reason = std::string(reason);
    answer_->End(end);
    answer_->At(services_.executor.clock().Now());
    answer_->Finish({}, nullptr);
    HttpResponse response;
    response.body = answer_->Whole();
    exchange_.Reply(std::move(response));
  }

 private:
  // `leaves`: the model that may be in use; empty: none.
  ControlDone Done(std::string_view reason, const std::string& leaves) {
    return
        [this, reason, leaves, here = std::weak_ptr(here_)](const std::optional<ApiError>& error) {
          if (here.expired()) return;
          const bool in_use = error && error->code == ApiCode::kConflict && !leaves.empty();
          if (in_use) services_.models->KeepAlive(leaves, 0);
          if (error && !in_use) return exchange_.Reply(ErrorResponse(*error));
          Reply(reason);
        };
  }

  HttpServices& services_;
  Exchange& exchange_;
  const std::unique_ptr<AnswerEvents> answer_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::unique_ptr<ControlTask> task_;
};

ApiError MayNotUnload(const HttpServices& services) {
  if (services.models == nullptr) {
    return {ApiCode::kUnimplemented,
            "keep_alive: a cluster's workers are not unloaded over this API; `quire serve` loads "
            "and unloads models",
            "keep_alive", 0};
  }
  return {ApiCode::kPermissionDenied,
          "keep_alive: with keys, or off loopback, a model is unloaded by an operator alone, with "
          "POST /v2/repository/models/NAME/unload",
          "keep_alive", 0};
}

std::optional<ModelEntry> OllamaFind(const std::vector<ModelEntry>& models,
                                     const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const ModelEntry& model) { return model.name == name; });
  return found == models.end() ? std::nullopt : std::optional(*found);
}

ApiError OllamaNotFound(const std::vector<ModelEntry>& visible, const std::string& name) {
  std::vector<std::string> served;
  for (const ModelEntry& model : visible) served.push_back(model.name);
  return NotServed(name, served);
}

CallPtr OllamaLoad(HttpServices& services, AgentRequest request, Exchange& exchange) {
  const std::string model = request.generate.model;
  const std::optional<int64_t> keep_alive = request.keep_alive;
  const std::vector<ModelEntry> models = services.pipeline.Models();
  const std::optional<ModelEntry> entry = OllamaFind(models, model);
  const auto fail = [&](const ApiError& error) {
    exchange.Reply(ErrorResponse(error));
    return nullptr;
  };
  if (!entry) return fail(OllamaNotFound(models, model));
  const bool may_steer = services.models != nullptr && services.fleet_is_open;
  if (keep_alive == 0 && !may_steer) return fail(MayNotUnload(services));
  auto call = std::make_unique<OllamaLoadCall>(services, std::move(request), exchange);
  const std::string here = services.models == nullptr ? "" : services.models->MachineName(model);
  if (here.empty()) {  // it is loaded, or no worker has it
    if (entry->workers_ready == 0) {
      return fail({ApiCode::kUnavailable, "model " + model + " has no worker now", "", 1000});
    }
    call->Reply("load");
    return nullptr;
  }
  if (keep_alive == 0) {
    call->Unload(here);
    return call;
  }
  if (keep_alive && may_steer) services.models->KeepAlive(here, *keep_alive);
  call->Load(here);
  return call;
}

constexpr StreamForm kLines{.content_type = "application/x-ndjson", .comments = false};
constexpr AgentApi kOllamaGenerate{ReadAlone<ReadOllamaGenerate>, InGenerateWords, kLines,
                                   OllamaModelName, OllamaLoad};
constexpr AgentApi kOllamaChat{ReadAlone<ReadOllamaChat>, InChatWords, kLines, OllamaModelName,
                               OllamaLoad};

// --- models

// Empty texts where it is not known: on a cluster, and before a worker has loaded the model.
void AppendDetails(const MachineModel* here, std::string& out) {
  const serve::ModelMakeup makeup = here == nullptr ? serve::ModelMakeup() : here->makeup;
  out += "{\"parent_model\":\"\",\"format\":";
  json::AppendQuoted(makeup.format, out);
  out += ",\"family\":";
  json::AppendQuoted(makeup.family, out);
  out += ",\"families\":";
  if (makeup.family.empty()) {
    out += "null";
  } else {
    out += '[';
    json::AppendQuoted(makeup.family, out);
    out += ']';
  }
  out += ",\"parameter_size\":\"" + ollama::ParametersText(makeup.parameters);
  out += "\",\"quantization_level\":";
  json::AppendQuoted(makeup.quantisation, out);
  out += '}';
}

void AppendOllamaModel(const ModelEntry& entry, const MachineModel* here, int64_t size,
                       std::string& out) {
  out += "{\"name\":";
  json::AppendQuoted(entry.name, out);
  out += ",\"model\":";
  json::AppendQuoted(entry.name, out);
  out += ",\"size\":" + std::to_string(size) + ",\"digest\":";
  json::AppendQuoted(entry.model_id, out);
  out += ",\"details\":";
  AppendDetails(here, out);
}

// What a router knows of models beside their entries: without `quire serve` nothing.
class OllamaMachine {
 public:
  explicit OllamaMachine(const HttpServices& services) : control_(services.models) {
    if (control_ == nullptr) return;
    for (MachineModel& model : control_->MachineModels()) {
      std::string name = model.name;
      models_.emplace(std::move(name), std::move(model));
    }
  }
  const MachineModel* Find(const ModelEntry& entry) const {
    if (control_ == nullptr) return nullptr;
    const auto found = models_.find(control_->MachineNameOf(entry));
    return found == models_.end() ? nullptr : &found->second;
  }

 private:
  const ModelControl* const control_;
  std::map<std::string, MachineModel> models_;
};

// {"models": […]} of what the tenant may see; `append` leaves a model out where it appends nothing.
CallPtr ReplyModels(HttpServices& services, const HttpRequest& request, Exchange& exchange,
                    void (*append)(const ModelEntry& entry, const MachineModel* here,
                                   std::string& out)) {
  const OllamaMachine machine(services);
  HttpResponse response;
  response.body = "{\"models\":[";
  std::string one;
  for (const ModelEntry& entry : VisibleModels(services.pipeline.Models(), request.tenant.get())) {
    one.clear();
    append(entry, machine.Find(entry), one);
    if (!one.empty() && response.body.back() != '[') response.body += ',';
    response.body += one;
  }
  response.body += "]}";
  exchange.Reply(std::move(response));
  return nullptr;
}

void AppendTag(const ModelEntry& entry, const MachineModel* here, std::string& out) {
  AppendOllamaModel(entry, here, here == nullptr ? 0 : here->file_bytes, out);
  out += ",\"modified_at\":\"" +
         ollama::TimeText(here == nullptr ? entry.created : here->modified) + "\"}";
}

void AppendLoaded(const ModelEntry& entry, const MachineModel* here, std::string& out) {
  if (here != nullptr ? here->state != ModelState::kReady : entry.workers_ready == 0) return;
  AppendOllamaModel(entry, here, here == nullptr ? 0 : here->memory_bytes, out);
  out += ",\"expires_at\":\"";
  out +=
      here != nullptr && here->until ? ollama::TimeText(*here->until) : std::string(ollama::kNever);
  out += "\",\"size_vram\":0,\"context_length\":" + std::to_string(entry.max_model_len) + '}';
}

}  // namespace

std::string OllamaModelName(const HttpServices& services, const std::string& name) {
  const std::vector<std::string> names = ollama::ServedNamesOf(name);
  if (names.size() == 1) return name;
  const std::vector<ModelEntry> models = services.pipeline.Models();
  for (const std::string& one : names) {
    if (OllamaFind(models, one)) return one;
  }
  return name;
}

CallPtr OllamaGenerate(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kOllamaGenerate, std::move(request), exchange);
}

CallPtr OllamaChat(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kOllamaChat, std::move(request), exchange);
}

CallPtr OllamaTags(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return ReplyModels(services, request, exchange, AppendTag);
}

CallPtr OllamaLoaded(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return ReplyModels(services, request, exchange, AppendLoaded);
}

CallPtr OllamaShow(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string name;
  if (const auto problem = ollama::ReadModelName(request.body, name)) {
    exchange.Reply(ErrorResponse(*problem));
    return nullptr;
  }
  const std::vector<ModelEntry> visible =
      VisibleModels(services.pipeline.Models(), request.tenant.get());
  const std::optional<ModelEntry> entry = OllamaFind(visible, OllamaModelName(services, name));
  if (!entry) {
    exchange.Reply(ErrorResponse(OllamaNotFound(visible, name)));
    return nullptr;
  }
  const OllamaMachine machine(services);
  const MachineModel* const here = machine.Find(*entry);
  HttpResponse response;
  std::string chat_template = "\"\"";
  if (entry->workers_ready > 0) {  // a model is not loaded to be shown
    const auto text = services.pipeline.TextOf(entry->name);
    if (text.ok()) chat_template = text.value()->facts().chat_template;
  }
  response.body =
      R"({"modelfile":"","parameters":"","template":)" + chat_template + ",\"details\":";
  AppendDetails(here, response.body);
  const std::string family =
      here == nullptr || here->makeup.family.empty() ? "unknown" : here->makeup.family;
  response.body += ",\"model_info\":{\"general.architecture\":";
  json::AppendQuoted(family, response.body);
  response.body += ",\"general.basename\":";
  json::AppendQuoted(entry->name, response.body);
  if (here != nullptr && here->makeup.parameters > 0) {
    response.body += ",\"general.parameter_count\":" + std::to_string(here->makeup.parameters);
  }
  if (entry->max_model_len > 0) {
    response.body += ',';
    json::AppendQuoted(family + ".context_length", response.body);
    response.body += ':' + std::to_string(entry->max_model_len);
  }
  response.body += "},\"capabilities\":[\"completion\"";
  if (!entry->tool_call_parser.empty()) response.body += ",\"tools\"";
  if (!entry->reasoning_parser.empty()) response.body += ",\"thinking\"";
  response.body += "],\"modified_at\":\"" +
                   ollama::TimeText(here == nullptr ? entry->created : here->modified) + "\"}";
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr OllamaNotServed(HttpServices&, HttpRequest request, Exchange& exchange) {
  std::string why = "nothing is uploaded here; `quire pull NAME` fetches a model";
  if (request.path == "/api/create") {
    why = "models are not made here; `quire serve` takes folders and .gguf files";
  } else if (request.path == "/api/copy") {
    why = "models are not copied over this API; `quire cp MODEL NEW` gives one another name";
  } else if (request.path == "/api/push") {
    why = "models are not published from here";
  } else if (request.path.starts_with("/api/embed")) {
    why = "embeddings are not served";
  }
  exchange.Reply(ErrorResponse(501, request.path.substr(0, 256) + ": " + why, "unsupported"));
  return nullptr;
}

}  // namespace quire

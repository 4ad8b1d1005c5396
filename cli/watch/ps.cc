// `quire ps`: the models that a server serves, and what they do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/watch/shown_fields.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

struct ServedModel {
  int workers = 0, ready = 0;
  double running = 0, waiting = 0;
  double blocks_used = 0, blocks = 0;
  // Under `quire serve`.
  std::string state = "ready";
  double memory_bytes = 0;
  double until = -1;  // unix seconds
};

std::string UntilText(const ServedModel& model) {
  if (model.state != "ready") return "-";
  if (model.until < 0) return model.running > 0 ? "in use" : "stays";
  const double left = std::max(0.0, model.until - static_cast<double>(std::time(nullptr)));
  if (left < 120) return "in " + NumberText(left) + " s";
  return "in " + NumberText(std::floor(left / 60)) + " min";
}

absl::StatusOr<client::HttpAnswer> AskFleet(const AskOptions& server,
                                            const std::atomic<bool>& interrupted) {
  QUIRE_ASSIGN_OR_RETURN(const client::Url url, ServerOf(server));
  client::HttpRequest request;
  request.path = "/fleet";
  request.api_key = server.api_key;
  return client::Exchange(url, request, interrupted, [](std::string_view) { return true; });
}

// By model, from the answer of /fleet.
absl::StatusOr<std::map<std::string, ServedModel>> ModelsOf(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(body));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* fleet, json::AsObject(value, "fleet"));
  const json::Value* list = json::Find(*fleet, "workers");
  if (list == nullptr) return InvalidArgument("/fleet: has no workers");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* workers, json::AsArray(*list, "workers"));
  std::map<std::string, ServedModel> models;
  for (const json::Value& entry : *workers) {
    const json::Object* worker = entry.if_object();
    const json::Value* names = worker == nullptr ? nullptr : json::Find(*worker, "models");
    if (names == nullptr || !names->is_array() || names->get_array().empty()) continue;
    const json::String* name = names->get_array().front().if_string();
    if (name == nullptr) continue;
    ServedModel& model = models[PlainText(std::string(json::View(*name)), 80)];
    ++model.workers;
    model.ready += Text(*worker, "phase") == "ready" ? 1 : 0;
    model.running += std::max(Number(*worker, "running"), 0.0);
    model.waiting += std::max(Number(*worker, "waiting"), 0.0);
    const double blocks = std::max(Number(*worker, "total_blocks"), 0.0);
    model.blocks += blocks;
    model.blocks_used += blocks - std::clamp(Number(*worker, "free_blocks"), 0.0, blocks);
  }
  const json::Value* machine = json::Find(*fleet, "models");
  if (machine == nullptr || !machine->is_array()) return models;
  for (const json::Value& entry : machine->get_array()) {
    const json::Object* one = entry.if_object();
    if (one == nullptr) continue;
    ServedModel& model = models[PlainText(Text(*one, "name"), 80)];
    model.state = PlainText(Text(*one, "state"), 16);
    model.memory_bytes = std::max(Number(*one, "memory_bytes"), 0.0);
    if (json::Find(*one, "until") != nullptr) model.until = Number(*one, "until");
  }
  return models;
}

}  // namespace

int RunProcesses(const CommandInputs& inputs) {
  AskOptions server;
  config::Schema schema(
      "quire ps",
      "Lists the models that a server serves: their state, the memory that they may "
      "take, when they are unloaded, ready workers, requests that run and wait, "
      "and how much of the cache is in use.");
  AddServerFlags(server, schema, "http://127.0.0.1:8000");
  if (const std::optional<int> code = Begin(inputs, schema, "ps")) return *code;
  TakeKey(inputs.environment, server);
  const absl::StatusOr<client::HttpAnswer> answer = AskFleet(server, *inputs.interrupted);
  if (!answer.ok()) return Failed("ps", answer.status());
  if (answer->status != 200) {
    return Failed("ps", absl::UnavailableError(AbslView(
                            ErrorOf(answer->body, answer->status) +
                            "; the fleet is shown to operators, `quire list --url` to clients")));
  }
  const absl::StatusOr<std::map<std::string, ServedModel>> models = ModelsOf(answer->body);
  if (!models.ok()) return Failed("ps", absl::UnavailableError(models.status().message()));
  size_t width = 5;
  for (const auto& [name, model] : *models) width = std::max(width, name.size());
  std::printf("%-*s  %-8s  %9s  %-9s  %-7s  %7s  %7s  %s\n", static_cast<int>(width), "MODEL",
              "STATE", "MEMORY", "UNTIL", "WORKERS", "RUNNING", "WAITING", "CACHE");
  for (const auto& [name, model] : *models) {
    const std::string ready = std::to_string(model.ready) + "/" + std::to_string(model.workers);
    const std::string memory = model.memory_bytes > 0 ? BytesText(model.memory_bytes) : "-";
    std::printf("%-*s  %-8s  %9s  %-9s  %-7s  %7.0f  %7.0f  %.0f %% in use\n",
                static_cast<int>(width), name.c_str(), model.state.c_str(), memory.c_str(),
                UntilText(model).c_str(), ready.c_str(), model.running, model.waiting,
                model.blocks > 0 ? 100 * model.blocks_used / model.blocks : 0);
  }
  if (models->empty()) std::printf("none yet; a worker is still starting\n");
  return 0;
}

}  // namespace quire::cli

#include "library/options.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"

namespace quire {
namespace {

constexpr size_t kMaxOptionsBytes = 1u << 20;
// Of processes and networks.
constexpr std::string_view kNotHere[] = {"config",          "listen",
                                         "worker-id",       "http-port",
                                         "insecure",        "tls-cert-file",
                                         "tls-key-file",    "tls-ca-file",
                                         "tls-router-name", "drain-timeout",
                                         "ready-fd",        "drain-hard-limit",
                                         "core-dumps",      "plan",
                                         "plan-memory",     "plan-bandwidth",
                                         "request-log",     "otlp-traces-endpoint",
                                         "rank-backend",    "max-unsent-events",
                                         "watchdog-grace",  "slow-client-timeout",
                                         "workers-on-host", "log-format"};

absl::StatusOr<std::string> TextOf(const json::Value& value, const std::string& name) {
  if (value.is_string()) return std::string(json::View(value.get_string()));
  if (value.is_bool() || value.is_number()) return json::Serialize(value);
  return InvalidArgument(name + ": must be a number, a text, a boolean, or a list of them");
}

absl::Status AddFlag(const std::string& name, const json::Value& value,
                     std::vector<std::string>& args) {
  if (value.is_null()) return absl::OkStatus();
  const json::Array* list = value.if_array();
  if (list == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOf(value, name));
    args.push_back("--" + name + "=" + text);
    return absl::OkStatus();
  }
  for (const json::Value& one : *list) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOf(one, name));
    args.push_back("--" + name + "=" + text);
  }
  return absl::OkStatus();
}

absl::Status CheckHere(const WorkerConfig& worker) {
  if (worker.model.empty()) {
    return InvalidArgument("model: is missing; give a folder or a .gguf file");
  }
  if (AsksForGpu(worker)) {
    return InvalidArgument("device: is \"" + worker.device +
                           "\"; in a process of its own a model computes on the CPU; use \"cpu\", "
                           "or `quire serve` for GPUs");
  }
  return CheckWorkerConfig(worker);
}

}  // namespace

absl::StatusOr<EngineSettings> ReadEngineSettings(std::string_view options) {
  absl::StatusOr<json::Value> value =
      json::Parse(options, {.max_bytes = kMaxOptionsBytes, .max_depth = 4});
  if (!value.ok()) return Annotate(value.status(), "options");
  const json::Object* object = value->if_object();
  if (object == nullptr) return InvalidArgument("options: must be a JSON object");
  std::vector<std::string> args;
  for (const auto& member : *object) {
    std::string name(member.key().data(), member.key().size());
    std::replace(name.begin(), name.end(), '_', '-');
    // With = in it a name would pass as another one's flag.
    if (name.empty() || name.find('=') != std::string::npos) {
      return InvalidArgument("options: \"" + name.substr(0, 64) + "\" is no name of an option");
    }
    if (std::find(std::begin(kNotHere), std::end(kNotHere), name) != std::end(kNotHere)) {
      return InvalidArgument(name + ": has no meaning here; leave it out");
    }
    QUIRE_RETURN_IF_ERROR(AddFlag(name, member.value(), args));
  }
  EngineSettings settings;
  settings.worker.device = "cpu";
  settings.worker.log_level = "warning";
  settings.worker.max_step_time_ms = 0;  // many prompts at once: no stream waits for the next token
  config::Schema schema = MakeWorkerSchema(settings.worker);
  QUIRE_ASSIGN_OR_RETURN(const config::ParseResult parsed, schema.Parse(args, {}));
  if (parsed.help || parsed.version || parsed.describe || parsed.show_config) {
    return InvalidArgument("options: ask the program quire-worker for help");
  }
  QUIRE_RETURN_IF_ERROR(CheckHere(settings.worker));
  // A stream whose events are not polled waits as long as its program likes.
  settings.worker.engine.slow_client_timeout_us = int64_t{365} * 24 * 3600 * 1'000'000;
  settings.log_level = LogLevelFromName(settings.worker.log_level);
  return settings;
}

}  // namespace quire

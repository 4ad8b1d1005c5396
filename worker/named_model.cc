#include "worker/named_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/config/run_program.h"
#include "worker/draft/speculation.h"

namespace quire {
namespace {

constexpr std::string_view kSchemes[] = {"hf:",   "hf.co/", "https://", "http://",
                                         "s3://", "oci://", "mlflow:"};

struct FoundModel {
  std::string path;
  std::string served_name;  // what `quire serve` would call it
};

absl::StatusOr<FoundModel> FindNamedModel(const std::string& flag, const std::string& name,
                                          const config::Environment& environment) {
  QUIRE_ASSIGN_OR_RETURN(const config::ProgramOutput output,
                         config::OutputOf(config::SiblingPath("quire"),
                                          {"pull", "--for-worker", "--", name}, environment));
  if (output.exit_code != 0) {
    return absl::NotFoundError(
        AbslView(flag + ": " + name + " cannot be pulled; the line before this one says why"));
  }
  const size_t first = output.text.find('\n');
  const size_t second = first == std::string::npos ? first : output.text.find('\n', first + 1);
  if (second == std::string::npos) {
    return absl::InternalError(
        AbslView(flag +
                 ": the quire in this folder is of another version than quire-worker; install both "
                 "together"));
  }
  return FoundModel{output.text.substr(0, first),
                    output.text.substr(first + 1, second - first - 1)};
}

}  // namespace

bool IsModelName(const std::string& model) {
  const bool has_scheme =
      std::any_of(std::begin(kSchemes), std::end(kSchemes),
                  [&](std::string_view scheme) { return model.starts_with(scheme); });
  if (has_scheme) return true;
  std::error_code error;
  return !model.empty() && model.find('/') == std::string::npos && !model.ends_with(".gguf") &&
         !std::filesystem::exists(model, error);
}

absl::Status UseNamedModel(const config::Environment& environment, WorkerConfig& settings) {
  QUIRE_ASSIGN_OR_RETURN(const Speculation speculation,
                         ParseSpeculation(settings.speculative_config));
  settings.draft_model = speculation.model;
  if (IsModelName(settings.draft_model)) {
    QUIRE_ASSIGN_OR_RETURN(FoundModel draft, FindNamedModel("--speculative-config: model",
                                                            settings.draft_model, environment));
    settings.draft_model = std::move(draft.path);
  }
  if (!IsModelName(settings.model)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(FoundModel found, FindNamedModel("--model", settings.model, environment));
  settings.own_arguments.push_back("--model=" + found.path);
  settings.model = std::move(found.path);
  if (settings.served_model_names.empty()) {
    settings.served_model_names.push_back(std::move(found.served_name));
  }
  return absl::OkStatus();
}

}  // namespace quire

// Names of MLflow's models, the places of their artifacts, and which artifacts are a model.
#include <algorithm>
#include <map>

#include "cli/pull/mlflow.h"
#include "common/ascii.h"
#include "common/config/yaml_json.h"

namespace quire::pull {
namespace {

constexpr size_t kMaxModelName = 250;
constexpr char kTokenizerFolder[] = "components/tokenizer/";

bool IsWord(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (ToLower(c) >= 'a' && ToLower(c) <= 'z') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool IsModelName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxModelName &&
         text.find_first_of("/:@'\"\\`") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; });
}

bool IsVersion(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string ListOfNames(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    std::string shown = names[i].substr(0, 60);
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    list += (list.empty() ? "" : ", ") + shown;
  }
  return list;
}

// A member that is a text, or nothing.
std::string ScalarAt(const json::Object& map, std::string_view name) {
  const json::Value* value = json::Find(map, name);
  return value != nullptr && value->is_string() ? std::string(json::View(value->get_string())) : "";
}

// A member that is a map; nullptr: there is none.
const json::Object* MapAt(const json::Object& map, std::string_view name) {
  const json::Value* value = json::Find(map, name);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

class ArtifactPlanner {
 public:
  ArtifactPlanner(const std::vector<HubFile>& files, const Mlmodel* mlmodel, const Source& source)
      : files_(files), mlmodel_(mlmodel), source_(source) {}

  absl::StatusOr<std::vector<ArtifactFile>> Run() {
    if (files_.empty()) return Lacking("has no artifacts there");
    if (mlmodel_ == nullptr) {
      Take("", false);
    } else {
      QUIRE_RETURN_IF_ERROR(CheckFlavour());
      Take(mlmodel_->weights + "/", false);
      Take(kTokenizerFolder, true);
    }
    HubSnapshot snapshot;
    for (const auto& [path, file] : taken_) {
      snapshot.files.push_back(file);
      snapshot.files.back().path = path;
    }
    Source whole = source_;
    whole.file.clear();
    QUIRE_ASSIGN_OR_RETURN(const std::vector<HubFile> chosen, ChooseFiles(snapshot, whole));
    std::vector<ArtifactFile> plan;
    for (const HubFile& file : chosen) plan.push_back({taken_.at(file.path), file.path});
    const bool has_tokenizer = std::any_of(plan.begin(), plan.end(), [](const ArtifactFile& one) {
      return one.path.starts_with("tokenizer.") || EndsWithIgnoringCase(one.path, ".gguf");
    });
    if (!has_tokenizer) {
      return Lacking(
          "has no tokenizer.json and no tokenizer.model; log the model with its "
          "tokenizer, as a pipeline or {\"model\": …, \"tokenizer\": …}");
    }
    return plan;
  }

 private:
  absl::Status Lacking(const std::string& what) const {
    return absl::NotFoundError(AbslView(source_.text + ": " + what));
  }

  absl::Status CheckFlavour() const {
    const auto& flavors = mlmodel_->flavors;
    if (std::find(flavors.begin(), flavors.end(), "transformers") == flavors.end()) {
      return InvalidArgument(source_.text + ": is of the flavor " + ListOfNames(flavors) +
                             "; Quire reads models of the flavor transformers, and plain folders "
                             "with config.json and .safetensors, or a .gguf file");
    }
    if (mlmodel_->has_adapter) {
      return InvalidArgument(source_.text +
                             ": is an adapter of PEFT over another model; serve "
                             "that model with --lora-modules NAME=FOLDER");
    }
    if (mlmodel_->weights.empty()) {
      return Lacking("was logged without its weights (save_pretrained=False)" +
                     (mlmodel_->source.empty()
                          ? std::string()
                          : ", of " + ListOfNames({mlmodel_->source}) + "; pull that"));
    }
    return CheckFileName(mlmodel_->weights);
  }

  // The files of one folder, by their names in it. The tokenizer's own folder has the last word
  // about all but the model's settings.
  void Take(const std::string& folder, bool again) {
    for (const HubFile& file : files_) {
      if (!file.path.starts_with(folder)) continue;
      const std::string name = file.path.substr(folder.size());
      if (name.find('/') != std::string::npos || name == "MLmodel") continue;
      if (again && name != "config.json") taken_.insert_or_assign(name, file);
      if (!again) taken_.emplace(name, file);
    }
  }

  const std::vector<HubFile>& files_;
  const Mlmodel* const mlmodel_;
  const Source& source_;
  std::map<std::string, HubFile> taken_;
};

}  // namespace

MlflowSettings MlflowSettingsFrom(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  return {value("MLFLOW_TRACKING_URI"), value("MLFLOW_TRACKING_TOKEN"),
          value("MLFLOW_TRACKING_USERNAME"), value("MLFLOW_TRACKING_PASSWORD")};
}

absl::StatusOr<MlflowName> ParseMlflowName(std::string_view text) {
  const auto wrong = [&](const char* what) {
    return InvalidArgument("'mlflow:" + std::string(text) + "': " + what +
                           "; write mlflow:models:/NAME/VERSION, mlflow:models:/NAME@ALIAS, "
                           "mlflow:models:/m-ID or mlflow:runs:/RUN/PATH");
  };
  MlflowName name;
  if (text.starts_with("runs:/")) {
    text.remove_prefix(6);
    name.kind = MlflowName::Kind::kRun;
    name.name = text.substr(0, text.find('/'));
    text.remove_prefix(std::min(text.size(), name.name.size() + 1));
    while (text.ends_with('/')) text.remove_suffix(1);
    name.rest = text;
    if (!IsWord(name.name)) return wrong("RUN is the ID of a run");
    if (!CheckFileName(name.rest).ok()) return wrong("PATH is a folder of the run's artifacts");
    return name;
  }
  if (!text.starts_with("models:/")) return wrong("it begins with models:/ or runs:/");
  std::string_view rest = text.substr(8);
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    name.kind = MlflowName::Kind::kAlias;
    name.name = rest.substr(0, at);
    name.rest = rest.substr(at + 1);
    if (!IsWord(name.rest)) return wrong("ALIAS has letters, digits, '-', '_' and '.'");
  } else if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    name.name = rest.substr(0, slash);
    name.rest = rest.substr(slash + 1);
    const bool latest = EqualsIgnoringCase(name.rest, "latest");
    if (latest) name.kind = MlflowName::Kind::kLatest;
    if (!latest && !IsVersion(name.rest)) {
      return wrong("VERSION is a number or latest; stages have become aliases");
    }
  } else {
    name.kind = MlflowName::Kind::kLogged;
    name.name = rest;
    if (!rest.starts_with("m-") || !IsWord(rest)) return wrong("it names no version and no alias");
    return name;
  }
  if (!IsModelName(name.name)) return wrong("NAME is no name of a model");
  return name;
}

std::string ServedNameOf(const MlflowName& name) {
  std::string served = name.name;
  if (name.kind == MlflowName::Kind::kRun) {
    served = name.rest.substr(name.rest.rfind('/') + 1) + ":" + name.name.substr(0, 8);
  } else if (name.kind == MlflowName::Kind::kVersion || name.kind == MlflowName::Kind::kAlias) {
    served += ":" + name.rest;
  }
  for (char& c : served) {
    const bool plain = (c >= '0' && c <= '9') || (ToLower(c) >= 'a' && ToLower(c) <= 'z') ||
                       std::string_view("-_.:").find(c) != std::string_view::npos;
    if (!plain) c = '-';
  }
  if (served.front() == '.' || served.front() == '-') served.insert(0, "model");
  return served;
}

absl::StatusOr<ArtifactPlace> ParseArtifactUri(std::string_view uri, const Address& server) {
  const auto wrong = [&](const std::string& what) {
    return absl::FailedPreconditionError(AbslView(
        "its artifacts are at '" + ListOfNames({std::string(uri.substr(0, 200))}) + "', " + what));
  };
  ArtifactPlace place;
  place.uri = uri;
  if (uri.starts_with("s3://")) {
    place.in_s3 = true;
    const absl::StatusOr<Source> source = ParseSource(uri);
    if (!source.ok()) return wrong("which is no prefix of a bucket");
    place.bucket = source->repo;
    place.path = source->file;
    return place;
  }
  if (!uri.starts_with("mlflow-artifacts:/")) {
    return wrong(
        "which Quire does not read: it reads s3:// and what a server hands on itself "
        "(mlflow server --serve-artifacts)");
  }
  std::string_view rest = uri.substr(17);
  if (rest.starts_with("//")) {
    const std::string_view host = rest.substr(2, rest.find('/', 2) - 2);
    const absl::StatusOr<Address> other =
        ParseAddress((server.tls ? "https://" : "http://") + std::string(host));
    if (!other.ok() || other->Origin() != server.Origin()) {
      return wrong("which is another server than MLFLOW_TRACKING_URI");
    }
    rest.remove_prefix(std::min(rest.size(), host.size() + 2));
  }
  while (rest.starts_with('/')) rest.remove_prefix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const bool leaves = ("/" + std::string(rest) + "/").find("/../") != std::string::npos;
  if (rest.empty() || rest.size() > kMaxNameBytes || leaves) return wrong("which is no folder");
  place.path = rest;
  return place;
}

absl::StatusOr<Mlmodel> ParseMlmodel(const std::string& text) {
  if (text.size() > kMaxMlmodelBytes) {
    return absl::ResourceExhaustedError("MLmodel: is longer than 1 MiB");
  }
  const absl::StatusOr<json::Value> root = config::JsonOfYaml(text);
  if (!root.ok()) return Annotate(root.status(), "MLmodel");
  const json::Object* flavors = root->is_object() ? MapAt(root->get_object(), "flavors") : nullptr;
  if (flavors == nullptr || flavors->empty()) return InvalidArgument("MLmodel: names no flavors");
  Mlmodel model;
  for (const auto& flavor : *flavors) {
    model.flavors.emplace_back(flavor.key().data(), flavor.key().size());
  }
  const json::Object* ours = MapAt(*flavors, "transformers");
  if (ours == nullptr) return model;
  model.weights = ScalarAt(*ours, "model_binary");
  model.has_adapter = !ScalarAt(*ours, "peft_adaptor").empty();
  model.source = ScalarAt(*ours, "source_model_name");
  return model;
}

absl::StatusOr<std::vector<ArtifactFile>> PlanArtifacts(const std::vector<HubFile>& files,
                                                        const Mlmodel* mlmodel,
                                                        const Source& source) {
  return ArtifactPlanner(files, mlmodel, source).Run();
}

}  // namespace quire::pull

#include "cli/models/find_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/check/doctor_checks.h"
#include "cli/format.h"
#include "cli/models/progress_bar.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

constexpr size_t kNearest = 3;

absl::StatusOr<std::string> CatalogueText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("--catalogue: " + path + " cannot be read");
  std::string text(pull::kMaxCatalogueBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string ConfigFile(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string folder = value("XDG_CONFIG_HOME");
  if (folder.empty()) folder = value("HOME") + "/.config";
  return folder + "/quire/catalogue.json";
}

absl::Status UnknownName(const ModelFinder& finder, const std::string& name) {
  std::vector<std::string> candidates;
  for (const NamedModel& model : Library(finder)) candidates.push_back(model.name);
  for (const pull::CatalogueModel& model : finder.catalogue) candidates.push_back(model.name);
  std::string nearest;
  for (const std::string& one : pull::NearestNames(name, candidates, kNearest)) {
    nearest += (nearest.empty() ? "" : ", ") + one;
  }
  return absl::NotFoundError(
      AbslView("MODEL: '" + PlainText(name, 200) +
               "' is neither a folder, a .gguf file nor a known name; nearest: " + nearest +
               "; `quire pull` lists names, and hf:ORG/REPO names any model of the hub"));
}

absl::Status WhichSize(const std::vector<pull::CatalogueModel>& family, const std::string& name) {
  const int64_t available = ReadMachine("/").available_bytes;
  std::string list;
  for (const pull::CatalogueModel& model : family) {
    list += (list.empty() ? "" : "; ") + model.name + " (" + FitText(model, available) + ")";
  }
  return absl::NotFoundError(AbslView("MODEL: '" + name + "' has several sizes: " + list));
}

}  // namespace

absl::StatusOr<ModelFinder> MakeFinder(const config::Environment& environment,
                                       const std::vector<std::string>& folders,
                                       const std::string& catalogue,
                                       const std::atomic<bool>& cancelled) {
  ModelFinder finder;
  finder.folders = folders;
  for (const std::string& folder : ModelFolders(config::ExecutablePath())) {
    finder.folders.push_back(folder);
  }
  QUIRE_ASSIGN_OR_RETURN(finder.options.hub, pull::HubSettingsFrom(environment));
  finder.options.s3 = pull::S3SettingsFrom(environment);
  finder.options.oci = pull::OciSettingsFrom(environment);
  finder.options.mlflow = pull::MlflowSettingsFrom(environment);
  finder.options.store = pull::StoreFolder(environment);
  finder.options.cancelled = &cancelled;
  finder.options.on_note = [](std::string_view note) {
    Show(stderr, "quire: " + std::string(note) + "\n");
  };
  finder.folders.push_back(finder.options.store);
  std::string text(pull::BuiltInCatalogue());
  std::error_code error;
  std::string path = catalogue;
  if (path.empty() && std::filesystem::exists(ConfigFile(environment), error)) {
    path = ConfigFile(environment);
  }
  if (!path.empty()) {
    QUIRE_ASSIGN_OR_RETURN(text, CatalogueText(path));
  }
  absl::StatusOr<std::vector<pull::CatalogueModel>> models = pull::ParseCatalogue(text);
  if (!models.ok()) return Annotate(models.status(), "--catalogue: " + path);
  finder.catalogue = *std::move(models);
  return finder;
}

std::string FitText(const pull::CatalogueModel& model, int64_t available_bytes) {
  std::string text = SizeText(static_cast<double>(model.bytes)) + ", needs about " +
                     SizeText(static_cast<double>(model.memory_bytes)) + " of memory";
  if (available_bytes <= 0) return text;
  if (available_bytes >= model.memory_bytes) return text + ": fits";
  return text + ": more than the " + SizeText(static_cast<double>(available_bytes)) +
         " that are free here";
}

absl::StatusOr<NamedSource> SourceOf(const ModelFinder& finder, const std::string& name) {
  NamedSource named;
  if (const pull::CatalogueModel* known = pull::FindInCatalogue(finder.catalogue, name)) {
    named.known = *known;
    named.served_name = known->name;
    QUIRE_ASSIGN_OR_RETURN(named.source, pull::ParseSource(known->source));
    return named;
  }
  const std::vector<pull::CatalogueModel> family = pull::FamilyOf(finder.catalogue, name);
  if (!family.empty()) return WhichSize(family, name);
  QUIRE_ASSIGN_OR_RETURN(named.source, pull::ParseSource(name));
  if (named.source.kind == pull::Kind::kLocal) return UnknownName(finder, name);
  named.served_name = pull::ServedNameOf(named.source);
  return named;
}

absl::StatusOr<ResolvedModel> FindHere(const ModelFinder& finder, const std::string& name) {
  absl::StatusOr<ResolvedModel> here = ResolveModel(name, finder.folders);
  if (here.ok()) return here;
  QUIRE_ASSIGN_OR_RETURN(const NamedSource named, SourceOf(finder, name));
  const std::string path = pull::PathHere(named.source, finder.options);
  if (!path.empty()) return ResolvedModel{path, named.served_name};
  return absl::NotFoundError(AbslView("MODEL: '" + PlainText(name, 200) +
                                      "' is not on this machine; `quire pull " +
                                      PlainText(name, 200) + "` fetches it"));
}

absl::StatusOr<pull::Pulled> PullNamed(ModelFinder& finder, const std::string& name,
                                       pull::OnProgress progress) {
  QUIRE_ASSIGN_OR_RETURN(const NamedSource named, SourceOf(finder, name));
  if (named.known) {
    Show(stderr, named.known->name + ": " + named.known->title + ", licence " +
                     named.known->licence + "; " +
                     FitText(*named.known, ReadMachine("/").available_bytes) + "\n");
  }
  ProgressBar bar(name);
  const auto show = [&bar](int64_t here, int64_t total) { bar.Show(here, total); };
  finder.options.on_progress = progress ? std::move(progress) : pull::OnProgress(show);
  absl::StatusOr<pull::Pulled> pulled = pull::Pull(named.source, finder.options);
  finder.options.on_progress = {};
  return pulled;
}

absl::StatusOr<ResolvedModel> FindOrPull(ModelFinder& finder, const std::string& name) {
  absl::StatusOr<ResolvedModel> here = ResolveModel(name, finder.folders);
  if (here.ok()) return here;
  QUIRE_ASSIGN_OR_RETURN(const NamedSource named, SourceOf(finder, name));
  std::string path = pull::PathHere(named.source, finder.options);
  if (path.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const pull::Pulled pulled, PullNamed(finder, name));
    path = pulled.path;
  } else if (named.known) {
    Show(stderr,
         named.known->name + ": " + FitText(*named.known, ReadMachine("/").available_bytes) + "\n");
  }
  return ResolvedModel{path, named.served_name};
}

std::vector<NamedModel> Library(const ModelFinder& finder) {
  std::vector<NamedModel> models = ListModels(finder.folders);
  for (const pull::CachedModel& cached : pull::ListCache(finder.options.hub)) {
    std::string name = cached.name;
    for (const pull::CatalogueModel& known : finder.catalogue) {
      if (known.source == cached.name) name = known.name;
    }
    models.push_back({name, cached.path, cached.bytes});
  }
  return models;
}

}  // namespace quire::cli

// Finds the model that a name means: on this machine, in the catalogue, at a hub or a web server;
// and brings it here where it may.
//
// Blocking, on the calling thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_names.h"
#include "cli/pull/catalogue.h"
#include "cli/pull/library.h"
#include "cli/pull/pull.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

struct ModelFinder {
  std::vector<std::string> folders;  // of named models, the store last
  std::vector<pull::CatalogueModel> catalogue;
  pull::PullOptions options;
};

// `catalogue` is a file; empty: XDG_CONFIG_HOME/quire/catalogue.json where it is there, else the
// program's own. INVALID_ARGUMENT for one that is wrong.
absl::StatusOr<ModelFinder> MakeFinder(const config::Environment& environment,
                                       const std::vector<std::string>& folders,
                                       const std::string& catalogue,
                                       const std::atomic<bool>& cancelled);

// What a name means beyond this machine's own names.
struct NamedSource {
  pull::Source source;
  std::string served_name;
  std::optional<pull::CatalogueModel> known;
};
// NOT_FOUND lists a family's sizes, or the three nearest names.
absl::StatusOr<NamedSource> SourceOf(const ModelFinder& finder, const std::string& name);

// The model on this machine. NOT_FOUND says how to get it.
absl::StatusOr<ResolvedModel> FindHere(const ModelFinder& finder, const std::string& name);
// The same, pulled where it is not here, with a bar on standard error.
absl::StatusOr<ResolvedModel> FindOrPull(ModelFinder& finder, const std::string& name);
// Asks for it again even where it is here. A bar on standard error, unless `progress` is given.
absl::StatusOr<pull::Pulled> PullNamed(ModelFinder& finder, const std::string& name,
                                       pull::OnProgress progress = {});

// All models on this machine, by name: those in folders, in the store and in the hub's cache.
std::vector<NamedModel> Library(const ModelFinder& finder);

// "2.5 GB, needs about 3.6 GB of memory: fits"; "… of 2.1 GB here" where it does not.
std::string FitText(const pull::CatalogueModel& model, int64_t available_bytes);

}  // namespace quire::cli

// Names of models on this machine: the demo that comes with Quire, and models that have been
// fetched.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace quire::cli {

struct NamedModel {
  std::string name;
  std::string path;   // a folder with config.json, or a .gguf file
  int64_t bytes = 0;  // of its weights
};

// Where models are for a program at `executable`: a source tree's models/ and .cache/models/, or an
// installation's share/quire/models/.
std::vector<std::string> ModelFolders(const std::string& executable);

// All models in these folders, by name; the first folder that has a name wins. A model is a folder
// with a config.json, or one with a single .gguf file.
std::vector<NamedModel> ListModels(const std::vector<std::string>& folders);

struct ResolvedModel {
  std::string path;
  std::string served_name;  // the name as given, or the last part of the path without .gguf
};

// MODEL as given by a user: a name of ListModels, or a path. NOT_FOUND names what there is.
absl::StatusOr<ResolvedModel> ResolveModel(const std::string& model,
                                           const std::vector<std::string>& folders);

}  // namespace quire::cli

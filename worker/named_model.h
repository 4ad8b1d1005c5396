// Models that --model names and does not lead to: hf:ORG/REPO, s3:…, or a short name. The `quire`
// beside this program finds them on this machine, or pulls them.
#pragma once

#include <string>
#include <string_view>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire {

// Whether `model` is such a name: one with a scheme, or a word that is no file and no .gguf.
bool IsModelName(const std::string& model);

struct FoundModel {
  std::string path;         // a folder or a .gguf file
  std::string served_name;  // what `quire serve` would call it
};

// Blocking, for as long as the model takes to come; it ends when this process does, and the next
// start goes on where it ended. `quire pull` says on standard error what it does and why it fails.
absl::StatusOr<FoundModel> FindNamedModel(const std::string& name,
                                          const config::Environment& environment);

}  // namespace quire

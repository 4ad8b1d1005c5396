// The settings of a YAML file: one flat map from names to a value or a list of values.
//
// Part of the schema, which alone calls it. The file is an operator's, but its size and shape are
// bounded.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace quire::config {

struct FileSetting {
  std::string key;
  std::vector<std::string> values;
  bool is_list = false;
  std::string where;  // "file.yaml:3"
};

// In the order of the file. INVALID_ARGUMENT names file and line: not readable, not YAML, not a
// flat map, a key given twice.
absl::StatusOr<std::vector<FileSetting>> ReadYamlSettings(const std::string& path);

// The same from text; `path` appears only in errors.
absl::StatusOr<std::vector<FileSetting>> ParseYamlSettings(const std::string& text,
                                                           const std::string& path);

}  // namespace quire::config

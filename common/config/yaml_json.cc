#include "common/config/yaml_json.h"

#include <yaml-cpp/yaml.h>

namespace quire::config {
namespace {

absl::StatusOr<json::Value> ValueOfYaml(const YAML::Node& node, size_t depth, size_t& values) {
  if (depth > kMaxYamlDepth || ++values > kMaxYamlValues) {
    return absl::ResourceExhaustedError("is nested too deep, or has too many values");
  }
  if (node.IsScalar()) return json::Value(node.Scalar());
  if (node.IsSequence()) {
    json::Array array;
    for (const YAML::Node& item : node) {
      QUIRE_ASSIGN_OR_RETURN(json::Value value, ValueOfYaml(item, depth + 1, values));
      array.push_back(std::move(value));
    }
    return json::Value(std::move(array));
  }
  if (!node.IsMap()) return json::Value();
  json::Object object;
  for (const auto& member : node) {
    if (!member.first.IsScalar()) return InvalidArgument("has a key that is no name");
    QUIRE_ASSIGN_OR_RETURN(json::Value value, ValueOfYaml(member.second, depth + 1, values));
    object[member.first.Scalar()] = std::move(value);
  }
  return json::Value(std::move(object));
}

}  // namespace

absl::StatusOr<json::Value> JsonOfYaml(const std::string& text) {
  try {  // yaml-cpp reports by exceptions; none leaves this function
    size_t values = 0;
    return ValueOfYaml(YAML::Load(text), 1, values);
  } catch (const YAML::Exception&) {
    return InvalidArgument("is no YAML");
  }
}

}  // namespace quire::config

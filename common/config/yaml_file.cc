#include "common/config/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <set>

#include "common/config/schema.h"

namespace quire::config {
namespace {

std::string Place(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? path : path + ":" + std::to_string(mark.line + 1);
}

absl::StatusOr<FileSetting> ReadSetting(const YAML::Node& key, const YAML::Node& value,
                                        const std::string& path) {
  if (!key.IsScalar()) return InvalidArgument(Place(path, key.Mark()) + ": a key must be a name");
  FileSetting setting;
  setting.key = key.Scalar();
  setting.where = Place(path, key.Mark());
  setting.is_list = value.IsSequence();
  if (value.IsScalar()) {
    setting.values.push_back(value.Scalar());
    return setting;
  }
  const std::string wrong =
      setting.where + ": " + setting.key + " must have a value or a list of values";
  if (!value.IsSequence()) return InvalidArgument(wrong);
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) return InvalidArgument(wrong);
    setting.values.push_back(item.Scalar());
  }
  return setting;
}

absl::StatusOr<std::vector<FileSetting>> ReadMap(const YAML::Node& root, const std::string& path) {
  std::vector<FileSetting> settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap())
    return InvalidArgument(path + ": must be a map of settings, as in 'port: 8000'");
  std::set<std::string> seen;
  for (const auto& member : root) {
    QUIRE_ASSIGN_OR_RETURN(FileSetting setting, ReadSetting(member.first, member.second, path));
    if (!seen.insert(setting.key).second) {
      return InvalidArgument(setting.where + ": key '" + setting.key + "' is given twice");
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace

absl::StatusOr<std::vector<FileSetting>> ParseYamlSettings(const std::string& text,
                                                           const std::string& path) {
  try {  // yaml-cpp reports by exceptions; none leaves this function
    return ReadMap(YAML::Load(text), path);
  } catch (const YAML::Exception& error) {
    return InvalidArgument(Place(path, error.mark) + ": not YAML: " + error.msg);
  }
}

absl::StatusOr<std::vector<FileSetting>> ReadYamlSettings(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return InvalidArgument("--config: " + path + " cannot be read; give an existing YAML file");
  std::string text(kMaxConfigFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || (text.empty() && !file.eof())) {
    return InvalidArgument("--config: " + path + " cannot be read; give an existing YAML file");
  }
  if (text.size() > kMaxConfigFileBytes) {
    return InvalidArgument("--config: " + path + " is longer than 1 MiB");
  }
  return ParseYamlSettings(text, path);
}

}  // namespace quire::config

#include "tests/golden/golden_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "common/check.h"
#include "common/json/json.h"

namespace quire::golden {

std::string SourceFolder() {
  const char* carried = std::getenv("QUIRE_SOURCE_FOLDER");
  return carried == nullptr ? QUIRE_SOURCE_DIR : carried;
}

std::vector<std::string> Fixtures() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourceFolder() + "/tests/golden/models", error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  QUIRE_CHECK_MSG(stream.good(), path.c_str());
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

Golden ReadGolden(const std::string& path) {
  absl::StatusOr<json::Value> value = json::Parse(ReadFile(path));
  QUIRE_CHECK_MSG(value.ok(), path.c_str());
  const json::Object& object = value->as_object();
  Golden golden;
  golden.prompt_length = static_cast<int>(object.at("prompt_length").as_int64());
  if (object.contains("max_model_len"))
    golden.max_model_len = object.at("max_model_len").as_int64();
  for (const json::Value& token : object.at("tokens").as_array()) {
    golden.tokens.push_back(static_cast<int32_t>(token.as_int64()));
  }
  for (const json::Value& entry : object.at("rows").as_array()) {
    const json::Object& fields = entry.as_object();
    GoldenRow row;
    row.position = static_cast<int>(fields.at("position").as_int64());
    row.gap = fields.at("gap").to_number<double>();
    row.bfloat16_error = fields.at("bfloat16_error").to_number<double>();
    std::string bytes;
    const json::String& packed = fields.at("logits").as_string();
    QUIRE_CHECK(absl::Base64Unescape(absl::string_view(packed.data(), packed.size()), &bytes));
    row.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(row.logits.data(), bytes.data(), row.logits.size() * sizeof(float));
    golden.rows.push_back(std::move(row));
  }
  return golden;
}

}  // namespace quire::golden

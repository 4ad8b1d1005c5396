// Fuzzes the reader of config.json: what it accepts must hold the invariants of ModelConfig.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "worker/model/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = quire::json::Parse({reinterpret_cast<const char*>(data), size});
  if (!value.ok() || !value->is_object()) return 0;
  const auto config = quire::model::ModelConfigFromJson(value->as_object(), "fuzz");
  if (!config.ok()) return 0;
  if (!quire::load::CheckModelConfig(*config).ok()) std::abort();
  if (quire::load::CanonicalText(*config).empty()) std::abort();
  return 0;
}

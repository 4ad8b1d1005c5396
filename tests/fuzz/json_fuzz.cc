// Fuzzes the JSON reader: what it accepts must be written and read back to the same text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = quire::json::Parse({reinterpret_cast<const char*>(data), size});
  if (!value.ok()) return 0;
  const std::string text = quire::json::Serialize(*value);
  const auto again = quire::json::Parse(text);
  if (!again.ok() || quire::json::Serialize(*again) != text) std::abort();
  return 0;
}

// Fuzzes the JSON reader: what it accepts must be written and read back to the same value.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/json/json.h"

namespace {

using quire::json::Value;

// Boost.JSON may round the last bits of a long number another way; all else is exact.
constexpr double kRounding = 1e-15;

bool Same(const Value& a, const Value& b) {
  if (a.is_double() && !std::isfinite(a.get_double())) return b.is_null();  // as 1e400 is read
  if (a.is_double() && b.is_double()) {
    const double x = a.get_double();
    return x == b.get_double() || std::fabs(x - b.get_double()) <= kRounding * std::fabs(x);
  }
  if (a.is_array() && b.is_array()) {
    return std::ranges::equal(a.get_array(), b.get_array(), Same);
  }
  if (a.is_object() && b.is_object()) {
    return std::ranges::equal(a.get_object(), b.get_object(), [](const auto& x, const auto& y) {
      return x.key() == y.key() && Same(x.value(), y.value());
    });
  }
  return a == b;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = quire::json::Parse({reinterpret_cast<const char*>(data), size});
  if (!value.ok()) return 0;
  const auto again = quire::json::Parse(quire::json::Serialize(*value));
  if (!again.ok() || !Same(*value, *again)) std::abort();
  return 0;
}

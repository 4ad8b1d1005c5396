#include "common/ascii.h"

namespace quire {

std::string PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(HexDigit(text[i + 1]) << 4 | HexDigit(text[i + 2]));
    i += 2;
  }
  return out;
}

}  // namespace quire

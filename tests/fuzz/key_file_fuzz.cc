// Fuzzes the key file: refusals are one line, and what is accepted keeps to the bounds that the
// rest counts on.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/wire/values.h"
#include "router/keys/key_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto keys = quire::ReadKeyFile({reinterpret_cast<const char*>(data), size});
  if (!keys.ok()) {
    const std::string why = quire::StatusMessage(keys.status());
    if (why.empty() || why.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const quire::KeyFileEntry& key : *keys) {
    const bool fits = !key.hashes.empty() && !key.profile.name.empty() && key.profile.weight > 0 &&
                      key.profile.name.size() <= quire::kMaxTenantBytes;
    if (!fits) std::abort();
  }
  return 0;
}

// The key file as JSON: a list of hashed keys with what each may do (docs/api-keys.md).
//
// Any thread; pure. The file is an operator's, but it is read as hostile input: sizes are bounded,
// every member is known, and an error never repeats what may be a secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "router/keys/key_table.h"

namespace quire {

struct KeyFileEntry {
  std::vector<KeyHash> hashes;  // several while a key is being replaced
  TenantProfile profile;
  std::string where;  // "keys[2]"
};

// INVALID_ARGUMENT, one line, names the member.
absl::StatusOr<std::vector<KeyFileEntry>> ReadKeyFile(std::string_view text);

}  // namespace quire

// Questions to a router's admin port.
//
// Blocking, on the calling thread.
#pragma once

#include <atomic>
#include <string>

#include "common/client/http_client_asio.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr size_t kMaxTokenFileBytes = 4096;

struct AdminOptions {
  std::string url;         // empty: not asked
  std::string token_file;  // empty: no token is sent
};

// --admin-url and --admin-token-file.
void AddAdminFlags(AdminOptions& options, config::Schema& schema, const char* default_url);

// The answer's body. INVALID_ARGUMENT for the flags and for requests that the port refuses,
// NOT_FOUND for 404, UNAVAILABLE when no server answers.
absl::StatusOr<std::string> AskAdmin(const AdminOptions& options, const std::string& path,
                                     const std::atomic<bool>& cancelled);

}  // namespace quire::cli

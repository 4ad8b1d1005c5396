// One request's life as text: the output of `quire trace` for a router's answer.
//
// Pure. The answer is a router's text: missing members are left out, and nothing in it controls the
// terminal.
#pragma once

#include <string>

#include "common/status.h"

namespace quire::cli {

// Of GET /admin/requests/ID. INVALID_ARGUMENT when it is of another form.
absl::StatusOr<std::string> TimelineText(const std::string& body);
// Of GET /admin/requests: one line each.
absl::StatusOr<std::string> RequestListText(const std::string& body);

}  // namespace quire::cli

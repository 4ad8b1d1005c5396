// The workers' records of a request: lines of their --request-log beside a router's answer.
//
// Pure except for reading the files. Lines are other programs' text: invalid ones are skipped, and
// nothing in them controls the terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire::cli {

// Of a file so many bytes are read, from its end.
inline constexpr size_t kMaxWorkerLogBytes = size_t{256} << 20;

// Lines of the file that may be about the request; NOT_FOUND where it cannot be read.
absl::StatusOr<std::vector<std::string>> LinesAbout(const std::string& path,
                                                    std::string_view request_id);

// The attempts of the request of GET /admin/requests/ID (`body`) that are among the lines, as text:
// one line each, by attempt. Empty: none is.
std::string WorkerPartText(const std::string& body, const std::vector<std::string>& lines);

}  // namespace quire::cli

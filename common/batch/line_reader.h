// Reads a file line by line in bounded memory: a line that is too long has a size and no text.
//
// Blocking, on the calling thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire::batch {

struct FileLine {
  int64_t offset = 0;
  size_t bytes = 0;       // without the line's end
  std::string_view text;  // empty for a line with more than the limit
  bool ended = false;     // by a newline
};

// Calls `take` with each line of the file, from its beginning; false from it ends the reading.
inline absl::Status ReadFileLines(int fd, size_t max_bytes,
                                  const std::function<bool(const FileLine&)>& take) {
  std::string pending;
  FileLine line;
  char buffer[65536];
  const auto finish = [&](bool ended) {
    line.text = line.bytes > max_bytes ? std::string_view() : std::string_view(pending);
    line.ended = ended;
    const bool more = take(line);
    line.offset += static_cast<int64_t>(line.bytes) + 1;
    line.bytes = 0;
    pending.clear();
    return more;
  };
  for (int64_t at = 0;;) {
    const ssize_t count = pread(fd, buffer, sizeof(buffer), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (count == 0) break;
    at += count;
    std::string_view rest(buffer, static_cast<size_t>(count));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view piece = rest.substr(0, end);
      line.bytes += piece.size();
      if (line.bytes <= max_bytes) pending += piece;
      if (end == std::string_view::npos) break;
      if (!finish(true)) return absl::OkStatus();
      rest.remove_prefix(end + 1);
    }
  }
  if (line.bytes > 0) finish(false);
  return absl::OkStatus();
}

}  // namespace quire::batch

// The logger that --log-level and --log-format ask for.
#pragma once

#include <string_view>

#include "common/log/log.h"

namespace quire {

// `format` is "auto", "text" or "json"; another name is "auto", another level "info".
inline LoggerOptions LoggerOptionsFromFlags(std::string_view level, std::string_view format) {
  LoggerOptions options;
  options.level = LogLevelFromName(level);
  if (format == "text") options.format = LogFormat::kText;
  if (format == "json") options.format = LogFormat::kJson;
  return options;
}

}  // namespace quire

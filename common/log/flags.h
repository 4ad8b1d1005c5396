// Makes the logger that --log-level and --log-format describe.
#pragma once

#include <string_view>

#include "common/log/log.h"

namespace quire {

// `format` is "auto", "text" or "json"; an unknown format means "auto", an unknown level "info".
inline LoggerOptions LoggerOptionsFromFlags(std::string_view level, std::string_view format) {
  LoggerOptions options;
  options.level = LogLevelFromName(level);
  if (format == "text") options.format = LogFormat::kText;
  if (format == "json") options.format = LogFormat::kJson;
  return options;
}

}  // namespace quire

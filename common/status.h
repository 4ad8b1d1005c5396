// Macros over absl::Status that keep the normal path simple, and helpers to build one-line errors.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define QUIRE_STATUS_CONCAT_(a, b) a##b
#define QUIRE_STATUS_NAME_(a, b) QUIRE_STATUS_CONCAT_(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define QUIRE_RETURN_IF_ERROR(expression)                                                       \
  do {                                                                                          \
    if (::absl::Status quire_status_ = (expression); !quire_status_.ok()) return quire_status_; \
  } while (false)

// `QUIRE_ASSIGN_OR_RETURN(auto value, Compute());`
#define QUIRE_ASSIGN_OR_RETURN(target, expression) \
  QUIRE_ASSIGN_OR_RETURN_(QUIRE_STATUS_NAME_(quire_statusor_, __LINE__), target, expression)
#define QUIRE_ASSIGN_OR_RETURN_(holder, target, expression) \
  auto holder = (expression);                               \
  if (!holder.ok()) return std::move(holder).status();      \
  target = std::move(holder).value()

namespace quire {

inline absl::string_view AbslView(std::string_view s) { return {s.data(), s.size()}; }
inline absl::Status InvalidArgument(std::string_view message) {
  return absl::InvalidArgumentError(AbslView(message));
}
inline std::string StatusMessage(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// The same code with `prefix` and ": " before the message.
inline absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), AbslView(std::string(prefix) + ": " + StatusMessage(status)));
}

}  // namespace quire

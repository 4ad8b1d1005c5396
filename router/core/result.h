// A value, or the error that the client sees, with the field that it should change.
//
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/memory_account.h"
#include "common/status.h"
#include "router/core/api.h"

namespace quire {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT: implicit by design
  Result(ApiError error) : state_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(state_); }
  T& value() {
    QUIRE_CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const {
    QUIRE_CHECK(ok());
    return std::get<T>(state_);
  }
  const ApiError& error() const {
    QUIRE_CHECK(!ok());
    return std::get<ApiError>(state_);
  }

 private:
  std::variant<T, ApiError> state_;
};

// "param: message" for the client as one sentence; the field is kept apart for protocols that name
// it.
inline ApiError InvalidField(std::string_view param, std::string_view message) {
  return {ApiCode::kInvalidArgument, std::string(param) + ": " + std::string(message),
          std::string(param), 0};
}

// The error as clients of OpenAI know it.
inline constexpr std::string_view kContextLengthExceeded = "context_length_exceeded";

// kNotFound for a model's name that is not served (kInvalidArgument if it is empty): the nearest of
// `served`, and some of them.
ApiError NotServed(std::string_view name, const std::vector<std::string>& served);

// For large bodies that arrive faster than they can be parsed.
inline ApiError TooManyLargeRequests() {
  return {ApiCode::kUnavailable, std::string(kTooManyLargeRequests), "",
          static_cast<uint32_t>(kTooManyLargeRequestsRetryMs)};
}

// For answers that are not streamed and hold too much.
inline ApiError NoMemoryForAnswer() {
  return {ApiCode::kUnavailable,
          "answers that wait until they are whole hold all the memory that they may; ask for a "
          "stream, or come again",
          "", static_cast<uint32_t>(kTooManyLargeRequestsRetryMs)};
}

// When the memory held for clients leaves no room for an answer.
inline ApiError TooMuchHeld() {
  return {ApiCode::kUnavailable,
          "answers that wait for their clients leave no memory for this one; try again shortly", "",
          static_cast<uint32_t>(kTooManyLargeRequestsRetryMs)};
}

// An error that a library returned; `param` is named when the client caused the error.
ApiError ErrorFromStatus(const absl::Status& status, std::string_view param);

}  // namespace quire

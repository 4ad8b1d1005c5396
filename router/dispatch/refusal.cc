#include "router/dispatch/refusal.h"

#include <algorithm>

#include "common/check.h"

namespace quire {
namespace {

constexpr std::string_view kRequestSuspect = "request_suspect";
// These begin what a worker says of a constraint that it cannot compile, or that no token can
// continue, and of words for the end of a thought that cannot come.
constexpr std::string_view kRulesOfText[] = {"constraint", "thought_budget"};
constexpr uint32_t kRetryAfterMs = 1000;
constexpr uint32_t kMaxRetryAfterMs = 60'000;  // whatever a worker proposes

// The client's name for a field of the wire.
std::string ClientField(const std::string& field) {
  if (field.empty() || field == "prompt_ids") return "prompt";
  return field == "choices.outputs" ? "resume" : field;
}

// Workers open their message with the field's name.
std::string WithoutField(const std::string& message, const std::string& field) {
  const std::string opening = field + ": ";
  return message.rfind(opening, 0) == 0 ? message.substr(opening.size()) : message;
}

}  // namespace

bool WorthAnotherWorker(RefusalCode code) {
  switch (code) {
    case RefusalCode::kInvalid:
    case RefusalCode::kTooLarge:
    case RefusalCode::kUnsupported:
    case RefusalCode::kDeadlinePassed:
      return false;
    case RefusalCode::kUnspecified:
    case RefusalCode::kQueueFull:
    case RefusalCode::kNotReady:
    case RefusalCode::kDraining:
    case RefusalCode::kStaleAttempt:
    case RefusalCode::kDuplicate:
    case RefusalCode::kWrongModel:
      return true;
  }
  return false;
}

ApiError ErrorOfRefusal(const Refused& refused) {
  const std::string said = refused.message.empty() ? "no reason given" : refused.message;
  switch (refused.code) {
    case RefusalCode::kInvalid:
    case RefusalCode::kUnsupported:
    case RefusalCode::kTooLarge: {
      const std::string field = ClientField(refused.field);
      return {ApiCode::kInvalidArgument, field + ": " + WithoutField(said, refused.field), field,
              0};
    }
    case RefusalCode::kDeadlinePassed:
      return {ApiCode::kDeadlineExceeded, "the deadline passed before a worker began", "", 0};
    case RefusalCode::kQueueFull:
    case RefusalCode::kNotReady:
    case RefusalCode::kDraining: {
      const uint32_t wished = refused.retry_after_ms == 0 ? kRetryAfterMs : refused.retry_after_ms;
      return {ApiCode::kUnavailable, "all workers are busy: " + said, "",
              std::min(wished, kMaxRetryAfterMs)};
    }
    case RefusalCode::kUnspecified:
    case RefusalCode::kStaleAttempt:
    case RefusalCode::kDuplicate:
    case RefusalCode::kWrongModel:
      break;
  }
  return {ApiCode::kInternal, "a worker refused the request: " + said, "", 0};
}

bool WorthAnotherAttempt(const Ended& ended) {
  switch (ended.reason) {
    case EndReason::kDrained:
    case EndReason::kRouterLost:
      return true;
    case EndReason::kFailed:
      return ended.retryable;
    case EndReason::kUnspecified:
    case EndReason::kStop:
    case EndReason::kLength:
    case EndReason::kCancelled:
    case EndReason::kDeadline:
    case EndReason::kSlowClient:
      return false;
  }
  return false;
}

ApiError ErrorOfEnd(const Ended& ended) {
  QUIRE_CHECK(ended.reason != EndReason::kStop && ended.reason != EndReason::kLength);
  switch (ended.reason) {
    case EndReason::kDeadline:
      return {ApiCode::kDeadlineExceeded, "the request's deadline passed", "", 0};
    case EndReason::kSlowClient:
      return {ApiCode::kCancelled, "the client took no output for too long", "", 0};
    case EndReason::kDrained:
    case EndReason::kRouterLost:
      return {ApiCode::kUnavailable, "the worker left and no other could carry on", "",
              kRetryAfterMs};
    default:
      break;
  }
  for (const std::string_view field : kRulesOfText) {
    if (!ended.retryable && ended.message.starts_with(std::string(field) + ": ")) {
      return {ApiCode::kInvalidArgument, ended.message, std::string(field), 0};
    }
  }
  const std::string said = ended.message.empty() ? "no reason given" : ended.message;
  return {ApiCode::kInternal, "the worker failed the request: " + said, "", 0};
}

AttemptEnd AttemptEndOf(EndReason reason) {
  switch (reason) {
    case EndReason::kStop:
    case EndReason::kLength:
      return AttemptEnd::kFinished;
    case EndReason::kCancelled:
      return AttemptEnd::kCancelled;
    case EndReason::kDeadline:
      return AttemptEnd::kDeadline;
    case EndReason::kRouterLost:
      return AttemptEnd::kRouterLost;
    case EndReason::kDrained:
      return AttemptEnd::kDrained;
    case EndReason::kSlowClient:
      return AttemptEnd::kSlowClient;
    case EndReason::kFailed:
    case EndReason::kUnspecified:
      break;
  }
  return AttemptEnd::kFailed;
}

ApiError NoWorkerError(const std::string& model, bool stream_had_begun) {
  const std::string message = stream_had_begun
                                  ? "the worker was lost and no other could carry the answer on"
                                  : "no worker is ready to serve model " + model;
  return {ApiCode::kUnavailable, message, "", kRetryAfterMs};
}

ApiError SuspectError(uint32_t deaths) {
  return {ApiCode::kInternal,
          "workers died under this request, " + std::to_string(deaths) + " of them: it is given up",
          "", 0, kRequestSuspect};
}

ApiError SuspectPromptError() {
  return {ApiCode::kInternal, "workers died under this prompt shortly before: it is refused", "", 0,
          kRequestSuspect};
}

}  // namespace quire

#include "router/core/result.h"

#include <algorithm>

#include "common/nearest.h"

namespace quire {
namespace {

ApiCode CodeFromStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ApiCode::kInvalidArgument;
    case absl::StatusCode::kNotFound:
      return ApiCode::kNotFound;
    case absl::StatusCode::kFailedPrecondition:
      return ApiCode::kConflict;
    case absl::StatusCode::kResourceExhausted:
      return ApiCode::kTooLarge;
    case absl::StatusCode::kCancelled:
      return ApiCode::kCancelled;
    case absl::StatusCode::kUnimplemented:
      return ApiCode::kUnimplemented;
    case absl::StatusCode::kUnavailable:
      return ApiCode::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return ApiCode::kDeadlineExceeded;
    case absl::StatusCode::kUnauthenticated:
      return ApiCode::kUnauthenticated;
    case absl::StatusCode::kPermissionDenied:
      return ApiCode::kPermissionDenied;
    default:
      return ApiCode::kInternal;
  }
}

constexpr size_t kMaxShownNameBytes = 256;
constexpr size_t kMaxListedNames = 16;
// A client may ask for made-up names as often as it likes.
constexpr size_t kMaxComparedNames = 128;
constexpr size_t kMaxComparedBytes = 64;

// The nearest name, of a bounded number of about the same length.
std::string NearestServed(std::string_view name, const std::vector<std::string>& served) {
  if (name.size() > kMaxComparedBytes) return "";
  const size_t most = std::max<size_t>(2, name.size() / 3);
  std::vector<std::string> alike;
  for (const std::string& each : served) {
    const size_t longer = std::max(each.size(), name.size());
    if (longer - std::min(each.size(), name.size()) > most) continue;
    alike.push_back(each);
    if (alike.size() == kMaxComparedNames) break;
  }
  return NearestMatch(name, alike);
}

}  // namespace

ApiError NotServed(std::string_view name, const std::vector<std::string>& served) {
  std::string known = served.empty() ? "none yet" : "";
  for (size_t i = 0; i < std::min(served.size(), kMaxListedNames); ++i) {
    known += (i == 0 ? "" : ", ") + served[i];
  }
  if (served.size() > kMaxListedNames) {
    known += " and " + std::to_string(served.size() - kMaxListedNames) + " more";
  }
  if (name.empty()) {
    return InvalidField("model", "must name one of the models that are served: " + known);
  }
  const std::string nearest = NearestServed(name, served);
  return {ApiCode::kNotFound,
          "model: '" + std::string(name.substr(0, kMaxShownNameBytes)) + "' is not served; " +
              (nearest.empty() ? "" : "the nearest name is " + nearest + "; ") +
              "served are: " + known,
          "model", 0};
}

ApiError ErrorFromStatus(const absl::Status& status, std::string_view param) {
  QUIRE_CHECK(!status.ok());
  ApiError error{CodeFromStatus(status.code()), StatusMessage(status), "", 0};
  const bool clients_fault =
      error.code == ApiCode::kInvalidArgument || error.code == ApiCode::kTooLarge;
  if (clients_fault) error.param = std::string(param);
  return error;
}

}  // namespace quire

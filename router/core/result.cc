#include "router/core/result.h"

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

}  // namespace

ApiError ErrorFromStatus(const absl::Status& status, std::string_view param) {
  QUIRE_CHECK(!status.ok());
  ApiError error{CodeFromStatus(status.code()), StatusMessage(status), "", 0};
  const bool clients_fault =
      error.code == ApiCode::kInvalidArgument || error.code == ApiCode::kTooLarge;
  if (clients_fault) error.param = std::string(param);
  return error;
}

}  // namespace quire

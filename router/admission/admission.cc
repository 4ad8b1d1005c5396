#include "router/admission/admission.h"

#include <string>

#include "common/check.h"

namespace quire {

std::optional<ApiError> Admission::TryAdmit() {
  constexpr uint32_t kRetryAfterMs = 1000;
  QUIRE_CHECK(live_ <= limit_);
  if (draining_) {
    ++refused_total_;
    return ApiError{ApiCode::kUnavailable, "this router is shutting down", "", kRetryAfterMs};
  }
  if (live_ == limit_) {
    ++refused_total_;
    return ApiError{
        ApiCode::kUnavailable,
        "this router serves its limit of " + std::to_string(limit_) + " requests at once", "",
        kRetryAfterMs};
  }
  ++live_;
  return std::nullopt;
}

void Admission::Release() {
  QUIRE_CHECK_MSG(live_ > 0, "what is released was admitted");
  --live_;
}

}  // namespace quire

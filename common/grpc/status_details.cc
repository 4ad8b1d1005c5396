#include "common/grpc/status_details.h"

#include "absl/strings/cord.h"
#include "common/ascii.h"
#include "common/http2/grpc_framing.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire {
namespace {

constexpr size_t kMaxFieldBytes = 128;
constexpr size_t kMaxWordsBytes = 512;
constexpr int64_t kMillisPerSecond = 1000, kNanosPerMilli = 1'000'000;

// Cut at a character.
std::string Words(const std::string& text, size_t most) {
  return PercentDecode(http2::PercentEncode(text, most));
}

}  // namespace

void AddDetails(const StatusDetails& details, absl::Status& status) {
  if (status.ok() || (details.field.empty() && details.retry_after_ms == 0)) return;
  google::rpc::Status told;
  told.set_code(static_cast<int>(status.code()));
  told.set_message(Words(StatusMessage(status), kMaxWordsBytes));
  if (!details.field.empty()) {
    google::rpc::BadRequest bad;
    auto& violation = *bad.add_field_violations();
    violation.set_field(Words(details.field, kMaxFieldBytes));
    violation.set_description(told.message());
    told.add_details()->PackFrom(bad);
  }
  if (details.retry_after_ms > 0) {
    google::rpc::RetryInfo retry;
    auto& delay = *retry.mutable_retry_delay();
    delay.set_seconds(details.retry_after_ms / kMillisPerSecond);
    delay.set_nanos(
        static_cast<int32_t>(details.retry_after_ms % kMillisPerSecond * kNanosPerMilli));
    told.add_details()->PackFrom(retry);
  }
  status.SetPayload(AbslView(http2::kStatusDetails), absl::Cord(told.SerializeAsString()));
}

}  // namespace quire

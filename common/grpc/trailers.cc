#include "common/grpc/trailers.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "common/http2/grpc_framing.h"

namespace quire {
namespace {

constexpr std::string_view kMessage = "grpc-message";
constexpr size_t kFieldOverhead = 32;  // RFC 9113, section 6.5.2

bool IsNeeded(std::string_view name) {
  return name.starts_with(':') || name == "content-type" || name == "grpc-status";
}

}  // namespace

void AppendStatus(const absl::Status& status, GrpcMetadata& out) {
  out.emplace_back("grpc-status", std::to_string(static_cast<int>(status.code())));
  if (!status.message().empty()) {
    out.emplace_back(kMessage, http2::PercentEncode(StatusMessage(status), kMaxStatusMessageBytes));
  }
  if (const auto details = status.GetPayload(AbslView(http2::kStatusDetails))) {
    out.emplace_back(http2::kStatusDetailsHeader, http2::ToBinaryHeader(std::string(*details)));
  }
}

size_t HeaderListBytes(http2::Headers fields) {
  size_t bytes = 0;
  for (const auto& [name, value, no_index] : fields) {
    bytes += name.size() + value.size() + kFieldOverhead;
  }
  return bytes;
}

size_t HeaderListBytes(const GrpcMetadata& fields) {
  size_t bytes = 0;
  for (const auto& [name, value] : fields) bytes += name.size() + value.size() + kFieldOverhead;
  return bytes;
}

bool FitTrailers(const absl::Status& status, size_t most, GrpcMetadata& trailers) {
  if (HeaderListBytes(trailers) <= most) return true;
  std::erase_if(trailers,
                [](const auto& field) { return field.first == http2::kStatusDetailsHeader; });
  size_t bytes = HeaderListBytes(trailers);
  if (bytes <= most) return true;
  const auto message = std::find_if(trailers.begin(), trailers.end(),
                                    [](const auto& field) { return field.first == kMessage; });
  if (message != trailers.end()) {
    const size_t held = message->second.size();
    const size_t room = held - std::min(held, bytes - most);
    message->second = http2::PercentEncode(StatusMessage(status), room);
    if (message->second.empty()) trailers.erase(message);
  }
  for (bytes = HeaderListBytes(trailers); bytes > most; bytes = HeaderListBytes(trailers)) {
    if (IsNeeded(trailers.back().first)) return false;
    trailers.pop_back();
  }
  return true;
}

}  // namespace quire

#include "router/grpc/call_facts.h"

#include <algorithm>

#include "common/trace/context.h"
#include "router/edge/services.h"

namespace quire {
namespace {

constexpr uint64_t kMaxTimeoutMs = 86'400'000;

// What remains until the call's deadline; 0 when it has none.
uint64_t RemainingMs(const GrpcCallHead& head, Micros now) {
  if (head.deadline == 0) return 0;
  const int64_t ms = (head.deadline - now) / kMicrosPerMilli;
  if (ms > static_cast<int64_t>(kMaxTimeoutMs)) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(ms, 1));
}

}  // namespace

void ReadCallFacts(const GrpcCallHead& head, Micros now, GenerateRequest& out) {
  const uint64_t left = RemainingMs(head, now);
  if (out.timeout_ms == 0 || (left != 0 && left < out.timeout_ms)) out.timeout_ms = left;
  out.session = std::string(head.Find("x-session-id").substr(0, 256));
  out.traceparent = std::string(head.Find("traceparent").substr(0, 256));
  out.tracestate = trace::KeepTracestate(head.All("tracestate"));
}

std::string RequestIdOf(const GrpcCallHead& head, const std::string& wanted) {
  if (UsableRequestId(wanted)) return wanted;
  std::string from_header(head.Find("x-request-id"));
  return UsableRequestId(from_header) ? from_header : std::string();
}

}  // namespace quire

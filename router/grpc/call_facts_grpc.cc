#include "router/grpc/call_facts_grpc.h"

#include <algorithm>
#include <chrono>

#include "common/trace/context.h"

namespace quire {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr uint64_t kMaxTimeoutMs = 86'400'000;

std::string MetadataValue(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return std::string(found->second.data(), found->second.size());
}

// Several of one name are one list.
std::string AllValues(const grpc::CallbackServerContext& context, const char* name) {
  std::string all;
  const auto [begin, end] = context.client_metadata().equal_range(name);
  for (auto value = begin; value != end; ++value) {
    all.append(all.empty() ? "" : ",").append(value->second.data(), value->second.size());
  }
  return all;
}

bool UsableRequestId(const std::string& id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// What remains until the call's deadline; 0 when it has none.
uint64_t RemainingMs(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  if (ms > static_cast<int64_t>(kMaxTimeoutMs)) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(ms, 1));
}

}  // namespace

void ReadCallFacts(const grpc::CallbackServerContext& context, GenerateRequest& out) {
  const uint64_t left = RemainingMs(context);
  if (out.timeout_ms == 0 || (left != 0 && left < out.timeout_ms)) out.timeout_ms = left;
  out.session = MetadataValue(context, "x-session-id").substr(0, 256);
  out.traceparent = MetadataValue(context, "traceparent").substr(0, 256);
  out.tracestate = trace::KeepTracestate(AllValues(context, "tracestate"));
}

std::string RequestIdOf(const grpc::CallbackServerContext& context, const std::string& wanted) {
  if (UsableRequestId(wanted)) return wanted;
  std::string from_header = MetadataValue(context, "x-request-id");
  return UsableRequestId(from_header) ? from_header : std::string();
}

std::string NewRequestId(Rng& rng) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id(32, '0');
  for (size_t half = 0; half < 2; ++half) {
    uint64_t bits = rng.Next();
    for (size_t i = 0; i < 16; ++i, bits >>= 4) id[16 * half + i] = kHex[bits & 15];
  }
  return id;
}

}  // namespace quire

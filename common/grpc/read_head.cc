#include "common/grpc/read_head.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/http2/grpc_framing.h"

namespace quire {
namespace {

constexpr Micros kMaxDeadline = 30 * 86'400 * kMicrosPerSecond;  // later ones are ignored

// Several values of one name may come as a list: a few, as each takes far more than its comma.
void AddBinary(std::string_view name, std::string_view list, GrpcCallHead& head) {
  constexpr int64_t kMostValues = 32;
  if (std::count(list.begin(), list.end(), ',') >= kMostValues) {
    head.malformed = name;
    return;
  }
  for (;;) {
    const size_t comma = std::min(list.find(','), list.size());
    std::optional<std::string> bytes = http2::FromBinaryHeader(list.substr(0, comma));
    if (!bytes) head.malformed = name;
    head.metadata.emplace_back(name, std::move(bytes).value_or(""));
    if (comma == list.size()) return;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kGrpc = "application/grpc";
  if (!content_type.starts_with(kGrpc)) return false;
  content_type.remove_prefix(kGrpc.size());
  if (content_type.starts_with("+proto")) content_type.remove_prefix(6);
  return content_type.empty() || content_type[0] == ';';
}

GrpcCallHead HeadOf(const http2::HeaderBlock& block, Micros now) {
  GrpcCallHead head;
  head.metadata.reserve(block.fields.size());
  for (const http2::Header& field : block.fields) {
    if (http2::IsBinary(field.name)) {
      AddBinary(field.name, field.value, head);
    } else if (!field.name.starts_with(':')) {
      head.metadata.emplace_back(field.name, field.value);
    } else if (field.name == ":path") {
      head.path = std::string(field.value);
    }
  }
  const auto micros = http2::ParseTimeout(head.Find("grpc-timeout"));
  if (micros && *micros <= kMaxDeadline) head.deadline = now + *micros;
  return head;
}

absl::Status CheckHead(const GrpcCallHead& head) {
  if (!head.malformed.empty()) {
    return InvalidArgument(head.malformed +
                           ": a name in \"-bin\" has base64, of at most 32 values");
  }
  const std::string_view timeout = head.Find("grpc-timeout");
  if (head.Count("grpc-timeout") == 0 || http2::ParseTimeout(timeout)) return absl::OkStatus();
  return InvalidArgument("grpc-timeout: \"" + std::string(timeout.substr(0, 16)) +
                         "\" is no time: it is up to eight digits and one of H, M, S, m, u, n");
}

}  // namespace quire

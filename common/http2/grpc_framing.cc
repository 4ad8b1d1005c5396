#include "common/http2/grpc_framing.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "common/ascii.h"

namespace quire::http2 {
namespace {

struct StatusOfHttp {
  int http;
  absl::StatusCode code;
};
// gRPC's http-grpc-status-mapping document.
constexpr StatusOfHttp kOfHttp[] = {
    {400, absl::StatusCode::kInternal},         {401, absl::StatusCode::kUnauthenticated},
    {403, absl::StatusCode::kPermissionDenied}, {404, absl::StatusCode::kUnimplemented},
    {429, absl::StatusCode::kUnavailable},      {502, absl::StatusCode::kUnavailable},
    {503, absl::StatusCode::kUnavailable},      {504, absl::StatusCode::kUnavailable},
};

struct Reset {
  const char* name;
  absl::StatusCode code;
};
// By number; PROTOCOL-HTTP2, "Errors", defines the codes.
constexpr Reset kResets[] = {
    {"NO_ERROR", absl::StatusCode::kInternal},
    {"PROTOCOL_ERROR", absl::StatusCode::kInternal},
    {"INTERNAL_ERROR", absl::StatusCode::kInternal},
    {"FLOW_CONTROL_ERROR", absl::StatusCode::kInternal},
    {"SETTINGS_TIMEOUT", absl::StatusCode::kInternal},
    {"STREAM_CLOSED", absl::StatusCode::kUnknown},
    {"FRAME_SIZE_ERROR", absl::StatusCode::kInternal},
    {"REFUSED_STREAM", absl::StatusCode::kUnavailable},
    {"CANCEL", absl::StatusCode::kCancelled},
    {"COMPRESSION_ERROR", absl::StatusCode::kInternal},
    {"CONNECT_ERROR", absl::StatusCode::kInternal},
    {"ENHANCE_YOUR_CALM", absl::StatusCode::kResourceExhausted},
    {"INADEQUATE_SECURITY", absl::StatusCode::kPermissionDenied},
    {"HTTP_1_1_REQUIRED", absl::StatusCode::kUnknown},
};

const Reset* ResetOf(ErrorCode code) {
  const auto index = static_cast<size_t>(code);
  return index < std::size(kResets) ? &kResets[index] : nullptr;
}

struct TimeUnit {
  char name;
  int64_t nanos;
};
constexpr TimeUnit kTimeUnits[] = {
    {'n', 1},
    {'u', 1'000},
    {'m', 1'000'000},
    {'S', 1'000'000'000},
    {'M', 60'000'000'000},
    {'H', 3'600'000'000'000},
};
constexpr int64_t kMaxTimeoutValue = 99'999'999;  // eight digits
constexpr size_t kMaxTimeoutDigits = 8;
constexpr size_t kMostEncodedCharacter = 12;  // four bytes

int64_t DivideUp(int64_t value, int64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

}  // namespace

// ---- messages

void PutMessagePrefix(char* at, size_t message_bytes) {
  at[0] = 0;
  for (int i = 0; i < 4; ++i) at[1 + i] = static_cast<char>(message_bytes >> (24 - 8 * i) & 0xFF);
}

void AppendMessage(std::string& out, std::string_view message) {
  char prefix[kMessagePrefixBytes];
  PutMessagePrefix(prefix, message.size());
  out.append(prefix, sizeof(prefix)).append(message);
}

std::optional<Encoding> EncodingOf(std::string_view name) {
  if (name.empty() || name == "identity") return Encoding::kIdentity;
  if (name == "gzip") return Encoding::kGzip;
  if (name == "deflate") return Encoding::kDeflate;
  return std::nullopt;
}

// ---- deadlines

std::optional<int64_t> ParseTimeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kMaxTimeoutDigits + 1) return std::nullopt;
  const std::string_view digits = text.substr(0, text.size() - 1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.name != text.back()) continue;
    if (unit.nanos < 1000) return DivideUp(static_cast<int64_t>(value), 1000 / unit.nanos);
    return static_cast<int64_t>(value) * (unit.nanos / 1000);
  }
  return std::nullopt;
}

std::string PrintTimeout(int64_t micros) {
  const int64_t least = std::max<int64_t>(micros, 1);
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.nanos < 1000) continue;
    const int64_t value = DivideUp(least, unit.nanos / 1000);
    if (value <= kMaxTimeoutValue) return std::to_string(value) + unit.name;
  }
  return std::to_string(kMaxTimeoutValue) + kTimeUnits[std::size(kTimeUnits) - 1].name;
}

// ---- binary metadata

std::string ToBinaryHeader(std::string_view bytes) {
  std::string text = absl::Base64Escape(AbslView(bytes));
  while (text.ends_with('=')) text.pop_back();
  return text;
}

std::optional<std::string> FromBinaryHeader(std::string_view text) {
  std::string bytes;
  if (!absl::Base64Unescape(AbslView(text), &bytes)) return std::nullopt;
  return bytes;
}

// ---- statuses

absl::StatusCode ParseStatusCode(std::string_view text) {
  int code = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  const bool known = error == std::errc() && end == text.data() + text.size() && code >= 0 &&
                     code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

std::string PercentEncode(std::string_view message, size_t most) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(std::min(message.size(), most));
  size_t character = 0;  // where the last one begins in `text`
  for (const char c : message) {
    const auto byte = static_cast<uint8_t>(c);
    const size_t before = text.size();
    if ((byte & 0xC0) != 0x80) character = before;
    if (c >= ' ' && c <= '~' && c != '%') {
      text += c;
    } else {
      text.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    }
    if (text.size() <= most) continue;
    // A run of continuation bytes that is too long belongs to no character.
    text.resize(before - character < kMostEncodedCharacter ? character : before);
    return text;
  }
  return text;
}

absl::StatusCode CodeOfHttpStatus(int http_status) {
  for (const StatusOfHttp& known : kOfHttp) {
    if (known.http == http_status) return known.code;
  }
  return absl::StatusCode::kUnknown;
}

absl::Status StatusOfTrailers(Headers trailers, int http_status) {
  const std::optional<std::string_view> code = Find(trailers, "grpc-status");
  if (!code.has_value()) {
    return absl::Status(CodeOfHttpStatus(http_status),
                        AbslView("an answer of HTTP status " + std::to_string(http_status) +
                                 " without a status of gRPC"));
  }
  const absl::StatusCode known = ParseStatusCode(*code);
  if (known == absl::StatusCode::kOk) return absl::OkStatus();
  const std::string message = PercentDecode(Find(trailers, "grpc-message").value_or(""));
  absl::Status status(known, AbslView(message));
  const auto details = Find(trailers, kStatusDetailsHeader);
  if (!details.has_value()) return status;
  if (const std::optional<std::string> bytes = FromBinaryHeader(*details)) {
    status.SetPayload(AbslView(kStatusDetails), absl::Cord(*bytes));
  }
  return status;
}

absl::StatusCode CodeOfReset(ErrorCode code) {
  const Reset* known = ResetOf(code);
  return known == nullptr ? absl::StatusCode::kUnknown : known->code;
}

const char* NameOf(ErrorCode code) {
  const Reset* known = ResetOf(code);
  return known == nullptr ? "?" : known->name;
}

}  // namespace quire::http2

#include "router/front/proxy_header.h"

#include <algorithm>
#include <vector>

namespace quire {
namespace {

using Kind = ProxyHeader::Kind;

constexpr std::string_view kText = "PROXY ";
constexpr size_t kMaxTextBytes = 107;  // the longest that version 1 allows
constexpr std::string_view kBinary("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr size_t kBinaryHeadBytes = 16;

bool Begins(std::string_view bytes, std::string_view with) {
  const size_t size = std::min(bytes.size(), with.size());
  return bytes.substr(0, size) == with.substr(0, size);
}

// "TCP4 192.0.2.1 198.51.100.1 56324 443", or "UNKNOWN" and any text.
ProxyHeader ReadText(std::string_view bytes) {
  const size_t end = bytes.substr(0, kMaxTextBytes).find("\r\n");
  if (end == std::string_view::npos) {
    return {bytes.size() < kMaxTextBytes ? Kind::kMore : Kind::kBroken};
  }
  ProxyHeader header{Kind::kWhole, end + 2};
  std::string_view line = bytes.substr(kText.size(), end - kText.size());
  std::vector<std::string_view> words;
  while (true) {
    const size_t space = line.find(' ');
    words.push_back(line.substr(0, space));
    if (space == std::string_view::npos) break;
    line.remove_prefix(space + 1);
  }
  if (words[0] == "UNKNOWN") return header;
  const bool v6 = words[0] == "TCP6";
  if (words.size() != 5 || (!v6 && words[0] != "TCP4")) return {Kind::kBroken};
  const bool has_colon = words[1].find(':') != std::string_view::npos;
  header.client = has_colon == v6 ? ClientAddress::Parse(words[1]) : std::nullopt;
  if (!header.client) return {Kind::kBroken};
  return header;
}

ProxyHeader ReadBinary(std::string_view bytes) {
  if (bytes.size() < kBinaryHeadBytes) return {Kind::kMore};
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  const size_t size = kBinaryHeadBytes + (size_t{byte(14)} << 8) + byte(15);
  const uint8_t command = byte(12);
  if ((command != 0x20 && command != 0x21) || size > kMaxProxyHeaderBytes) return {Kind::kBroken};
  if (bytes.size() < size) return {Kind::kMore};
  ProxyHeader header{Kind::kWhole, size};
  if (command == 0x20) return header;  // the proxy speaks for itself
  const auto* const at = reinterpret_cast<const uint8_t*>(bytes.data()) + kBinaryHeadBytes;
  const bool v6 = byte(13) == 0x21;
  if (!v6 && byte(13) != 0x11) return header;  // not TCP over IP
  if (size < kBinaryHeadBytes + (v6 ? 36 : 12)) return {Kind::kBroken};
  header.client = v6 ? ClientAddress::OfV6(at) : ClientAddress::OfV4(at);
  return header;
}

}  // namespace

ProxyHeader ReadProxyHeader(std::string_view bytes) {
  if (bytes.empty()) return {Kind::kMore};
  for (const std::string_view begin : {kText, kBinary}) {
    if (!Begins(bytes, begin)) continue;
    if (bytes.size() < begin.size()) return {Kind::kMore};
    return begin == kText ? ReadText(bytes) : ReadBinary(bytes);
  }
  return {Kind::kNone};
}

}  // namespace quire

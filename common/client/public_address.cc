#include "common/client/public_address.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/check.h"

namespace quire::client {
namespace {

// IANA's special purpose registries; what is 2000::/3 and not here is of the internet.
constexpr std::string_view kNotPublic[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
    "2001::/23",     "2001:db8::/32",   "3fff::/20",
};

AddressRange RangeOf(std::string_view text) {
  const absl::StatusOr<AddressRange> range = AddressRange::Parse(text);
  QUIRE_CHECK_MSG(range.ok(), "a range of the table");
  return *range;
}

const std::vector<AddressRange>& NotPublic() {
  static const auto& ranges = *[] {
    auto* list = new std::vector<AddressRange>;
    for (const std::string_view text : kNotPublic) list->push_back(RangeOf(text));
    return list;
  }();
  return ranges;
}

bool IsIn(const char* range, const ClientAddress& address) {
  return RangeOf(range).Contains(address);
}

}  // namespace

bool IsPublic(const ClientAddress& address) {
  const auto& bytes = address.bytes;
  if (IsIn("64:ff9b::/96", address)) return IsPublic(ClientAddress::OfV4(&bytes[12]));
  if (IsIn("2002::/16", address)) return IsPublic(ClientAddress::OfV4(&bytes[2]));
  if (!IsIn("0.0.0.0/0", address) && !IsIn("2000::/3", address)) return false;
  return std::none_of(NotPublic().begin(), NotPublic().end(),
                      [&](const AddressRange& range) { return range.Contains(address); });
}

}  // namespace quire::client

#include "common/grpc/call_head.h"

#include <algorithm>

namespace quire {

std::string_view GrpcCallHead::Find(std::string_view name) const {
  for (const auto& [key, value] : metadata) {
    if (key == name) return value;
  }
  return {};
}

size_t GrpcCallHead::Count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(metadata.begin(), metadata.end(),
                                           [&](const auto& entry) { return entry.first == name; }));
}

std::string GrpcCallHead::All(std::string_view name) const {
  std::string all;
  for (const auto& [key, value] : metadata) {
    if (key == name) all.append(all.empty() ? "" : ",").append(value);
  }
  return all;
}

}  // namespace quire

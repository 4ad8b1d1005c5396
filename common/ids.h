// Strong identifiers: numbers of different meaning do not mix.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace quire {

// Token ids are passed to kernels in bulk and stay plain int32_t.
using TokenId = int32_t;

// A number that compares and hashes but does not add up or convert.
template <class Tag, class Value>
class StrongId {
 public:
  using ValueType = Value;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Value value) : value_(value) {}
  constexpr Value value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Value value_ = 0;
};

using RouterInstance = StrongId<struct RouterInstanceTag, uint64_t>;  // random per router process
using RequestNumber = StrongId<struct RequestNumberTag, uint64_t>;    // unique in a router instance
using Attempt = StrongId<struct AttemptTag, uint32_t>;                // grows per request
using Epoch = StrongId<struct EpochTag, uint64_t>;                    // random per worker start

// The key of an attempt's request on the wire.
struct WireKey {
  RouterInstance router;
  RequestNumber request;
  friend constexpr auto operator<=>(const WireKey&, const WireKey&) = default;
};

}  // namespace quire

template <class Tag, class Value>
struct std::hash<quire::StrongId<Tag, Value>> {
  size_t operator()(quire::StrongId<Tag, Value> id) const noexcept {
    return std::hash<Value>()(id.value());
  }
};
template <>
struct std::hash<quire::WireKey> {
  size_t operator()(const quire::WireKey& key) const noexcept {
    return std::hash<uint64_t>()(key.router.value() * 0x9E3779B97F4A7C15ull ^ key.request.value());
  }
};

// Who may come in: bounds what lives in this router at once, and refuses early with a time to come
// back.
//
// Owner: the pipeline, on the router's executor. No clock, no I/O.
//  1. live() never exceeds max_live_requests, and every admission is released once.
//  2. While draining nothing new comes in.
#pragma once

#include <cstdint>
#include <optional>

#include "router/core/api.h"
#include "router/core/limits.h"

namespace quire {

class Admission {
 public:
  explicit Admission(const RouterLimits& limits) : limit_(limits.max_live_requests) {}

  // Empty: admitted, and to be released. Else the error that the client hears.
  std::optional<ApiError> TryAdmit();
  void Release();
  void StartDraining() { draining_ = true; }

  bool draining() const { return draining_; }
  uint32_t live() const { return live_; }
  uint64_t refused_total() const { return refused_total_; }

 private:
  const uint32_t limit_;
  uint32_t live_ = 0;
  uint64_t refused_total_ = 0;
  bool draining_ = false;
};

}  // namespace quire

// Fetches a model's text bundle from a worker and compares it with the digest that the worker's
// Hello named.
//
// Owner: the pipeline, on the router's executor. Bytes are passed on and not kept.
//  1. One fetch per model at a time; their bytes together stay within max_text_bundles_bytes.
//  2. The bytes that are passed on have the requested SHA-256.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/runtime/runtime.h"
#include "common/status.h"
#include "router/core/limits.h"

namespace quire {

// SHA-256, 32 bytes.
std::string Sha256(std::string_view bytes);

class TextBundles {
 public:
  TextBundles(const RouterLimits& limits, Dialer& dialer);

  struct Request {
    std::string target;  // the worker to fetch from
    std::string model_id;
    std::string sha256;  // 32 bytes
  };
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  // False, and nothing happens: this model is being fetched, or the limit is reached. `done` runs
  // on the executor, unless this object is gone by then. UNAVAILABLE: trying again may help;
  // DATA_LOSS: the bytes have another digest.
  bool Fetch(const Request& request, Done done);

 private:
  const RouterLimits limits_;
  Dialer& dialer_;
  // Shared with fetches under way, which outlive this object harmlessly.
  std::shared_ptr<std::set<std::string>> fetching_;
};

}  // namespace quire

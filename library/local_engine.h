// A model in this process: the router's pipeline and a worker, joined by a stream in memory.
//
// Any thread may call it. Its loop is a thread of its own, on which everything of router and worker
// happens but the engine's steps, as in the programs; callers meet it in posted work and in the
// outbox.
//  1. An answer has the bits of a server's with the same settings: it is the same code from the
//     request's JSON to the text.
//  2. Each request that Submit named ends by exactly one "done" or "error" event.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/status.h"

namespace quire {

struct SubmitFlags {
  bool stream = false;
  bool raw = false;  // the text of a chat stays whole
};

class LocalEngine {
 public:
  // Loads the model. INVALID_ARGUMENT for an option, NOT_FOUND for a model that cannot be used,
  // INTERNAL otherwise.
  static absl::StatusOr<std::unique_ptr<LocalEngine>> Make(std::string_view options);
  // After Close, when no other call runs.
  ~LocalEngine();

  // RESOURCE_EXHAUSTED: QUIRE_MAX_REQUESTS are under way. INVALID_ARGUMENT names the field.
  absl::StatusOr<uint64_t> Submit(std::string_view request, SubmitFlags flags);
  void Cancel(uint64_t number);
  // A list of events. CANCELLED: the engine was closed. `timeout_ms` < 0: no limit.
  absl::StatusOr<std::string> Poll(int timeout_ms);

  std::string Info() const;
  absl::StatusOr<std::string> Tokenize(std::string_view request) const;  // "[1,2]"
  absl::StatusOr<std::string> Render(std::string_view request) const;
  absl::StatusOr<std::string> Detokenize(std::span<const TokenId> ids, bool skip_special) const;

  // Ends all requests; polls return.
  void Close();

 private:
  class Parts;
  LocalEngine();
  const std::unique_ptr<Parts> parts_;
};

}  // namespace quire

// Between the bridge's C types and ours: spans, owned buffers, codes to status. Internal to
// common/text and common/grammar.
//
// Values only; any thread.
//  1. An OwnedBytes frees its buffer exactly once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/text/bridge/quire_text_bridge.h"

namespace quire::text {

inline QtbSpan ToSpan(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Missing memory has the same end in the bridge as in C++. Repeated calls do no harm.
inline void ShareNewHandler() {
  qtb_on_no_memory([] {
    if (const std::new_handler handler = std::get_new_handler()) handler();
  });
}

// A flag as the bridge reads it: one byte, atomically.
inline const bool* ToFlag(const std::atomic<bool>* flag) {
  static_assert(sizeof(std::atomic<bool>) == 1 && std::atomic<bool>::is_always_lock_free);
  return reinterpret_cast<const bool*>(flag);
}

// A buffer of the bridge, freed with this object. Empty until a call has filled it.
class OwnedBytes {
 public:
  OwnedBytes() = default;
  ~OwnedBytes() { qtb_bytes_free(bytes_); }
  OwnedBytes(const OwnedBytes&) = delete;
  OwnedBytes& operator=(const OwnedBytes&) = delete;

  QtbBytes* out() { return &bytes_; }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.data), bytes_.size};
  }

 private:
  QtbBytes bytes_ = {nullptr, 0};
};

// The status of a bridge call: its code with the message that it left in `error`.
inline absl::Status BridgeStatus(int32_t code, const OwnedBytes& error) {
  const absl::string_view message(error.view().data(), error.view().size());
  switch (code) {
    case QTB_OK:
      return absl::OkStatus();
    case QTB_INVALID:
      return absl::InvalidArgumentError(message);
    case QTB_EXHAUSTED:
      return absl::ResourceExhaustedError(message);
    case QTB_CANCELLED:
      return absl::CancelledError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace quire::text

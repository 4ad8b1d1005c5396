// Bytes of requests that are yet to be worked on, of all clients together: bodies that are read or
// wait to be parsed, prompts that wait to become tokens.
//
// Owner: who works on them, shared with each hold. Any thread.
//  1. What a hold counts is given back when the hold goes, wherever that is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace quire {

class BodyAccount {
 public:
  explicit BodyAccount(size_t limit) : limit_(limit) {}

  size_t limit() const { return limit_; }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  bool over() const { return bytes() > limit_; }

 private:
  friend class BodyHold;
  const size_t limit_;
  std::atomic<size_t> bytes_{0};
};

class BodyHold {
 public:
  explicit BodyHold(std::shared_ptr<BodyAccount> account) : account_(std::move(account)) {}
  BodyHold(const BodyHold&) = delete;
  ~BodyHold() { Resize(0); }

  void Resize(size_t bytes) {
    account_->bytes_.fetch_add(bytes - bytes_, std::memory_order_relaxed);  // wraps as it should
    bytes_ = bytes;
  }

 private:
  const std::shared_ptr<BodyAccount> account_;
  size_t bytes_ = 0;
};

// What is said when large bodies come faster than they can be read (UNAVAILABLE, 503).
inline constexpr std::string_view kTooManyLargeRequests =
    "too many large requests are being read; try again shortly";
inline constexpr int64_t kTooManyLargeRequestsRetryMs = 1000;

}  // namespace quire

// What clients make this process hold, counted in bytes: bodies and prompts that wait, decoded
// headers, parsed trees, answers that wait for their readers.
//
// Accounts form a tree: what a connection or a tenant holds counts for the process, too. Whoever
// takes memory for a client charges it first, with TryResize; what a library has taken by itself is
// charged with Resize, and its owner then looks at over(). Owner: who works on the bytes, shared
// with each hold. Any thread.
//  1. A hold gives back what it counts when it goes, wherever that is.
//  2. TryResize counts in the account and all above it, or nowhere.
//  3. An account outlives the holds and accounts below it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace quire {

class MemoryAccount {
 public:
  explicit MemoryAccount(size_t limit, std::shared_ptr<MemoryAccount> parent = nullptr)
      : limit_(limit), parent_(std::move(parent)) {}
  MemoryAccount(const MemoryAccount&) = delete;

  size_t limit() const { return limit_; }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Its own limit is passed, or that of an account above it.
  bool over() const { return bytes() > limit_ || (parent_ != nullptr && parent_->over()); }
  // How often this account's own limit refused a charge.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryHold;

  bool TryAdd(size_t bytes) {
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > limit_) {
      bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (parent_ == nullptr || parent_->TryAdd(bytes)) return true;
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  // `change` wraps where it takes bytes away, as it should.
  void Add(size_t change) {
    for (MemoryAccount* account = this; account != nullptr; account = account->parent_.get()) {
      account->bytes_.fetch_add(change, std::memory_order_relaxed);
    }
  }

  const size_t limit_;
  const std::shared_ptr<MemoryAccount> parent_;
  std::atomic<size_t> bytes_{0};
  std::atomic<uint64_t> refused_{0};
};

// Bytes that one owner holds in one account.
class MemoryHold {
 public:
  explicit MemoryHold(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  MemoryHold(const MemoryHold&) = delete;
  ~MemoryHold() { Resize(0); }

  size_t bytes() const { return bytes_; }
  bool over() const { return account_->over(); }
  const MemoryAccount& account() const { return *account_; }

  // False: some account would pass its limit, and nothing changes. Less is never refused.
  bool TryResize(size_t bytes) {
    if (bytes > bytes_ && !account_->TryAdd(bytes - bytes_)) return false;
    if (bytes < bytes_) account_->Add(bytes - bytes_);
    bytes_ = bytes;
    return true;
  }
  // Whatever the limits are.
  void Resize(size_t bytes) {
    account_->Add(bytes - bytes_);
    bytes_ = bytes;
  }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  size_t bytes_ = 0;
};

// What is said when clients hold too much (UNAVAILABLE, 503).
inline constexpr std::string_view kTooManyLargeRequests =
    "too many large requests are being read; try again shortly";
inline constexpr int64_t kTooManyLargeRequestsRetryMs = 1000;

}  // namespace quire

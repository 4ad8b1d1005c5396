// The memory that this process holds for clients, counted in bytes: bodies and prompts that wait,
// decoded headers, parsed trees, answers that wait for their readers.
//
// Accounts form a tree: what a connection or a tenant holds counts for the process, too. Bytes of a
// connection and a tenant at once are held in one account and counted beside it in the other, so
// that the process counts them once. Code that allocates memory for a client charges it first, with
// TryResize; memory that a library has already allocated is charged with Resize, and its owner then
// checks over(). Owner: the code that works on the bytes, shared with each hold. Any thread.
//  1. A hold releases what it counts when it is destroyed, wherever that is.
//  2. TryResize counts in all of the hold's accounts and all accounts above the first, or nowhere.
//  3. An account outlives the holds and accounts below it.
//  4. A refusal is counted once, in the topmost account, for the scope of the limit that refused.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

// The owner of an account's limit.
enum class MemoryScope : uint8_t {
  kProcess,
  kTenant,
  kConnection,
  kWaiting,  // all that waits for one kind of work
};

class MemoryAccount {
 public:
  explicit MemoryAccount(size_t limit, std::shared_ptr<MemoryAccount> parent = nullptr,
                         MemoryScope scope = MemoryScope::kProcess)
      : limit_(limit), scope_(scope), parent_(std::move(parent)) {}
  MemoryAccount(const MemoryAccount&) = delete;

  size_t limit() const { return limit_; }
  MemoryScope scope() const { return scope_; }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Its own limit is exceeded, or that of an account above it.
  bool over() const { return bytes() > limit_ || (parent_ != nullptr && parent_->over()); }
  // For the topmost account: how often limits of this scope refused a charge, here and below.
  uint64_t refused(MemoryScope scope) const {
    return refused_[static_cast<size_t>(scope)].load(std::memory_order_relaxed);
  }

 private:
  friend class MemoryHold;

  bool TryAddHere(size_t bytes) {
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    AddHere(-bytes);
    MemoryAccount* top = this;
    while (top->parent_ != nullptr) top = top->parent_.get();
    top->refused_[static_cast<size_t>(scope_)].fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  // The scope of the limit that refused it; nullptr: it counts here and in all accounts above.
  const MemoryAccount* TryAdd(size_t bytes) {
    if (!TryAddHere(bytes)) return this;
    const MemoryAccount* refuser = parent_ == nullptr ? nullptr : parent_->TryAdd(bytes);
    if (refuser != nullptr) AddHere(-bytes);
    return refuser;
  }
  // `change` wraps where it takes bytes away, as intended.
  void AddHere(size_t change) { bytes_.fetch_add(change, std::memory_order_relaxed); }
  void Add(size_t change) {
    for (MemoryAccount* account = this; account != nullptr; account = account->parent_.get()) {
      account->AddHere(change);
    }
  }

  const size_t limit_;
  const MemoryScope scope_;
  const std::shared_ptr<MemoryAccount> parent_;
  std::atomic<size_t> bytes_{0};
  std::array<std::atomic<uint64_t>, 4> refused_{};  // by scope
};

// Bytes that one owner holds in one account, and counts beside it in others.
class MemoryHold {
 public:
  using Accounts = std::vector<std::shared_ptr<MemoryAccount>>;

  // `beside`: each counts alone, without the accounts above it.
  explicit MemoryHold(std::shared_ptr<MemoryAccount> account, Accounts beside = {})
      : account_(std::move(account)), beside_(std::move(beside)) {}
  MemoryHold(const MemoryHold&) = delete;
  ~MemoryHold() { Resize(0); }

  size_t bytes() const { return bytes_; }
  bool over() const { return account_->over(); }
  const std::shared_ptr<MemoryAccount>& account() const { return account_; }
  // The scope of the limit behind the last refusal.
  const MemoryAccount& refuser() const { return *refuser_; }

  // False: some account would exceed its limit, and nothing changes. Shrinking is never refused.
  bool TryResize(size_t bytes) {
    if (bytes > bytes_ && !TryAdd(bytes - bytes_)) return false;
    if (bytes < bytes_) Add(bytes - bytes_);
    bytes_ = bytes;
    return true;
  }
  // Charges regardless of the limits.
  void Resize(size_t bytes) {
    Add(bytes - bytes_);
    bytes_ = bytes;
  }
  // Counts the current and future bytes in one more account. False: that account has no room for
  // them.
  bool TryCountBeside(std::shared_ptr<MemoryAccount> account) {
    if (!account->TryAddHere(bytes_)) {
      refuser_ = account.get();
      return false;
    }
    beside_.push_back(std::move(account));
    return true;
  }

 private:
  bool TryAdd(size_t bytes) {
    const MemoryAccount* refuser = account_->TryAdd(bytes);
    if (refuser != nullptr) {
      refuser_ = refuser;
      return false;
    }
    for (size_t i = 0; i < beside_.size(); ++i) {
      if (beside_[i]->TryAddHere(bytes)) continue;
      refuser_ = beside_[i].get();
      account_->Add(-bytes);
      while (i-- > 0) beside_[i]->AddHere(-bytes);
      return false;
    }
    return true;
  }
  void Add(size_t change) {
    account_->Add(change);
    for (const auto& account : beside_) account->AddHere(change);
  }

  const std::shared_ptr<MemoryAccount> account_;
  Accounts beside_;
  const MemoryAccount* refuser_ = nullptr;
  size_t bytes_ = 0;
};

// The error when clients hold too much (UNAVAILABLE, 503).
inline constexpr std::string_view kTooManyLargeRequests =
    "too many large requests are being read; try again shortly";
inline constexpr int64_t kTooManyLargeRequestsRetryMs = 1000;

}  // namespace quire

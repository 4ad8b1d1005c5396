// The account of each tenant's memory, below the process's account, for as long as something is
// counted in it.
//
// Owner: the pipeline; the accounts are shared with what counts in them. Any thread.
//  1. All callers that request a tenant's account while something is counted in it get the same
//     one.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/memory_account.h"
#include "common/sync.h"

namespace quire {

class TenantMemory {
 public:
  // `process` may be shared with others.
  TenantMemory(std::shared_ptr<MemoryAccount> process, size_t tenant_limit)
      : process_(std::move(process)), tenant_limit_(tenant_limit) {}

  std::shared_ptr<MemoryAccount> Of(const std::string& tenant) {
    MutexLock lock(mutex_);
    if (accounts_.size() >= sweep_at_) {
      std::erase_if(accounts_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = kLeastSwept + 2 * accounts_.size();
    }
    std::weak_ptr<MemoryAccount>& known = accounts_[tenant];
    std::shared_ptr<MemoryAccount> account = known.lock();
    if (account == nullptr) {
      account = std::make_shared<MemoryAccount>(tenant_limit_, process_, MemoryScope::kTenant);
      known = account;
    }
    return account;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return accounts_.size();
  }

 private:
  static constexpr size_t kLeastSwept = 64;

  const std::shared_ptr<MemoryAccount> process_;
  const size_t tenant_limit_;
  mutable Mutex mutex_;
  std::map<std::string, std::weak_ptr<MemoryAccount>> accounts_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kLeastSwept;
};

}  // namespace quire

// The responses that a router keeps for its tenants, which continue, read and delete them by id.
//
// Owner: main; outlives every request. Any thread: a mutex guards the index, and no text is copied
// or parsed while it is locked.
//  1. A tenant meets its own responses only.
//  2. What the index holds never exceeds the limit. Where a new response needs room, the tenant
//     that keeps most gives up its oldest response, also where the new one is another tenant's.
//  3. A response counts in the account of clients' memory until its last reader has released it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/memory_account.h"
#include "common/metrics/metrics.h"
#include "common/sync.h"

namespace quire::responses {

// One turn of a conversation, as JSON. Items have commas between them and no brackets.
struct Turn {
  std::string items;     // of the whole conversation before the answer
  std::string output;    // of the answer
  std::string response;  // as it was answered
  size_t item_count = 0;
};

struct KeptResponse {
  KeptResponse(Turn of, std::shared_ptr<MemoryAccount> account)
      : turn(std::move(of)), hold(std::move(account)) {}

  const Turn turn;
  MemoryHold hold;
};

class Store {
 public:
  // `limit`: bytes of the index. One response may have a quarter of it.
  Store(size_t limit, std::shared_ptr<MemoryAccount> clients, Metrics& metrics);

  // nullptr: this tenant keeps no such response.
  std::shared_ptr<const KeptResponse> Find(std::string_view owner, std::string_view id) const;
  // Replaces a response of the same id. Where there is no room, it is counted and not kept.
  void Keep(std::string_view owner, std::string_view id, Turn turn);
  // False: this tenant keeps no such response.
  bool Erase(std::string_view owner, std::string_view id);

  size_t bytes() const;
  // What a response takes of the limit.
  static size_t BytesOf(std::string_view owner, std::string_view id, const Turn& turn);

 private:
  struct Entry {
    std::shared_ptr<const KeptResponse> kept;
    uint64_t age;
    size_t bytes;
  };
  struct Owner {
    std::map<std::string, Entry, std::less<>> entries;
    std::map<uint64_t, std::string> ids_by_age;
    size_t bytes = 0;
  };
  using Owners = std::map<std::string, Owner, std::less<>>;

  // Removes a response; what it held is released by the caller, who has no lock then.
  std::shared_ptr<const KeptResponse> Take(Owners::iterator owner, std::string_view id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetBytes(Owners::iterator owner, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t limit_;
  const std::shared_ptr<MemoryAccount> clients_;
  Gauge& kept_;
  Gauge& kept_bytes_;
  Counter& evicted_;
  Counter& too_large_;
  Counter& no_memory_;

  mutable Mutex mutex_;
  Owners owners_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, std::string>> by_bytes_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_age_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Where a request finds earlier responses, and where its own is kept.
struct Keeping {
  Store* store = nullptr;  // nullptr: the router keeps none
  std::string owner;       // the tenant's name; empty without keys

  std::shared_ptr<const KeptResponse> Find(std::string_view id) const {
    return store == nullptr ? nullptr : store->Find(owner, id);
  }
};

}  // namespace quire::responses

// Token ids that several owners share: a prompt exists once in a router, from its tokenizer to its
// last attempt, and once among the requests of a worker.
//
// A value that never changes; any thread.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace quire {

class SharedTokens {
 public:
  SharedTokens() = default;
  SharedTokens(std::vector<TokenId> ids)
      : ids_(std::make_shared<const std::vector<TokenId>>(std::move(ids))) {}
  SharedTokens(std::initializer_list<TokenId> ids) : SharedTokens(std::vector<TokenId>(ids)) {}

  // Valid as long as one of its owners.
  operator std::span<const TokenId>() const { return span(); }
  std::span<const TokenId> span() const {
    return ids_ == nullptr ? std::span<const TokenId>() : std::span<const TokenId>(*ids_);
  }
  size_t size() const { return span().size(); }
  bool empty() const { return size() == 0; }
  TokenId operator[](size_t i) const { return span()[i]; }
  TokenId front() const { return span().front(); }
  auto begin() const { return span().begin(); }
  auto end() const { return span().end(); }
  friend bool operator==(const SharedTokens& a, const SharedTokens& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<const std::vector<TokenId>> ids_;  // nullptr: none
};

}  // namespace quire

// A map by number whose elements are found in one or two accesses to memory, and visited in order.
//
// Not thread-safe. A tree of ten thousand elements costs a cache miss for each step of a search;
// here a hash table leads to the element. Elements keep their address until they are erased, like
// those of std::map. `Key` hashes.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>

namespace quire {

template <class Key, class T>
class NumberTable {
  using Ordered = std::map<Key, T>;

 public:
  using iterator = typename Ordered::iterator;
  using const_iterator = typename Ordered::const_iterator;

  iterator find(const Key& key) {
    const auto found = where_.find(key);
    return found == where_.end() ? ordered_.end() : found->second;
  }
  const_iterator find(const Key& key) const {
    const auto found = where_.find(key);
    return found == where_.end() ? ordered_.end() : const_iterator(found->second);
  }
  bool contains(const Key& key) const { return where_.contains(key); }
  T& at(const Key& key) { return where_.at(key)->second; }
  const T& at(const Key& key) const { return where_.at(key)->second; }

  // The element, and whether it is new: an existing one is unchanged.
  template <class... Args>
  std::pair<iterator, bool> try_emplace(const Key& key, Args&&... args) {
    const auto [where, inserted] = where_.try_emplace(key);
    if (inserted) where->second = ordered_.try_emplace(key, std::forward<Args>(args)...).first;
    return {where->second, inserted};
  }

  size_t erase(const Key& key) {
    const auto found = find(key);
    if (found == end()) return 0;
    erase(found);
    return 1;
  }
  void erase(iterator element) {
    where_.erase(element->first);
    ordered_.erase(element);
  }

  size_t size() const { return ordered_.size(); }
  bool empty() const { return ordered_.empty(); }
  iterator begin() { return ordered_.begin(); }
  iterator end() { return ordered_.end(); }
  const_iterator begin() const { return ordered_.begin(); }
  const_iterator end() const { return ordered_.end(); }
  auto rbegin() const { return ordered_.rbegin(); }
  auto rend() const { return ordered_.rend(); }

 private:
  Ordered ordered_;
  std::unordered_map<Key, iterator> where_;
};

}  // namespace quire

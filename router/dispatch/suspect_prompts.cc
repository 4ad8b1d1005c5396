#include "router/dispatch/suspect_prompts.h"

#include <algorithm>

#include "common/block_hash.h"

namespace quire {

SuspectPrompts::Key SuspectPrompts::KeyOf(const Submit& submit) {
  const BlockHash root = RootHash(submit.model_id, "", submit.adapter, submit.salt);
  const BlockHash hash = HashBlock(root, submit.prompt_ids);
  return {hash.low, hash.high};
}

void SuspectPrompts::Expire(Micros now) {
  while (!entries_.empty() && entries_.front().until <= now) {
    keys_.erase(entries_.front().key);
    entries_.pop_front();
  }
}

void SuspectPrompts::Add(const Submit& submit, Micros now) {
  Expire(now);
  const Key key = KeyOf(submit);
  if (!keys_.insert(key).second) {
    std::erase_if(entries_, [&key](const Entry& entry) { return entry.key == key; });
  }
  entries_.push_back({key, now + refused_for_});
  if (entries_.size() <= capacity_) return;
  keys_.erase(entries_.front().key);
  entries_.pop_front();
}

Micros SuspectPrompts::RefusedFor(const Submit& submit, Micros now) {
  Expire(now);
  if (entries_.empty()) return 0;
  const Key key = KeyOf(submit);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&key](const Entry& entry) { return entry.key == key; });
  return it == entries_.end() ? 0 : it->until - now;
}

}  // namespace quire

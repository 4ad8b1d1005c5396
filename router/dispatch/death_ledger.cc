#include "router/dispatch/death_ledger.h"

#include <algorithm>

#include "common/block_hash.h"
#include "common/check.h"

namespace quire {

PromptKey PromptKeyOf(const Submit& submit) {
  const BlockHash root = RootHash(submit.model_id, "", submit.adapter, submit.salt);
  const BlockHash hash = HashBlock(root, submit.prompt_ids);
  return {hash.low, hash.high};
}

// ------------------------------------------------------------------------------------- losses

DeathLedger::Entry& DeathLedger::Touch(const PromptKey& prompt, uint64_t outputs, Micros now) {
  Entry& entry = entries_[prompt];
  // A prompt without holders is listed by its last loss.
  if (entry.holders == 0) {
    released_.erase({entry.count.last_loss, prompt});
    released_.insert({now, prompt});
  }
  entry.count.last_loss = now;
  entry.reached = std::max(entry.reached, outputs);
  return entry;
}

void DeathLedger::Lost(WorkerIndex worker, const Under& prompts, Micros now) {
  if (prompts.empty()) return;
  QUIRE_CHECK_MSG(!losses_.contains(worker), "a Hello closes the loss before");
  Loss& loss = losses_[worker];
  for (const auto& [prompt, outputs] : prompts) {
    loss.prompts.insert(prompt);
    ++Touch(prompt, outputs, now).count.suspicions;
  }
}

std::vector<PromptKey> DeathLedger::CountLoss(Loss& loss) {
  if (loss.counted) return {};
  loss.counted = true;
  for (const PromptKey& prompt : loss.prompts) {
    Count& count = entries_.at(prompt).count;
    QUIRE_CHECK(count.suspicions > 0);
    --count.suspicions;
    ++count.deaths;
  }
  return {loss.prompts.begin(), loss.prompts.end()};
}

std::vector<PromptKey> DeathLedger::Refused(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  return it == losses_.end() ? std::vector<PromptKey>() : CountLoss(it->second);
}

std::vector<PromptKey> DeathLedger::Died(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  if (it == losses_.end()) return {};
  std::vector<PromptKey> prompts = CountLoss(it->second);
  losses_.erase(it);
  return prompts;
}

void DeathLedger::Lives(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  if (it == losses_.end()) return;
  const Loss loss = std::move(it->second);
  losses_.erase(it);
  for (const PromptKey& prompt : loss.prompts) {
    Count& count = entries_.at(prompt).count;
    uint32_t& part = loss.counted ? count.deaths : count.suspicions;
    QUIRE_CHECK(part > 0);
    --part;
    DropIfIdle(prompt);
  }
}

void DeathLedger::Stuck(const Under& prompts, Micros now) {
  for (const auto& [prompt, outputs] : prompts) ++Touch(prompt, outputs, now).count.deaths;
}

// ------------------------------------------------------------------------------------- requests

bool DeathLedger::Hold(const PromptKey& prompt) {
  const auto it = entries_.find(prompt);
  if (it == entries_.end()) return false;
  if (it->second.holders++ == 0) released_.erase({it->second.count.last_loss, prompt});
  return true;
}

void DeathLedger::Release(const PromptKey& prompt, Micros now) {
  Entry& entry = entries_.at(prompt);
  QUIRE_CHECK(entry.holders > 0);
  if (--entry.holders > 0) return;
  released_.insert({entry.count.last_loss, prompt});
  DropIfIdle(prompt);
  Expire(now);
}

void DeathLedger::EndedWell(const PromptKey& prompt, uint64_t outputs) {
  const auto it = entries_.find(prompt);
  if (it != entries_.end() && outputs >= it->second.reached) Clear(prompt);
}

DeathLedger::Count DeathLedger::Of(const PromptKey& prompt) const {
  const auto it = entries_.find(prompt);
  return it == entries_.end() ? Count() : it->second.count;
}

bool DeathLedger::Refuses(const PromptKey& prompt, Micros now) {
  Expire(now);
  const Count count = Of(prompt);
  return count.deaths >= options_.max_deaths && now - count.last_loss < options_.remembered_for;
}

// ------------------------------------------------------------------------------------- the limit

void DeathLedger::Expire(Micros now) {
  while (!released_.empty()) {
    const auto [last_loss, prompt] = *released_.begin();
    const bool over = now - last_loss >= options_.remembered_for;
    if (!over && released_.size() <= options_.max_remembered) return;
    forgotten_ += over ? 0 : 1;
    Clear(prompt);
  }
}

void DeathLedger::Clear(const PromptKey& prompt) {
  Entry& entry = entries_.at(prompt);
  for (auto it = losses_.begin(); it != losses_.end();) {
    it->second.prompts.erase(prompt);
    it = it->second.prompts.empty() ? losses_.erase(it) : std::next(it);
  }
  entry.count.deaths = entry.count.suspicions = 0;
  entry.reached = 0;
  DropIfIdle(prompt);
}

void DeathLedger::DropIfIdle(const PromptKey& prompt) {
  const auto it = entries_.find(prompt);
  if (it->second.holders > 0 || it->second.count.total() > 0) return;
  released_.erase({it->second.count.last_loss, prompt});
  entries_.erase(it);
}

}  // namespace quire

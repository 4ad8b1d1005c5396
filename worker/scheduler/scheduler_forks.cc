// Several choices of one prompt: one of them computes it, the others wait and then share its
// blocks.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/scheduler/scheduler.h"

namespace quire {

// The leader's prompt is computed except for its last token, which every choice computes itself.
// They share its blocks and wait for a row while they hold those.
void Scheduler::ForkFollowers(Sequence& leader) {
  const int64_t length = leader.prompt_length - 1;
  if (leader.computed < length) return;
  for (size_t i = 0; i < following_.size();) {
    Sequence* sequence = following_[i];
    if (sequence->leader != &leader) {
      ++i;
      continue;
    }
    Take(*sequence);
    sequence->leader = nullptr;
    --leader.followers;
    Share(*sequence, leader, length);
    sequence->prefill_end = static_cast<int64_t>(sequence->tokens.size());
    sequence->high_water = std::max<int64_t>(sequence->high_water, sequence->prompt_length);
    Insert(*sequence, SequencePlace::kWaiting);
  }
  QUIRE_CHECK(leader.followers == 0);
  // A state is written in place: from here on the leader, too, needs its own.
  if (stateful_ && length % options_.cache.block_size != 0) {
    leader.copy_position = length;
    leader.plain_end = 0;
  }
}

// With states, followers fork when the leader has computed their prompt and nothing more.
bool Scheduler::HeldForForks(const Sequence& leader) const {
  return stateful_ && leader.followers > 0 && leader.planned >= leader.prompt_length - 1;
}

void Scheduler::EnqueueFork(Sequence& sequence, const Sequence& parent) {
  const int64_t length = static_cast<int64_t>(sequence.tokens.size()) - 1;
  QUIRE_CHECK(length >= sequence.prompt_length);
  QUIRE_CHECK(sequence.OutputCount() < sequence.output_limit);
  sequence.high_water = length;
  Join(sequence);
  const bool shares = stateful_ ? parent.computed == length : parent.computed >= length;
  if (parent.HoldsBlocks() && shares) {
    Share(sequence, parent, length);
    sequence.prefill_end = length;
  }
  Insert(sequence, SequencePlace::kWaiting);
}

void Scheduler::Hold(Sequence& sequence) {
  QUIRE_CHECK(sequence.steps_in_flight == 0 && sequence.followers == 0);
  if (sequence.place == SequencePlace::kPaused) return;
  Take(sequence);
  if (sequence.row >= 0) ReleaseRow(sequence);
  Insert(sequence, SequencePlace::kPaused);
}

// Tokens that `from` has computed below `length` count as computed for the sequence too.
void Scheduler::Share(Sequence& sequence, const Sequence& from, int64_t length) {
  QUIRE_CHECK(!sequence.HoldsBlocks() && from.computed >= length);
  QUIRE_CHECK_MSG(!stateful_ || from.planned == length, "a fork continues from a later state");
  sequence.blocks = kv_.Fork(from.blocks, length);
  sequence.computed = length;
  sequence.planned = length;
  sequence.copy_position = length % options_.cache.block_size == 0 ? -1 : length;
  SyncRoom(sequence);
}

// The first of those that follow computes the prompt instead, from its start.
void Scheduler::ReplaceLeader(Sequence& leader) {
  Sequence* next = nullptr;
  for (Sequence* sequence : following_) {
    if (sequence->leader != &leader) continue;
    if (next == nullptr) {
      next = sequence;
    } else {
      sequence->leader = next;
      ++next->followers;
    }
  }
  QUIRE_CHECK(next != nullptr && next->followers + 1 == leader.followers);
  leader.followers = 0;
  next->wants_prompt_logprobs = leader.wants_prompt_logprobs;
  next->scored = leader.scored;
  Take(*next);
  next->leader = nullptr;
  Insert(*next, SequencePlace::kWaiting);
}

// The first write into a block that siblings read: copy it. The old one is held until the copy has
// been made.
void Scheduler::TakeOwnBlocks(Sequence& sequence) {
  if (QUIRE_BUG(shared_block_written)) {
    sequence.copy_position = -1;
    return;
  }
  LeavingBlocks shared{plan_->number, 0, {}};
  const size_t copies = plan_->copies.size();
  shared.blocks = kv_.TakeOwn(sequence.blocks, sequence.copy_position, plan_->copies);
  shared.pages = static_cast<int64_t>(plan_->copies.size() - copies);
  // Its row learns of the new ones, and again of those behind them.
  const auto block = static_cast<int32_t>(sequence.copy_position / options_.cache.block_size);
  for (int32_t& told : sequence.told_blocks) told = std::min(told, block);
  sequence.copy_position = -1;
  sequence.BlocksChanged();
  if (!shared.blocks.kinds.empty()) leaving_.push_back(std::move(shared));
}

}  // namespace quire

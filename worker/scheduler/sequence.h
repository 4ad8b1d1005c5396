// One choice of one request as the scheduler sees it: its tokens, how many of them are computed,
// its blocks.
//
// Owner: the engine's request table; changed by the scheduler and, for `tokens`, by the engine's
// commit.
//
// Invariants (lengths count tokens from the start of the prompt):
// 1. computed ≤ planned ≤ KnownLength(): keys and values of [0, computed) are in the blocks; those
//    of [computed, planned) will be when the steps in flight have ended.
// 2. A sequence is in at most one of the scheduler's lists, named by `place`.
// 3. Only a running sequence has a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"
#include "common/prefetch.h"
#include "common/wire/sampling.h"
#include "worker/kv/kv_cache.h"

namespace quire {

inline constexpr int64_t kUnlimitedWindow = std::numeric_limits<int64_t>::max();

// The state of a sequence: waits for a row, has one, has used up its window, waits for a sibling to
// compute their prompt, or is in none of the lists.
enum class SequencePlace : uint8_t { kNone, kWaiting, kRunning, kPaused, kFollowing };

struct Tenant;

struct Sequence {
  // Fixed when it is created.
  uint64_t arrival = 0;     // order of the request's arrival
  int32_t priority = 0;     // lower runs first, where the policy uses it
  std::string_view tenant;  // outlives the sequence
  uint32_t choice = 0;
  bool off_the_books = false;  // its work is not counted
  const SamplingParams* sampling = nullptr;
  std::vector<TokenId> end_ids;  // sorted
  const CacheIdentity* cache =
      nullptr;                // the sequences that it shares computed blocks with; null: none
  bool resumed = false;       // its tokens have been computed elsewhere
  int32_t adapter_slot = -1;  // see RowBirth

  // Progress.
  bool admitted = false;        // has been in a batch
  int32_t rank = 0;             // priority, or 0 where the policy does not use it
  int32_t preemptions = 0;      // times that it lost its row to others
  int32_t list_index = -1;      // in the scheduler's list of running or paused ones
  int64_t reserved_pages = 0;   // reserved while it runs, once it may not lose its row again
  uint64_t passed_over = 0;     // the last pass in which it could not continue
  int64_t hit_length = 0;       // tokens that its first look-up found
  uint64_t hit_event_seq = 0;   // version of the cache at that look-up
  Sequence* leader = nullptr;   // computes the prompt that this one will share
  std::vector<TokenId> drafts;  // for its next step, or in one in flight: Scheduler::PlanDrafts
  int64_t scored = 0;  // prompt positions below this are scored, or will be by a step in flight

  // Work done, for usage.
  int64_t computed_total = 0;    // prefill tokens
  int64_t recomputed_total = 0;  // of these, done again
  int64_t cached_total = 0;      // prompt tokens that the cache saved

  // What a row also touches when its block is full, or when it does not only decode: four cache
  // lines.
  alignas(64) PrefixChain chain;
  SequenceBlocks blocks;
  absl::InlinedVector<int32_t, kUsualKinds>
      told_blocks;  // by kind: the blocks that its row knows of
  absl::InlinedVector<int32_t, kUsualKinds> told_first_live;  // by kind
  int64_t blocks_due = 0;       // computed tokens at which a block fills up
  int64_t room = 0;             // tokens that its blocks hold
  int64_t prefill_end = 0;      // tokens below this are prefill work of the current run
  int64_t copy_position = -1;   // the blocks at this position are shared until they are written
  int64_t high_water = 0;       // tokens below this have been computed before, here or elsewhere
  int32_t followers = 0;        // sequences whose leader this is
  bool blocks_changed = false;  // changed since the runner was last updated
  bool wants_prompt_logprobs = false;

  // From here on: what every step of a decoding row touches, two cache lines, prefetched.
  alignas(64) std::vector<TokenId> tokens;  // the known ones: prompt and outputs
  int64_t planned = 0;
  int64_t computed = 0;
  int64_t plain_end = 0;                  // up to here it only decodes: Scheduler::FindPlainEnd
  uint64_t last_plan = 0;                 // the last plan that names it
  Tenant* share = nullptr;                // while it is in the scheduler
  int64_t told_tokens = 0;                // tokens that the runner's row knows of
  int64_t served_end = 0;                 // tokens below this have been charged to its tenant
  uint64_t id = 0;                        // fixed when created, never used twice
  int64_t output_limit = 0;               // outputs in all, resumed ones included
  int64_t window_end = kUnlimitedWindow;  // outputs with an index below this may be produced
  int32_t prompt_length = 0;              // fixed when created
  int32_t row = -1;
  int32_t steps_in_flight = 0;    // launched steps that name it
  int32_t samples_in_flight = 0;  // of these, those that sample for it
  uint32_t incarnation = 0;       // grows with every preemption: progress of older steps is void
  SequencePlace place = SequencePlace::kNone;
  // Drafts of a step in flight: how far it has come is not known before that step ends. Only their
  // row's first position and one sample count as planned until then.
  int32_t drafts_in_flight = 0;
  bool awaits_sample = false;  // the next step waits for its last sample, to draft behind it
  bool constrained = false;    // fixed when created: a grammar says which outputs it may have

  int64_t KnownLength() const { return static_cast<int64_t>(tokens.size()) + samples_in_flight; }
  int64_t OutputsKnown() const { return KnownLength() - prompt_length; }
  int64_t OutputCount() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
  int64_t Pending() const { return KnownLength() - planned; }
  bool Prefilling() const { return planned < prefill_end; }
  // Positions from here on whose next token is scored; the prompt's last one has none.
  bool Scoring() const { return wants_prompt_logprobs && scored < prompt_length - 1; }
  // Whether what it computes next is not known before its step in flight ends.
  bool AwaitsStep() const {
    return drafts_in_flight > 0 || (awaits_sample && samples_in_flight > 0);
  }
  bool WindowUsedUp() const { return OutputsKnown() >= window_end; }
  bool HoldsBlocks() const { return !blocks.kinds.empty(); }
  // The runner needs an update about them.
  void BlocksChanged() {
    blocks_changed = true;
    plain_end = 0;
  }

  // Prefetches what a step touches; and, once that has arrived, the place of its next token.
  void Prefetch() const {
    const std::byte* const first = reinterpret_cast<const std::byte*>(&tokens);
    for (int line = 0; line < 2; ++line) PrefetchToWrite(first + line * 64);
  }
  // The same for what SettleBlocks and Extend touch: the sequence, then, some rows later, the
  // entries of its tables for the block that fills up.
  void PrefetchSettling() const {
    const std::byte* const first = reinterpret_cast<const std::byte*>(&chain);
    for (int line = 0; line < 7; ++line) PrefetchToWrite(first + line * 64);
  }
  void PrefetchTables() const {
    PrefetchToWrite(chain.hashes.data() + chain.hashes.size());
    for (const KindBlocks& kind : blocks.kinds) {
      PrefetchToWrite(kind.blocks.data() + kind.blocks.size());
      if (kind.first_live > 0) PrefetchToWrite(kind.blocks.data() + kind.first_live);
    }
    PrefetchNextToken();
    PrefetchToRead(tokens.data() + (tokens.size() < 16 ? 0 : tokens.size() - 16));
  }
  void PrefetchNextToken() const { PrefetchToWrite(tokens.data() + tokens.size()); }
};
static_assert(alignof(Sequence) == 64);

// How many rows ahead of the current one Prefetch is called, and the functions that use its result:
// PrefetchNextToken, PrefetchSettling.
inline constexpr size_t kRowsAhead = 16;
inline constexpr size_t kTokensAhead = 10;

// The order in which sequences get rows and pages; the last ones are preempted first.
inline bool RunsBefore(const Sequence* a, const Sequence* b) {
  return std::tie(a->rank, a->arrival, a->choice) < std::tie(b->rank, b->arrival, b->choice);
}

}  // namespace quire

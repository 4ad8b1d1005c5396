// Admission, the length of a chunk, and preemption when there is no room or a tenant has less than
// its share.
#include <algorithm>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/scheduler/scheduler.h"

namespace quire {

// A tenant that waits below its share of rows or cache, and is well behind, takes from the one that
// is furthest above its own share. This runs before rows are planned, so that none of them is
// spared.
void Scheduler::GiveShares() {
  claimant_ = nullptr;
  if (shares_.busy_count() < 2) return;
  Sequence* head = resuming_.empty() ? nullptr : resuming_.front();
  for (const Tenant* tenant : shares_.present()) {
    if (tenant->waiting.empty()) continue;
    Sequence* first = tenant->waiting.front();
    if (head == nullptr || GoesBefore(*first, *head)) head = first;
  }
  if (head == nullptr || head->steps_in_flight > 0) return;
  CacheHit hit = LookUp(*head);
  while (free_rows_.empty() || PagesToAdmit(*head, hit) > PagesFor(head) + Reclaimable(*head)) {
    if (LeavingPages() > 0) return;  // wait for pages that will be freed
    Sequence* victim = FairVictim(*head, free_rows_.empty());
    if (victim == nullptr) return;
    if (free_rows_.empty()) claimant_ = head;
    ++totals_.fairness_preemptions;
    Preempt(*victim);
    hit = LookUp(*head);  // no sequence holds any longer what only the victim held
  }
}

Sequence* Scheduler::FairVictim(const Sequence& head, bool for_row) const {
  const Tenant& claimant = *head.share;
  const int64_t busy = shares_.busy_count();
  const int64_t all = for_row ? options_.max_num_seqs
                              : kv_.pool().total() / block_pages_ * options_.cache.block_size;
  const auto held = [for_row](const Tenant& t) { return for_row ? t.running : t.held_tokens; };
  if (held(claimant) * busy >= all) return nullptr;
  Sequence* victim = nullptr;
  for (Sequence* candidate : running_) {
    const Tenant& donor = *candidate->share;
    if (held(donor) * busy <= all || candidate->rank < head.rank) continue;
    if (candidate->reserved_pages > 0) continue;
    const int64_t cost = kRecomputeFactor * candidate->planned * kPrefillTokenService;
    if (donor.served - claimant.served < kFairnessSlack + cost) continue;
    if (victim != nullptr && victim->share->served > donor.served) continue;
    if (victim == nullptr || victim->share->served < donor.served ||
        candidate->planned < victim->planned ||
        (candidate->planned == victim->planned && RunsBefore(victim, candidate))) {
      victim = candidate;
    }
  }
  return victim;
}

// Victims are chosen before any row is planned, so that they are the right ones and not just the
// last ones.
void Scheduler::MakeRoomForDecodes() {
  if (static_cast<int64_t>(running_.size()) * block_pages_ <= PagesFor(nullptr)) return;
  PauseStalled();      // they are preempted first
  int64_t needed = 0;  // by those for whom nothing is reserved
  const auto grows_by = [this](const Sequence& sequence) {
    const bool grows = !sequence.Prefilling() && sequence.reserved_pages == 0 &&
                       sequence.OutputsKnown() < sequence.output_limit;
    if (!grows) return int64_t{0};
    return PagesToOwn(sequence) + (sequence.planned >= sequence.room ? block_pages_ : 0);
  };
  for (const Sequence* sequence : running_) needed += grows_by(*sequence);
  while (needed > PagesFor(nullptr)) {
    if (needed <= PagesFor(nullptr) + LeavingPages()) return;
    Sequence* victim = PickVictim(/*with_rows=*/true, nullptr);
    QUIRE_CHECK_MSG(victim != nullptr, "pages are needed and nobody holds any");
    if (victim->row >= 0 && running_.size() == 1 && StepsInFlight()) return;
    QUIRE_CHECK_MSG(victim->row < 0 || running_.size() > 1, "one sequence alone does not fit");
    if (victim->row >= 0) needed -= grows_by(*victim);
    Preempt(*victim);
  }
}

// The longest chunk within the budget for which pages are available, cut at a block's end; 0 when
// none are.
int64_t Scheduler::AffordableChunk(const Sequence& sequence) const {
  const int64_t block_size = options_.cache.block_size;
  const int64_t free = PagesFor(&sequence) - PagesToOwn(sequence);
  int64_t end = sequence.planned + ChunkLimit(sequence, sequence.planned);
  while (end > sequence.planned && kv_.PagesToExtend(sequence.blocks, end) > free) {
    end = (end - 1) / block_size * block_size;
  }
  return std::max<int64_t>(0, end - sequence.planned);
}

int64_t Scheduler::BudgetTaken(const Sequence& sequence, int64_t chunk) const {
  return sequence.Scoring() ? chunk * kScoredTokenWeight : chunk;
}

bool Scheduler::MakeRoomForPrefill(Sequence& sequence) {
  while (AffordableChunk(sequence) == 0) {
    if (LeavingPages() > 0) return false;  // wait for pages that will be freed
    Sequence* victim = PickVictim(/*with_rows=*/true, nullptr);
    if (victim == nullptr) return false;
    if (victim == &sequence && (StepsInFlight() && running_.size() == 1)) return false;
    QUIRE_CHECK_MSG(victim != &sequence || running_.size() > 1, "one sequence alone does not fit");
    Preempt(*victim);
    if (victim == &sequence) return false;
  }
  return true;
}

int64_t Scheduler::LargestChunk() const {
  return std::max(options_.max_num_batched_tokens, options_.cache.block_size);
}

// Pages that must be available for it: room for all of it, so that admitted sequences are seldom
// preempted, and above that a block for each running row as a watermark against thrashing. A
// sequence that may not lose its row again gets room for everything that it can become.
int64_t Scheduler::PagesToAdmit(const Sequence& head, const CacheHit& hit) const {
  const int64_t held = PagesHeldBy(head);
  const int64_t total = kv_.pool().total();
  const int64_t most = head.prompt_length + head.output_limit;
  // Cached blocks need no pages, but those of them without holders are then no longer available.
  int64_t pages = PagesToOwn(head) - hit.pages + hit.evictable;
  if (head.preemptions >= kMaxPreemptions) {
    pages += std::max<int64_t>(0, kv_.PeakPages(most, LargestChunk()) - held);
  } else if (head.HoldsBlocks()) {
    pages += kv_.PagesToExtend(head.blocks, head.planned + 1);
  } else {
    pages += kv_.PeakPages(static_cast<int64_t>(head.tokens.size()), LargestChunk());
  }
  if (!running_.empty() && !head.HoldsBlocks()) {
    pages += std::max(total / 100, static_cast<int64_t>(running_.size()) * block_pages_);
  }
  return std::min(pages, total - held);
}

// The cached prefix of a sequence that holds nothing. Followers are at the prompt's last token:
// their leader finds no more than the prompt.
CacheHit Scheduler::LookUp(Sequence& head) {
  if (head.HoldsBlocks()) return {};
  if (head.sampling->prompt_logprobs > 0 && !QUIRE_BUG(scored_prompt_looked_up)) return {};
  const std::span<const TokenId> tokens = head.tokens;
  return kv_.Lookup(head.chain, head.followers > 0
                                    ? tokens.first(static_cast<size_t>(head.prompt_length))
                                    : tokens);
}

// Whether a running row computes blocks that the head would otherwise compute once more, after its
// cached prefix: the head waits for them, pass by pass, as long as that row continues. That row is
// served before it anyway; at most the rest of a step is lost.
bool Scheduler::SoonCached(const Sequence& head, const CacheHit& hit) const {
  if (head.chain.root == kNoNode || head.HoldsBlocks() || head.sampling->prompt_logprobs > 0) {
    return false;
  }
  const int64_t block_size = options_.cache.block_size;
  const std::vector<uint64_t>& wanted = head.chain.hashes;
  for (const Sequence* other : running_) {
    const PrefixChain& chain = other->chain;
    if (other->last_plan <= committed_ || chain.root != head.chain.root || chain.cut) continue;
    const size_t from = static_cast<size_t>(std::max(chain.blocks, hit.length / block_size));
    const size_t end = std::min(
        {wanted.size(), chain.hashes.size(), static_cast<size_t>(other->prefill_end / block_size)});
    size_t same = from;
    while (same < end && wanted[same] == chain.hashes[same]) ++same;
    same = static_cast<size_t>(kv_.LastHit(other->blocks, static_cast<int64_t>(same)));
    if (same < from) continue;
    if (static_cast<int64_t>(same - from) * block_size >= kMinAwaitedTokens) return true;
  }
  return false;
}

// The sequence begins after its cached prefix.
void Scheduler::TakeHit(Sequence& head, const CacheHit& hit) {
  QUIRE_CHECK(head.planned == 0 && head.computed == 0);
  head.prefill_end = static_cast<int64_t>(head.tokens.size());
  if (head.sampling->prompt_logprobs == 0 && head.cache != nullptr)
    kv_.CountQuery(head.prefill_end, hit);
  const bool first = !head.admitted;
  if (first) {
    head.hit_length = hit.length;
    head.hit_event_seq = kv_.events().Seq();
  }
  kv_.Adopt(head.chain, hit, head.blocks);
  head.blocks.branch = hit.branch;
  head.blocks.prompt_border =
      (head.prompt_length - 1) / options_.cache.block_size * options_.cache.block_size;
  head.planned = head.computed = hit.length;
  // Tokens that this attempt has computed or found before do not count as saved again.
  const int64_t known = first && head.resumed ? 0 : head.high_water;
  const int64_t saved = std::min<int64_t>(hit.length, head.prompt_length) - known;
  if (saved > 0) {
    head.cached_total += saved;
    totals_.cached_tokens += static_cast<uint64_t>(saved);
  }
  head.high_water = std::max(head.high_water, hit.length);
  SyncRoom(head);
  if (head.followers > 0) ForkFollowers(head);
}

bool Scheduler::Admit(Sequence& head) {
  if (!CanEverFit(static_cast<int64_t>(head.tokens.size()))) {
    unfit_ = &head;
    return false;
  }
  CacheHit hit = LookUp(head);
  if (SoonCached(head, hit)) return false;
  if (PagesToAdmit(head, hit) > PagesFor(&head) && !ReclaimForAdmission(head, hit)) return false;
  // After the cached prefix a token costs more than at the start: the time may not suffice.
  if (ChunkLimit(head, std::max(head.planned, hit.length)) == 0) return false;
  Take(head);
  if (!head.HoldsBlocks()) TakeHit(head, hit);
  Insert(head, SequencePlace::kRunning);
  GiveBirth(head);
  const int64_t chunk = AffordableChunk(head);
  QUIRE_CHECK_MSG(chunk > 0, "a sequence was admitted without room");
  const bool extended = Extend(head, head.planned + chunk);
  QUIRE_CHECK(extended);
  prefill_budget_ -= BudgetTaken(head, chunk);
  ScheduleRow(head, static_cast<int32_t>(chunk));
  if (head.Prefilling()) prefilling_.push_back(&head);
  return true;
}

int64_t Scheduler::Reclaimable(const Sequence& head) const {
  int64_t pages = 0;
  for (const std::vector<Sequence*>* holders : {&paused_, &resuming_}) {
    for (const Sequence* holder : *holders) {
      if (holder == &head) continue;
      // Blocks that it shares with a row are freed with that row; when none runs, all of them are.
      pages += running_.empty() ? PagesHeldBy(*holder) : kv_.PagesToReturn(holder->blocks);
    }
  }
  return pages;
}

// Takes pages from sequences without a row: they do not advance and may hold up those that could.
bool Scheduler::ReclaimForAdmission(Sequence& head, CacheHit& hit) {
  if (PagesToAdmit(head, hit) > PagesFor(&head) + Reclaimable(head)) return false;
  while (PagesToAdmit(head, hit) > PagesFor(&head)) {
    Sequence* victim = PickVictim(/*with_rows=*/false, &head);
    if (victim == nullptr) return false;  // their pages come back with a step in flight
    Preempt(*victim);
    hit = LookUp(head);
  }
  return true;
}

Sequence* Scheduler::PickVictim(bool with_rows, const Sequence* spared) const {
  Sequence* victim = nullptr;
  const auto consider = [&](Sequence* candidate) {
    if (!candidate->HoldsBlocks() || candidate == spared) return;
    if (candidate->last_plan > launched_) return;  // part of the plan that is being made
    if (candidate->reserved_pages > 0) return;
    if (victim == nullptr || candidate->rank > victim->rank ||
        (candidate->rank == victim->rank &&
         (candidate->planned < victim->planned ||
          (candidate->planned == victim->planned && RunsBefore(victim, candidate))))) {
      victim = candidate;
    }
  };
  // A sequence that shares all its pages frees none: it is taken only when there is no other.
  for (const bool giving : {true, false}) {
    for (const std::vector<Sequence*>* holders : {&paused_, &resuming_}) {
      for (Sequence* candidate : *holders) {
        if (!giving || kv_.PagesToReturn(candidate->blocks) > 0) consider(candidate);
      }
    }
    if (victim != nullptr) break;
  }
  if (victim != nullptr || !with_rows) return victim;
  for (Sequence* candidate : running_) consider(candidate);
  return victim;
}

void Scheduler::Preempt(Sequence& victim) {
  QUIRE_CHECK(victim.HoldsBlocks() && victim.reserved_pages == 0);
  QUIRE_CHECK(victim.last_plan <= launched_);
  ++totals_.preemptions;
  // A row whose window has just been used up may not have been paused yet.
  const bool pauses = victim.place == SequencePlace::kPaused ||
                      (victim.place == SequencePlace::kRunning && victim.WindowUsedUp() &&
                       victim.OutputsKnown() < victim.output_limit);
  Take(victim);
  if (victim.row >= 0) {
    ++victim.preemptions;  // one without a row was held up by its own client
    ReleaseRow(victim);
  }
  ReleaseBlocks(victim);
  victim.high_water = std::max(victim.high_water, victim.planned);
  victim.computed = 0;
  victim.planned = 0;
  victim.prefill_end = 0;
  victim.copy_position = -1;
  victim.blocks_due = 0;
  kv_.Rewind(victim.chain);
  ++victim.incarnation;
  Insert(victim, pauses ? SequencePlace::kPaused : SequencePlace::kWaiting);
  // If it is paused, it may not return for long.
  if (victim.followers > 0 && pauses) ReplaceLeader(victim);
}

// Makes room up to `length`, and reserves what its own copies of shared blocks need.
bool Scheduler::Extend(Sequence& sequence, int64_t length) {
  const int64_t pages = PagesFor(&sequence) - PagesToOwn(sequence);
  if (!kv_.Extend(sequence.blocks, length, pages)) return false;
  SyncRoom(sequence);
  if (sequence.told_tokens > 0) return true;
  // The first time since it got its row: reserves the tables for its longest, so that no later step
  // of it allocates.
  const size_t most = static_cast<size_t>(
      (sequence.prompt_length + sequence.output_limit) / options_.cache.block_size + 1);
  for (KindBlocks& kind : sequence.blocks.kinds) kind.blocks.reserve(most);
  if (sequence.chain.root != kNoNode) sequence.chain.hashes.reserve(most);
  return true;
}

// Pages that are free or can be evicted, less those reserved for others.
int64_t Scheduler::PagesFor(const Sequence* sequence) const {
  int64_t pages = kv_.available();
  for (const Sequence* other : protected_) {
    if (other != sequence) {
      pages -= std::max<int64_t>(0, other->reserved_pages - PagesHeldBy(*other));
    }
  }
  return pages;
}

int64_t Scheduler::PagesHeldBy(const Sequence& sequence) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < sequence.blocks.kinds.size(); ++kind) {
    const KindBlocks& table = sequence.blocks.kinds[kind];
    pages += (static_cast<int64_t>(table.blocks.size()) - table.first_live) *
             options_.cache.kinds[kind].groups;
  }
  return pages;
}

int64_t Scheduler::PagesToOwn(const Sequence& sequence) const {
  if (sequence.copy_position < 0) return 0;
  return kv_.PagesToOwn(sequence.blocks, sequence.copy_position);
}

int64_t Scheduler::LeavingPages() const {
  int64_t pages = 0;
  for (const LeavingBlocks& leaving : leaving_) pages += leaving.pages;
  return pages;
}

}  // namespace quire

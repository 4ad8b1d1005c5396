#include "worker/draft/model_drafter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

KvCacheOptions CacheOptionsOf(const ModelDrafterOptions& options) {
  KvCacheOptions cache;
  cache.shape.block_size = options.limits.block_size;
  cache.shape.page_count = options.limits.page_count;
  cache.shape.kinds = options.kinds;
  cache.prefix_caching = true;
  cache.on_page_freed = options.on_page_freed;
  return cache;
}

// Whether the draft model has all ids that the parameters name.
bool NamesOnlyBelow(const SamplingParams& sampling, int32_t vocab_size) {
  const auto below = [vocab_size](TokenId id) { return id < vocab_size; };
  return std::ranges::all_of(sampling.allowed_token_ids, below) &&
         std::ranges::all_of(sampling.logit_bias,
                             [&](const auto& bias) { return below(bias.first); }) &&
         std::ranges::all_of(sampling.bad_words,
                             [&](const auto& word) { return std::ranges::all_of(word, below); });
}

}  // namespace

ModelDrafter::ModelDrafter(ModelDrafterOptions options, Runner& runner)
    : options_(std::move(options)), runner_(runner), kv_(CacheOptionsOf(options_)) {
  QUIRE_CHECK(options_.target_vocab_size > 0 && options_.limits.vocab_size > 0);
  QUIRE_CHECK(std::ranges::none_of(options_.kinds, &CacheKindShape::HoldsStates));
  const size_t rows = static_cast<size_t>(options_.limits.max_rows);
  plan_.Reserve(rows, static_cast<size_t>(options_.limits.max_tokens), MaxAppends(options_.limits));
  active_.reserve(rows);  // pointers to its elements stay
  if (options_.metrics != nullptr) series_.emplace(*options_.metrics, kModelDrafterCounts);
}

void ModelDrafter::Propose(std::span<const DraftRow> rows) {
  QUIRE_CHECK(rows.size() <= static_cast<size_t>(options_.limits.max_rows));
  ++round_;
  active_.clear();
  sampling_.clear();
  if (!Works()) return;
  int64_t tokens_left = options_.limits.max_tokens;
  double micros_left = static_cast<double>(options_.max_catch_up_us);
  for (const DraftRow& row : rows) held_[row.sequence].round = round_;
  for (const DraftRow& row : rows) {
    Held& held = held_[row.sequence];
    if (Prepare(row, held)) Begin(row, held, tokens_left, micros_left);
  }
  if (plan_.rows.empty()) return;
  while (!plan_.rows.empty()) {
    Run();
    if (lost_) return DropAll();
    TakeDrafts();
    PlanNext();
  }
  Settle();
}

// A device that is back has no rows, and no keys and values.
bool ModelDrafter::Works() {
  if (!lost_ && !runner_.Lost()) return true;
  if (!lost_) DropAll();
  lost_ = !runner_.Restore();
  to_retire_.clear();
  plan_.number = 0;
  return !lost_;
}

// Whether the draft model can take the row: its tokens, and as many positions.
bool ModelDrafter::Prepare(const DraftRow& row, Held& held) {
  const int64_t length = static_cast<int64_t>(row.tokens.size());
  const int32_t vocab_size = options_.limits.vocab_size;
  if (held.unfit || row.wanted <= 0) return false;
  const auto unknown = std::find_if(row.tokens.begin() + held.checked, row.tokens.end(),
                                    [vocab_size](TokenId id) { return id >= vocab_size; });
  const bool names = held.checked > 0 || NamesOnlyBelow(*row.sampling, vocab_size);
  held.checked = length;
  if (unknown != row.tokens.end() || !names || length >= options_.limits.max_model_len) {
    held.unfit = true;
    ++totals_.unfit;
    Drop(held);
    return false;
  }
  if (held.known == 0) FindCached(row, held);
  // What the last drafts have left counts as far as they became the row's tokens. Its last token is
  // computed in any case: its logits are the first draft's.
  int64_t computed = std::min(held.computed, held.known);
  while (computed >= held.known && computed < std::min(held.computed, length - 1) &&
         (row.tokens[static_cast<size_t>(computed)] ==
              held.drafts[static_cast<size_t>(computed - held.known)] ||
          QUIRE_BUG(keys_of_rejected_drafts_count))) {
    ++computed;
  }
  held.computed = std::min(computed, length - 1);
  held.known = length;
  held.drafts.clear();
  return true;
}

void ModelDrafter::FindCached(const DraftRow& row, Held& held) {
  if (row.cache == nullptr) return;
  kv_.Open(held.chain, *row.cache);
  const CacheHit hit = kv_.Lookup(held.chain, row.tokens);
  kv_.Adopt(held.chain, hit, held.blocks);
  held.computed = held.known = hit.length;
  totals_.cached_tokens += static_cast<uint64_t>(hit.length);
}

// Plans the row's part of the first step: all that it has to catch up with, and then its first
// draft, or as much as a call may take.
void ModelDrafter::Begin(const DraftRow& row, Held& held, int64_t& tokens_left,
                         double& micros_left) {
  const int64_t length = held.known;
  const int64_t behind = length - held.computed;
  const StepTimes& times = step_time_.times();
  int64_t count = std::min(behind, tokens_left);
  if (behind > 1 + kMaxDraftTokens) {
    const int64_t least = options_.limits.block_size;
    count = std::min(count, std::max(least, times.PrefillWithin(micros_left, held.computed)));
  }
  if (count <= 0) return;
  const bool catching_up = count < behind;
  const int64_t wanted = std::min<int64_t>(row.wanted, options_.limits.max_model_len - length);
  const int64_t end = catching_up ? held.computed + count : length + wanted - 1;
  if (!MakeRoom(held, end)) return;
  tokens_left -= count;
  micros_left -= times.token_us * static_cast<double>(count);
  active_.push_back({&row, &held, static_cast<int32_t>(active_.size()), static_cast<size_t>(wanted),
                     catching_up});
  if (plan_.rows.empty()) {
    plan_.retired = std::exchange(to_retire_, {});
    work_ = {};
  }
  if (!catching_up) sampling_.push_back(&active_.back());
  PlanBirth(active_.back());
  PlanFirst(active_.back(), count);
}

// Takes pages from the sequences that have waited longest, none of this call's.
bool ModelDrafter::MakeRoom(Held& held, int64_t length) {
  while (!kv_.Extend(held.blocks, length)) {
    Held* oldest = nullptr;
    for (auto& [sequence, other] : held_) {
      const bool has = !other.blocks.kinds.empty() && other.round < round_;
      if (has && (oldest == nullptr || other.round < oldest->round)) oldest = &other;
    }
    if (oldest == nullptr) return false;
    Drop(*oldest);
    ++totals_.evictions;
  }
  return true;
}

// When it is proposed for again it begins with a look-up.
void ModelDrafter::Drop(Held& held) {
  kv_.Close(held.chain);
  if (!held.blocks.kinds.empty()) kv_.Release(held.blocks);
  held.blocks.kinds.clear();
  held.chain = {};
  held.computed = held.known = 0;
  held.drafts.clear();
}

void ModelDrafter::DropAll() {
  for (auto& [sequence, held] : held_) Drop(held);
  kv_.Clear();
  kv_.events().Forget();
  plan_.Clear();
}

void ModelDrafter::PlanBirth(const Active& active) {
  const DraftRow& row = *active.row;
  RowBirth& birth = plan_.born.emplace_back();
  birth.row = active.index;
  birth.sequence = row.sequence;
  birth.choice = row.choice;
  birth.prompt_length = row.prompt_length;
  if (QUIRE_BUG(draft_noise_of_the_position_before)) ++birth.prompt_length;
  birth.sampling = *row.sampling;
  birth.sampling.logprobs = birth.sampling.prompt_logprobs = 0;
  birth.sampling.stop_token_ids.clear();
  std::ranges::copy_if(row.end_ids, std::back_inserter(birth.end_ids),
                       [this](TokenId id) { return id >= 0 && id < options_.limits.vocab_size; });
  int32_t group = 0;
  for (size_t kind = 0; kind < options_.kinds.size(); ++kind) {
    const KindBlocks& table = active.held->blocks.kinds[kind];
    const int32_t groups = options_.kinds[kind].groups;
    const int32_t count = static_cast<int32_t>(table.blocks.size());
    for (int32_t g = 0; g < groups && table.first_live > 0; ++g) {
      plan_.drops.push_back({active.index, group + g, table.first_live});
    }
    for (int32_t block = table.first_live; block < count; ++block) {
      int32_t page = table.blocks[static_cast<size_t>(block)].value();
      for (int32_t g = 0; g < groups; ++g, page = kv_.pool().NextPage(page)) {
        QUIRE_CHECK(page >= 0);
        plan_.appends.push_back({active.index, group + g, block, page});
      }
    }
    group += groups;
  }
}

void ModelDrafter::PlanFirst(Active& active, int64_t count) {
  Held& held = *active.held;
  const int64_t end = held.computed + count;
  StepRow& step = plan_.rows.emplace_back();
  step.row = active.index;
  step.first_position = static_cast<int32_t>(held.computed);
  step.q_len = static_cast<int32_t>(count);
  step.token_offset = static_cast<int32_t>(plan_.tokens.size());
  step.token_count = static_cast<int32_t>(end);
  step.sample = !active.catching_up;
  plan_.tokens.insert(plan_.tokens.end(), active.row->tokens.begin(),
                      active.row->tokens.begin() + end);
  if (count == 1) {
    work_.AddDecode(held.computed);
  } else {
    work_.AddPrefill(held.computed, count);
  }
  held.computed = end;
}

// One step: what is planned becomes a result.
void ModelDrafter::Run() {
  QUIRE_CHECK(!plan_.rows.empty());
  ++plan_.number;
  EncodeStepPlan(plan_, packet_);
  runner_.Launch(packet_, 0);
  runner_.Collect(result_);
  lost_ = runner_.Lost();
  if (lost_) return;
  QUIRE_CHECK(result_.number == plan_.number);
  step_time_.Observe(work_, result_.elapsed_us);
  if (work_.prefill_tokens == 0) last_decode_ = work_;
  ++totals_.steps;
  for (const StepRow& row : plan_.rows) totals_.tokens += static_cast<uint64_t>(row.q_len);
  plan_.Clear();
  work_ = {};
}

void ModelDrafter::TakeDrafts() {
  QUIRE_CHECK(result_.samples.size() == sampling_.size());
  for (size_t i = 0; i < sampling_.size(); ++i) {
    const SampledToken& sample = result_.samples[i];
    const DraftRow& row = *sampling_[i]->row;
    QUIRE_CHECK(sample.sequence == row.sequence);
    const bool drafted = sample.token >= 0 && sample.token < options_.target_vocab_size;
    if (drafted) row.drafts->push_back(sample.token);
    if (!drafted || row.drafts->size() >= sampling_[i]->wanted) sampling_[i] = nullptr;
  }
  std::erase(sampling_, nullptr);
}

// Each row that still needs drafts computes its last one.
void ModelDrafter::PlanNext() {
  for (Active* const active : sampling_) {
    Held& held = *active->held;
    StepRow& step = plan_.rows.emplace_back();
    step.row = active->index;
    step.first_position = static_cast<int32_t>(held.computed);
    step.q_len = 1;
    step.sample = true;
    work_.AddDecode(held.computed);
    ++held.computed;
  }
}

// What has become the rows' for good is there for others. A call with the same tokens would compute
// the last of them again: its block is not published yet.
void ModelDrafter::Settle() {
  for (const Active& active : active_) {
    Held& held = *active.held;
    held.drafts.assign(active.row->drafts->begin(), active.row->drafts->end());
    int64_t settled = std::min(held.computed, held.known - 1);
    if (QUIRE_BUG(draft_model_window_moves_too_far)) settled = std::max(settled, held.known + 1);
    kv_.Publish(held.chain, held.blocks, active.row->tokens, settled);
    kv_.FreeBehindWindow(held.blocks, settled);
    to_retire_.push_back(active.index);
  }
  kv_.events().Forget();  // routers are not interested
  if (series_.has_value()) series_->Raise(totals_);
}

void ModelDrafter::Forget(uint64_t sequence) {
  const auto found = held_.find(sequence);
  if (found == held_.end()) return;
  Drop(found->second);
  held_.erase(found);
  kv_.events().Forget();
}

double ModelDrafter::TokenMicros() const {
  if (last_decode_.decode_rows == 0) return 0;
  return step_time_.times().Predict(last_decode_) / static_cast<double>(last_decode_.decode_rows);
}

double ModelDrafter::CatchUpMicros(uint64_t sequence, int64_t length) const {
  const auto found = held_.find(sequence);
  const int64_t seen =
      found == held_.end() ? 0 : std::min(found->second.computed, found->second.known);
  return step_time_.times().token_us * static_cast<double>(std::max<int64_t>(0, length - seen - 1));
}

void ModelDrafter::CheckInvariants() const {
  std::vector<const SequenceBlocks*> tables;
  for (const auto& [sequence, held] : held_) {
    if (!held.blocks.kinds.empty()) tables.push_back(&held.blocks);
  }
  kv_.CheckInvariants(tables);
}

}  // namespace quire

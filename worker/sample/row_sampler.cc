#include "worker/sample/row_sampler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

bool ById(const kernels::TokenCount& a, const kernels::TokenCount& b) { return a.id < b.id; }

// Appends to a list that is sorted by id, adding up equal ids.
void Append(std::vector<kernels::TokenCount>& list, kernels::TokenCount count) {
  if (!list.empty() && list.back().id == count.id) {
    list.back().output_count += count.output_count;
  } else {
    list.push_back(count);
  }
}

}  // namespace

void RowSampler::Reset(const SamplingParams& params, uint32_t choice, std::vector<TokenId> end_ids,
                       int32_t vocab_size, int64_t longest) {
  QUIRE_CHECK(vocab_size > 0 && longest >= 0);
  QUIRE_CHECK(params.beam_width == 0);
  params_ = params;
  choice_ = choice;
  end_ids_ = std::move(end_ids);
  QUIRE_CHECK(std::is_sorted(end_ids_.begin(), end_ids_.end()));
  if (!QUIRE_BUG(stale_counts_in_a_used_row)) counts_.clear();
  pending_.clear();
  if (Penalised()) {
    const size_t distinct = static_cast<size_t>(std::min<int64_t>(longest, vocab_size));
    counts_.reserve(distinct);
    merged_.reserve(distinct);
  }
  banned_.reserve(params_.bad_words.size() + end_ids_.size());
  bias_.clear();
  for (const auto& [id, bias] : params_.logit_bias) bias_.push_back({id, bias});
  std::stable_sort(bias_.begin(), bias_.end(),
                   [](const auto& a, const auto& b) { return a.id < b.id; });
  allowed_mask_.clear();
  if (params_.allowed_token_ids.empty()) return;
  allowed_mask_.resize((static_cast<size_t>(vocab_size) + 31) / 32, 0);
  for (TokenId id : params_.allowed_token_ids) {
    QUIRE_CHECK(id >= 0 && id < vocab_size);
    allowed_mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
}

bool RowSampler::Penalised() const {
  return params_.repetition_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
         params_.presence_penalty != 0.0f;
}

bool RowSampler::NeedsOutputs() const {
  // A word of one token is banned whatever comes before it.
  const auto long_word = [](const std::vector<TokenId>& word) { return word.size() > 1; };
  return Penalised() || std::any_of(params_.bad_words.begin(), params_.bad_words.end(), long_word);
}

void RowSampler::Observe(TokenId token, bool is_output) {
  if (!Penalised()) return;
  pending_.push_back({token, is_output ? 1 : 0});
}

// A prompt is merged in one go, an output costs one pass over the distinct tokens.
void RowSampler::MergePending() {
  if (pending_.empty()) return;
  std::sort(pending_.begin(), pending_.end(), ById);
  merged_.clear();
  auto a = counts_.begin();
  auto b = pending_.begin();
  while (a != counts_.end() || b != pending_.end()) {
    const bool take_a = b == pending_.end() || (a != counts_.end() && a->id <= b->id);
    Append(merged_, take_a ? *a++ : *b++);
  }
  counts_.swap(merged_);
  pending_.clear();
}

// Ids that would complete a bad word now (matched over the outputs), and the end ids before
// min_tokens.
void RowSampler::FillBanned(std::span<const TokenId> outputs, int32_t unknown,
                            std::vector<int32_t>& banned) const {
  banned.clear();
  for (const std::vector<TokenId>& word : params_.bad_words) {
    QUIRE_CHECK(!word.empty());
    const size_t lead = word.size() - 1;
    if (lead > outputs.size()) continue;
    if (!std::equal(word.begin(), word.end() - 1, outputs.end() - static_cast<ptrdiff_t>(lead))) {
      continue;
    }
    banned.push_back(word.back());
  }
  const int64_t ahead = QUIRE_BUG(min_tokens_off_by_one) ? 1 : 0;
  if (static_cast<int64_t>(outputs.size()) + unknown + ahead < params_.min_tokens) {
    banned.insert(banned.end(), end_ids_.begin(), end_ids_.end());
  }
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
}

kernels::SampleRow RowSampler::Row(std::span<const TokenId> outputs, int32_t unknown) {
  QUIRE_CHECK(unknown >= 0 && (unknown == 0 || !NeedsOutputs()));
  MergePending();
  FillBanned(outputs, unknown, banned_);
  kernels::SampleRow row = MakeRow(outputs.size() + static_cast<uint64_t>(unknown));
  row.banned_ids = banned_;
  row.token_counts = counts_;
  return row;
}

kernels::SampleRow RowSampler::MakeRow(uint64_t output_index) const {
  kernels::SampleRow row;
  static_cast<kernels::SampleNumbers&>(row) = params_;
  row.choice = QUIRE_BUG(noise_without_choice) ? 0 : choice_;
  row.output_index = output_index;
  row.allowed_mask = allowed_mask_;
  row.logit_bias = bias_;
  return row;
}

kernels::SampleRow RowSampler::DraftRow(std::span<const TokenId> outputs, size_t drafted) {
  QUIRE_CHECK(drafted >= 1 && drafted <= outputs.size() && pending_.empty());
  if (after_drafts_.size() < drafted) after_drafts_.resize(drafted);
  AfterDrafts& after = after_drafts_[drafted - 1];
  FillBanned(outputs, 0, after.banned);
  after.counts.clear();
  if (Penalised() && !QUIRE_BUG(drafts_without_penalties)) {
    after.counts.insert(after.counts.end(), counts_.begin(), counts_.end());
    for (const TokenId token : outputs.last(drafted)) {
      const kernels::TokenCount one{token, 1};
      const auto at = std::lower_bound(after.counts.begin(), after.counts.end(), one, ById);
      if (at != after.counts.end() && at->id == token) {
        ++at->output_count;
      } else {
        after.counts.insert(at, one);
      }
    }
  }
  kernels::SampleRow row = MakeRow(outputs.size());
  row.banned_ids = after.banned;
  row.token_counts = after.counts;
  return row;
}

std::span<const uint32_t> RowSampler::Restrict(std::span<const uint32_t> mask, size_t drafted) {
  const bool end_too_early = QUIRE_BUG(end_allowed_before_the_grammar_ends);
  if (allowed_mask_.empty() && !end_too_early) return mask;
  QUIRE_CHECK(allowed_mask_.empty() || mask.size() == allowed_mask_.size());
  QUIRE_CHECK(drafted <= after_drafts_.size());
  std::vector<uint32_t>& to = drafted == 0 ? restricted_ : after_drafts_[drafted - 1].restricted;
  to.assign(mask.begin(), mask.end());
  for (size_t i = 0; i < allowed_mask_.size(); ++i) to[i] &= allowed_mask_[i];
  if (end_too_early) {
    for (const TokenId id : end_ids_) to[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
  }
  return to;
}

kernels::SampleRow RowSampler::ScoreRow(TokenId token) const {
  QUIRE_CHECK(params_.prompt_logprobs >= 1 && token >= 0);
  kernels::SampleRow row;
  row.scored_token = token;
  row.seed = params_.seed;
  row.logprobs = params_.prompt_logprobs;
  return row;
}

}  // namespace quire

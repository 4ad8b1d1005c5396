#include "worker/draft/head_drafter.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

constexpr double kFade = 0.75;  // of what is known of a draft's time, with each call

}  // namespace

HeadDrafter::HeadDrafter(HeadDrafterOptions options)
    : options_(std::move(options)), slots_(static_cast<size_t>(options_.max_rows)) {
  QUIRE_CHECK(options_.max_rows > 0 && options_.block_size > 0 && options_.hidden_size > 0);
  QUIRE_CHECK(options_.max_drafts > 0 && options_.now_us != nullptr);
  active_.reserve(kMaxHeadRows);
  slot_of_.reserve(slots_.size());
  if (options_.metrics != nullptr) series_.emplace(*options_.metrics, kHeadDrafterCounts);
}

void HeadDrafter::Hold(int32_t slot, uint64_t sequence, int64_t length) {
  Slot& held = slots_[static_cast<size_t>(slot)];
  if (held.length > 0 && held.sequence != sequence) {
    const auto found = slot_of_.find(held.sequence);
    if (found != slot_of_.end() && found->second == slot) slot_of_.erase(found);
  }
  held = {sequence, length};
  slot_of_[sequence] = slot;
  QUIRE_CHECK(slot_of_.size() <= slots_.size());
}

void HeadDrafter::Forget(uint64_t sequence) {
  const auto found = slot_of_.find(sequence);
  if (found == slot_of_.end()) return;
  slots_[static_cast<size_t>(found->second)] = {};
  slot_of_.erase(found);
}

kernels::SampleRow HeadDrafter::SampleOf(const SamplingParams& sampling, uint32_t choice,
                                         int64_t output_index) const {
  QUIRE_CHECK(output_index >= 0);
  kernels::SampleRow row;
  if (options_.token_map.empty()) {
    static_cast<kernels::SampleNumbers&>(row) = sampling;
    // Drafts are guesses: what needs the outputs before them is left to the target.
    const kernels::SampleNumbers neutral;
    row.repetition_penalty = neutral.repetition_penalty;
    row.frequency_penalty = neutral.frequency_penalty;
    row.presence_penalty = neutral.presence_penalty;
    row.logprobs = 0;
  } else {
    row.temperature = 0;
  }
  row.choice = choice;
  row.output_index = static_cast<uint64_t>(output_index);
  return row;
}

TokenId HeadDrafter::TargetId(int32_t id) const {
  if (id >= 0 && !options_.token_map.empty()) id = options_.token_map[static_cast<size_t>(id)];
  return id < options_.target_vocab_size ? id : -1;
}

void HeadDrafter::Propose(std::span<const DraftRow> rows) {
  const int64_t start_us = options_.now_us();
  size_t drafted = 0;
  for (size_t i = 0; i < rows.size();) {
    active_.clear();
    for (; i < rows.size() && active_.size() < kMaxHeadRows; ++i) {
      const DraftRow& row = rows[i];
      const auto found = slot_of_.find(row.sequence);
      if (row.wanted <= 0 || found == slot_of_.end()) continue;
      // A row that was not in the last step, or is computed again, has drafts once it has been.
      if (LengthOf(found->second) != static_cast<int64_t>(row.tokens.size())) continue;
      active_.push_back({&row, found->second});
    }
    if (active_.empty()) continue;
    Draft(active_);
    for (const Active& active : active_) drafted += active.row->drafts->size();
  }
  if (series_.has_value()) series_->Raise(totals_);
  if (drafted == 0) return;
  const double each =
      static_cast<double>(options_.now_us() - start_us) / static_cast<double>(drafted);
  token_us_ = token_us_ == 0 ? each : kFade * token_us_ + (1 - kFade) * each;
}

}  // namespace quire

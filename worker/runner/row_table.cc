#include "worker/runner/row_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

constexpr size_t kMaxBatchesAhead = 2;  // as a rule; for more, memory is allocated when they come

TopTokens TopOf(const kernels::SampleOutput& output) {
  const size_t count = static_cast<size_t>(output.top_count);
  return {{output.top_ids, count}, {output.top_logprobs, count}};
}

}  // namespace

RowTable::RowTable(const StepLimits& limits, StepMasks* masks) : limits_(limits), masks_(masks) {
  QUIRE_CHECK(limits_.max_rows > 0 && limits_.groups > 0 && limits_.vocab_size > 0);
  rows_.resize(static_cast<size_t>(limits_.max_rows));
  for (Row& row : rows_) row.tables.resize(static_cast<size_t>(limits_.groups));
  table_spans_.resize(rows_.size() * static_cast<size_t>(limits_.groups));
  const size_t tokens = static_cast<size_t>(limits_.max_tokens);
  tokens_.reserve(tokens);
  positions_.reserve(tokens);
  batch_rows_.reserve(rows_.size());
  sampled_tokens_.reserve(rows_.size());
  sample_rows_.reserve(rows_.size());
  sample_slots_.reserve(rows_.size());
  table_changes_.reserve(MaxAppends(limits_));
  sampling_.reserve(kMaxBatchesAhead * rows_.size());
  sample_outputs_.reserve(rows_.size());
  if (masks_ == nullptr) return;
  late_.reserve(rows_.size() + kMaxMaskedDrafts);
  nothing_.resize((static_cast<size_t>(limits_.vocab_size) + 31) / 32);
}

void RowTable::Apply(const StepPlan& plan) {
  for (int32_t index : plan.retired) {
    QUIRE_CHECK_MSG(rows_[index].alive, "a row is retired that was not born");
    rows_[index].alive = false;
  }
  for (const RowBirth& birth : plan.born) {
    Row& row = rows_[birth.row];
    QUIRE_CHECK_MSG(!row.alive, "a row is born twice");
    QUIRE_CHECK_MSG(!birth.constrained || masks_ != nullptr, "a row's masks come from nowhere");
    row.alive = true;
    row.constrained = birth.constrained;
    row.adapter = birth.adapter_slot;
    row.sequence = birth.sequence;
    row.prompt_length = birth.prompt_length;
    row.computed = 0;
    row.unknown = 0;
    row.drafted = false;
    row.tokens.clear();
    // The longest that it can become, so that no step of it allocates.
    const int64_t longest = std::min<int64_t>(
        limits_.max_model_len, int64_t{birth.prompt_length} + birth.sampling.max_tokens);
    row.tokens.reserve(static_cast<size_t>(longest));
    for (std::vector<int32_t>& table : row.tables) {
      table.clear();
      table.reserve(static_cast<size_t>(longest / limits_.block_size + 1));
    }
    row.sampler.Reset(birth.sampling, birth.choice, birth.end_ids, limits_.vocab_size, longest);
  }
  for (const BlockDrop& drop : plan.drops) {
    std::vector<int32_t>& table = rows_[drop.row].tables[drop.group];
    if (static_cast<int32_t>(table.size()) < drop.first_live) table.resize(drop.first_live, -1);
    std::fill(table.begin(), table.begin() + drop.first_live, -1);
  }
  for (const BlockAppend& append : plan.appends) {
    QUIRE_CHECK(rows_[append.row].alive);
    std::vector<int32_t>& table = rows_[append.row].tables[append.group];
    // A block that the row knows was replaced by a copy, and those behind it follow again.
    QUIRE_CHECK_MSG(append.block <= static_cast<int32_t>(table.size()),
                    "blocks are appended out of order");
    table.resize(static_cast<size_t>(append.block));
    table.push_back(append.page);
    table_changes_.push_back({append.row, append.group, append.block, append.page});
  }
}

void RowTable::AddTokens(Row& row, std::span<const TokenId> tokens) {
  QUIRE_CHECK(row.tokens.size() + tokens.size() <= static_cast<size_t>(limits_.max_model_len));
  QUIRE_CHECK_MSG(tokens.empty() || row.unknown == 0, "a row is told tokens behind its own sample");
  for (TokenId token : tokens) {
    const bool is_output = static_cast<int64_t>(row.tokens.size()) >= row.prompt_length;
    row.sampler.Observe(token, is_output);
    if (QUIRE_BUG(resume_counts_penalties_twice) && is_output && tokens.size() > 1) {
      row.sampler.Observe(token, is_output);
    }
    row.tokens.push_back(token);
  }
}

bool RowTable::NeedsSamples(const StepPlan& plan) const {
  if (sampling_.size() == sampling_taken_) return false;
  const auto born = [&plan](int32_t row) {
    return std::any_of(plan.born.begin(), plan.born.end(),
                       [row](const RowBirth& birth) { return birth.row == row; });
  };
  return std::any_of(plan.rows.begin(), plan.rows.end(), [&](const StepRow& planned) {
    const Row& row = rows_[planned.row];
    return planned.sample && row.unknown > 0 && row.sampler.NeedsOutputs() && !born(planned.row);
  });
}

const kernels::StepBatch& RowTable::BuildBatch(const StepPlan& plan) {
  table_changes_.clear();
  sampling_.erase(sampling_.begin(), sampling_.begin() + static_cast<ptrdiff_t>(sampling_taken_));
  sampling_taken_ = 0;
  Apply(plan);
  tokens_.clear();
  positions_.clear();
  batch_rows_.clear();
  copies_.clear();
  sampled_tokens_.clear();
  sample_rows_.clear();
  sample_slots_.clear();
  late_.clear();
  for (const PlannedCopy& copy : plan.copies) copies_.push_back({copy.from, copy.to});
  std::span<const TokenId> drafts(plan.drafts);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& planned = plan.rows[i];
    Row& row = rows_[planned.row];
    QUIRE_CHECK_MSG(row.alive, "a row is computed that is not alive");
    AddTokens(row, std::span<const TokenId>(plan.tokens)
                       .subspan(static_cast<size_t>(planned.token_offset),
                                static_cast<size_t>(planned.token_count)));
    const size_t drafted = static_cast<size_t>(planned.draft_count);
    AddToBatch(planned, drafts.first(drafted), static_cast<int32_t>(i));
    drafts = drafts.subspan(drafted);
  }
  // Scores come after the samples of all rows: if there are few, no second slice is needed.
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].score_count > 0) AddScores(plan.rows[i], static_cast<int32_t>(i));
  }
  sample_outputs_.assign(sample_rows_.size(), {});
  batch_ = {.tokens = tokens_,
            .positions = positions_,
            .rows = batch_rows_,
            .copies = copies_,
            .sampled_tokens = sampled_tokens_,
            .sample_rows = sample_rows_,
            .sample_outputs = sample_outputs_,
            .table_changes = table_changes_,
            .sample_slots = sample_slots_,
            .late_masks = late_.empty() ? nullptr : this};
  return batch_;
}

void RowTable::AddToBatch(const StepRow& planned, std::span<const TokenId> drafts, int32_t index) {
  Row& row = rows_[planned.row];
  const int64_t first = planned.first_position;
  const int64_t end = first + planned.q_len;  // with the drafts
  const int64_t own_end = end - planned.draft_count;
  // A row that returns from a pause or a cache hit starts beyond 0 with its earlier keys in place.
  QUIRE_CHECK_MSG(first >= row.computed, "a row would be computed twice");
  const int64_t known = static_cast<int64_t>(row.tokens.size());
  QUIRE_CHECK_MSG(own_end <= known + row.unknown, "a row's input is not known");
  QUIRE_CHECK_MSG(!row.drafted, "a row continues before it knows which drafts it keeps");
  QUIRE_CHECK(drafts.empty() || (row.unknown == 0 && own_end == known));
  // The device keeps a row's last sample and none before it.
  QUIRE_CHECK(row.unknown <= 1 || end <= known);
  QUIRE_CHECK(!planned.sample || own_end == known + row.unknown);
  kernels::BatchRow batch_row;
  batch_row.first_token = static_cast<int>(tokens_.size());
  batch_row.token_count = planned.q_len;
  batch_row.first_position = planned.first_position;
  batch_row.slot = planned.row;
  batch_row.adapter = row.adapter;
  for (int64_t position = first; position < own_end; ++position) {
    tokens_.push_back(position < known ? row.tokens[position] : kernels::LastSampleOf(planned.row));
    positions_.push_back(static_cast<int32_t>(position));
  }
  for (int64_t position = own_end; position < end; ++position) {
    tokens_.push_back(drafts[static_cast<size_t>(position - own_end)]);
    positions_.push_back(static_cast<int32_t>(position));
  }
  row.computed = own_end;
  const size_t span_base = static_cast<size_t>(index) * row.tables.size();
  for (size_t group = 0; group < row.tables.size(); ++group) {
    QUIRE_CHECK_MSG(static_cast<int64_t>(row.tables[group].size()) * limits_.block_size >= end,
                    "a row's tokens have no page");
    table_spans_[span_base + group] = row.tables[group];
  }
  batch_row.block_tables = std::span(table_spans_).subspan(span_base, row.tables.size());
  batch_rows_.push_back(batch_row);
  if (planned.sample) AddSample(planned, row);
  if (!drafts.empty()) AddDraftSamples(planned, drafts, row);
}

void RowTable::AddSample(const StepRow& planned, Row& row) {
  sampled_tokens_.push_back(static_cast<int32_t>(tokens_.size()) - 1 - planned.draft_count);
  // If its prompt's last token were unknown there would be none: a prompt is always known.
  QUIRE_CHECK(static_cast<int64_t>(row.tokens.size()) >= row.prompt_length);
  if (row.constrained) {
    QUIRE_CHECK_MSG(row.unknown == 0, "a constrained row runs ahead of its samples");
    late_.push_back({sample_rows_.size(), planned.row, 0});
  }
  sample_rows_.push_back(row.sampler.Row(
      std::span<const TokenId>(row.tokens).subspan(static_cast<size_t>(row.prompt_length)),
      row.unknown));
  sample_slots_.push_back(planned.row);
  sampling_.push_back(row.sequence);
  ++row.unknown;
  if (QUIRE_BUG(noise_keyed_by_batch_slot)) {
    sample_rows_.back().choice = static_cast<uint32_t>(planned.row);
  }
}

// Each position after the row's last token samples with the drafts before it as outputs.
void RowTable::AddDraftSamples(const StepRow& planned, std::span<const TokenId> drafts, Row& row) {
  const size_t known = row.tokens.size();
  const int32_t first = static_cast<int32_t>(tokens_.size() - drafts.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    row.tokens.push_back(drafts[i]);
    sampled_tokens_.push_back(first + static_cast<int32_t>(i));
    if (row.constrained) late_.push_back({sample_rows_.size(), planned.row, i + 1});
    sample_rows_.push_back(row.sampler.DraftRow(
        std::span<const TokenId>(row.tokens).subspan(static_cast<size_t>(row.prompt_length)),
        i + 1));
    sample_slots_.push_back(-1);  // which of them is the row's last is not known yet
    if (QUIRE_BUG(noise_keyed_by_batch_slot)) {
      sample_rows_.back().choice = static_cast<uint32_t>(planned.row);
    }
  }
  row.tokens.resize(known);
  row.drafted = true;
}

void RowTable::Fill() {
  for (size_t i = 0; i < late_.size(); ++i) {
    const size_t whose = QUIRE_BUG(mask_of_the_neighbour) && i > 0 ? i - 1 : i;
    size_t drafts = late_[whose].drafts;
    if (QUIRE_BUG(mask_before_the_draft) && drafts > 0) --drafts;
    const std::span<const uint32_t> mask =
        masks_->MaskOf(rows_[static_cast<size_t>(late_[whose].row)].sequence, drafts);
    QUIRE_CHECK(mask.empty() || mask.size() == nothing_.size());
    RowSampler& sampler = rows_[static_cast<size_t>(late_[i].row)].sampler;
    sample_rows_[late_[i].sample].allowed_mask = mask.empty()
                                                     ? std::span<const uint32_t>(nothing_)
                                                     : sampler.Restrict(mask, late_[i].drafts);
  }
  late_.clear();
}

void RowTable::AddScores(const StepRow& planned, int32_t index) {
  const Row& row = rows_[planned.row];
  const kernels::BatchRow& batch_row = batch_rows_[static_cast<size_t>(index)];
  for (int32_t i = 0; i < planned.score_count; ++i) {
    const int32_t position = planned.score_from + i;
    QUIRE_CHECK_MSG(
        position + 1 < row.prompt_length && position + 1 < static_cast<int64_t>(row.tokens.size()),
        "a position is scored whose next token is not told");
    sampled_tokens_.push_back(batch_row.first_token + position - planned.first_position);
    sample_rows_.push_back(row.sampler.ScoreRow(row.tokens[static_cast<size_t>(position) + 1]));
    sample_slots_.push_back(-1);
  }
}

void RowTable::TakeSamples(const StepPlan& plan, std::span<const kernels::SampleOutput> outputs,
                           StepResult& result) {
  result.number = plan.number;
  result.Clear();
  std::span<const TokenId> drafts(plan.drafts);
  size_t sample = 0;
  for (const StepRow& planned : plan.rows) {
    if (!planned.sample) continue;
    QUIRE_CHECK(sampling_taken_ < sampling_.size());
    const uint64_t sequence = sampling_[sampling_taken_++];
    const size_t first = result.samples.size();
    for (int32_t i = 0; i <= planned.draft_count; ++i) {
      QUIRE_CHECK(sample < outputs.size());
      SampledToken& told = result.samples.emplace_back();
      const kernels::SampleOutput& output = outputs[sample++];
      told.row = planned.row;
      told.sequence = sequence;
      told.token = output.token;
      told.not_a_number = output.not_a_number;
      told.logprob = output.logprob;
      if (QUIRE_BUG(logprob_of_the_row_before) && sample > 1) {
        told.logprob = outputs[sample - 2].logprob;
      }
      told.top = result.AddTop(TopOf(output));
      QUIRE_CHECK(output.token < limits_.vocab_size);
    }
    const size_t drafted = static_cast<size_t>(planned.draft_count);
    TakeSample(planned, drafts.first(drafted), std::span(result.samples).subspan(first));
    drafts = drafts.subspan(drafted);
  }
  TakeScores(plan, outputs.subspan(sample), result);
}

// The row's next tokens: its drafts as far as the samples agree, and the sample after them.
void RowTable::TakeSample(const StepRow& planned, std::span<const TokenId> drafts,
                          std::span<const SampledToken> samples) {
  Row& row = rows_[planned.row];
  const uint64_t sequence = samples.front().sequence;
  if (!row.alive || row.sequence != sequence) return;  // it left while this was computed
  QUIRE_CHECK(row.unknown > 0);
  const int32_t later = std::exchange(row.unknown, 0) - 1;
  QUIRE_CHECK(drafts.empty() || later == 0);
  const size_t accepted = AcceptedDrafts(drafts, samples);
  for (const SampledToken& sample : samples.first(accepted + 1)) {
    // Without a token the request fails; a step that is already in flight still needs some input.
    const TokenId next = sample.token >= 0 ? sample.token : 0;
    if (static_cast<int32_t>(row.tokens.size()) < limits_.max_model_len) AddTokens(row, {&next, 1});
  }
  row.computed += static_cast<int64_t>(accepted);
  row.drafted = false;
  row.unknown = later;
}

void RowTable::TakeScores(const StepPlan& plan, std::span<const kernels::SampleOutput> outputs,
                          StepResult& result) {
  size_t next = 0;
  for (const StepRow& planned : plan.rows) {
    for (int32_t i = 0; i < planned.score_count; ++i) {
      QUIRE_CHECK(next < outputs.size());
      const kernels::SampleOutput& output = outputs[next++];
      ScoredToken& told = result.scores.emplace_back();
      told.position = planned.score_from + i + 1;
      told.not_a_number = output.not_a_number;
      told.logprob = output.logprob;
      told.rank = output.rank;
      told.top = result.AddTop(TopOf(output));
    }
  }
  QUIRE_CHECK(next == outputs.size());
}

void RowTable::Describe(const StepPlan& plan, std::vector<ObservedRow>& rows) const {
  rows.clear();
  QUIRE_CHECK(plan.rows.size() == batch_rows_.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& planned = plan.rows[i];
    const Row& row = rows_[static_cast<size_t>(planned.row)];
    if (!row.alive || row.unknown > 0) continue;
    const int64_t first = planned.first_position;
    const int64_t known = static_cast<int64_t>(row.tokens.size()) - 1 - first;
    QUIRE_CHECK_MSG(known >= planned.q_len - 1 - planned.draft_count,
                    "a computed token of a row is not known");
    ObservedRow& observed = rows.emplace_back();
    observed.sequence = row.sequence;
    observed.slot = planned.row;
    observed.first_position = planned.first_position;
    observed.first_feature = batch_rows_[i].first_token;
    observed.next = std::span<const TokenId>(row.tokens)
                        .subspan(static_cast<size_t>(first) + 1,
                                 static_cast<size_t>(std::min<int64_t>(known, planned.q_len)));
    observed.sampled = planned.sample && known <= planned.q_len;
    observed.prompt_length = row.prompt_length;
    observed.choice = row.sampler.choice();
    observed.sampling = &row.sampler.params();
    observed.block_tables = batch_rows_[i].block_tables;
  }
}

}  // namespace quire

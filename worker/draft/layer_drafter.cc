#include "worker/draft/layer_drafter.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

void LayerDrafter::Step::Clear() {
  tokens.clear();
  positions.clear();
  rows.clear();
  tables.clear();
  copies.clear();
  sampled.clear();
  sample_rows.clear();
  outputs.clear();
  slots.clear();
  features.clear();
  hidden.clear();
  inputs.clear();
}

LayerDrafter::LayerDrafter(HeadDrafterOptions options, const LayerPrograms& programs)
    : HeadDrafter(std::move(options)),
      programs_(programs),
      width_(this->options().hidden_size),
      held_(static_cast<size_t>(this->options().max_rows)) {
  QUIRE_CHECK(programs_.embedder != nullptr && programs_.project != nullptr);
  QUIRE_CHECK(programs_.layer != nullptr && programs_.page_count > 0 && programs_.group >= 0);
  states_.resize(held_.size() * static_cast<size_t>(width_));
  draft_states_.resize(kMaxHeadRows * static_cast<size_t>(width_));
  tables_.resize(kMaxHeadRows);
  const auto tokens = static_cast<size_t>(this->options().max_tokens);
  step_.features.reserve(tokens * static_cast<size_t>(this->options().feature_width));
  step_.hidden.reserve(tokens * static_cast<size_t>(width_));
  step_.inputs.reserve(2 * tokens * static_cast<size_t>(width_));
  step_.tables.reserve(kMaxHeadRows);  // rows point to them
}

void LayerDrafter::Observe(const ObservedStep& step) {
  step_.Clear();
  step_.copies.assign(step.copies.begin(), step.copies.end());
  for (const ObservedRow& row : step.rows) {
    const auto count = static_cast<int32_t>(row.next.size());
    if (row.sampled && count > 0) {
      Held& held = held_[static_cast<size_t>(row.slot)];
      const std::span<const int32_t> table = row.block_tables[static_cast<size_t>(programs_.group)];
      held.table.assign(table.begin(), table.end());
      held.first_draft = -1;
      Hold(row.slot, row.sequence, int64_t{row.first_position} + count + 1);
    }
    for (int32_t from = 0; from < count;) {
      const auto room = options().max_tokens - static_cast<int32_t>(step_.tokens.size());
      if (room == 0 || step_.rows.size() == kMaxHeadRows) {
        RunObserved();
        continue;
      }
      const int32_t part = std::min(room, count - from);
      AddPositions(step, row, from, part);
      from += part;
    }
  }
  // A copy that no row computes behind is made all the same.
  if (!step_.tokens.empty() || !step_.copies.empty()) RunObserved();
}

void LayerDrafter::AddPositions(const ObservedStep& step, const ObservedRow& row, int32_t from,
                                int32_t count) {
  AddRow(row.block_tables[static_cast<size_t>(programs_.group)],
         row.next[static_cast<size_t>(from)], int64_t{row.first_position} + from);
  step_.rows.back().token_count = count;
  for (int32_t i = 1; i < count; ++i) {
    step_.tokens.push_back(row.next[static_cast<size_t>(from + i)]);
    step_.positions.push_back(row.first_position + from + i);
  }
  for (int32_t i = 0; i < count; ++i) {
    const float* feature = step.features.Row(row.first_feature + from + i);
    step_.features.insert(step_.features.end(), feature, feature + options().feature_width);
  }
  if (!row.sampled || from + count < static_cast<int32_t>(row.next.size())) return;
  const int64_t length = int64_t{row.first_position} + from + count + 1;
  step_.sampled.push_back(static_cast<int32_t>(step_.tokens.size()) - 1);
  step_.sample_rows.push_back(SampleOf(*row.sampling, row.choice, length - row.prompt_length));
  step_.slots.push_back(row.slot);
}

void LayerDrafter::AddRow(std::span<const int32_t> table, TokenId token, int64_t position) {
  QUIRE_CHECK(step_.rows.size() < kMaxHeadRows);
  QUIRE_CHECK(position < options().max_positions);
  step_.tables.push_back(table);
  kernels::BatchRow& row = step_.rows.emplace_back();
  row.first_token = static_cast<int>(step_.tokens.size());
  row.token_count = 1;
  row.first_position = static_cast<int>(position);
  row.block_tables = std::span<const std::span<const int32_t>>(&step_.tables.back(), 1);
  step_.tokens.push_back(token);
  step_.positions.push_back(static_cast<int32_t>(position));
}

void LayerDrafter::RunObserved() {
  const size_t tokens = step_.tokens.size();
  const size_t width = static_cast<size_t>(width_);
  if (tokens > 0) {
    kernels::StepBatch batch;
    batch.tokens = step_.tokens;
    batch.positions = step_.positions;
    batch.inputs = step_.features;
    programs_.project->Run(batch);
    const kernels::FeatureRows mixed = programs_.project->Features();
    for (size_t t = 0; t < tokens; ++t) {
      const float* row = mixed.Row(static_cast<int64_t>(t));
      step_.hidden.insert(step_.hidden.end(), row, row + width);
    }
  }
  Run();
  const kernels::FeatureRows shown = programs_.layer->Features();
  for (size_t i = 0; i < step_.sampled.size(); ++i) {
    const kernels::SampleOutput& output = step_.outputs[i];
    std::copy_n(shown.Row(step_.sampled[i]), width, StateOf(step_.slots[i]));
    held_[static_cast<size_t>(step_.slots[i])].first_draft =
        output.not_a_number ? -1 : TargetId(output.token);
  }
  step_.Clear();
}

void LayerDrafter::Run() {
  const size_t tokens = step_.tokens.size();
  const size_t width = static_cast<size_t>(width_);
  QUIRE_CHECK(step_.hidden.size() == tokens * width);
  step_.outputs.assign(step_.sampled.size(), {});
  kernels::StepBatch batch;
  batch.tokens = step_.tokens;
  batch.positions = step_.positions;
  batch.rows = step_.rows;
  batch.copies = step_.copies;
  batch.sampled_tokens = step_.sampled;
  batch.sample_rows = step_.sample_rows;
  batch.sample_outputs = step_.outputs;
  if (tokens > 0) {
    const kernels::FeatureRows embedded = programs_.embedder->Embed(step_.tokens);
    for (size_t t = 0; t < tokens; ++t) {
      const float* hidden = step_.hidden.data() + t * width;
      const float* embedding = embedded.Row(static_cast<int64_t>(t));
      step_.inputs.insert(step_.inputs.end(), hidden, hidden + width);
      step_.inputs.insert(step_.inputs.end(), embedding, embedding + width);
    }
  }
  batch.inputs = step_.inputs;
  programs_.layer->Run(batch);
  if (tokens > 0) Count(tokens);
}

// The block in which the drafts begin is copied where the row's tokens have keys in it.
void LayerDrafter::Begin(const Active& active, int32_t place) {
  const Held& held = held_[static_cast<size_t>(active.slot)];
  const int32_t block_size = options().block_size;
  const int64_t position = static_cast<int64_t>(active.row->tokens.size()) - 1;
  const auto first = static_cast<size_t>(position / block_size);
  const int32_t pages = DraftPages(options().max_drafts, block_size);
  int32_t page = programs_.page_count + place * pages;
  std::vector<int32_t>& table = tables_[static_cast<size_t>(place)];
  QUIRE_CHECK_MSG(
      held.table.size() * static_cast<size_t>(block_size) >= static_cast<size_t>(position),
      "a row's tokens have no page");
  table.assign(held.table.begin(),
               held.table.begin() + static_cast<ptrdiff_t>(std::min(first, held.table.size())));
  if (position % block_size != 0) step_.copies.push_back({held.table[first], page});
  for (int32_t i = 0; i < pages; ++i) table.push_back(page++);
  std::copy_n(StateOf(active.slot), width_, DraftStateOf(place));
}

// The row's last position has been computed already: its sample is the first draft.
void LayerDrafter::Draft(std::span<const Active> rows) {
  int32_t most = 0;
  step_.Clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenId first = held_[static_cast<size_t>(rows[i].slot)].first_draft;
    if (first >= 0) rows[i].row->drafts->push_back(first);
    most = std::max(most, std::min(rows[i].row->wanted, options().max_drafts));
    if (rows[i].row->wanted > 1) Begin(rows[i], static_cast<int32_t>(i));
  }
  for (int32_t drafted = 1; drafted < most; ++drafted) {
    for (size_t i = 0; i < rows.size(); ++i) AddDraft(rows[i], static_cast<int32_t>(i), drafted);
    if (step_.tokens.empty()) return;
    Run();
    const kernels::FeatureRows shown = programs_.layer->Features();
    for (size_t i = 0; i < step_.sampled.size(); ++i) {
      const int32_t place = step_.slots[i];
      const kernels::SampleOutput& output = step_.outputs[i];
      const TokenId token = output.not_a_number ? -1 : TargetId(output.token);
      if (token >= 0) rows[static_cast<size_t>(place)].row->drafts->push_back(token);
      std::copy_n(shown.Row(step_.sampled[i]), width_, DraftStateOf(place));
    }
    step_.Clear();
  }
}

// Adds the position of the row's last draft, where it has so many and may have another.
void LayerDrafter::AddDraft(const Active& active, int32_t place, int32_t drafted) {
  const DraftRow& row = *active.row;
  // A row that had no answer once has no drafts behind it.
  if (static_cast<int32_t>(row.drafts->size()) != drafted || drafted >= row.wanted) return;
  const int64_t length = static_cast<int64_t>(row.tokens.size());
  const int64_t position = length - 2 + drafted;
  if (position >= options().max_positions) return;
  AddRow(tables_[static_cast<size_t>(place)], row.drafts->back(), position);
  const float* state = DraftStateOf(place);
  step_.hidden.insert(step_.hidden.end(), state, state + width_);
  step_.sampled.push_back(static_cast<int32_t>(step_.tokens.size()) - 1);
  step_.sample_rows.push_back(
      SampleOf(*row.sampling, row.choice, length - row.prompt_length + drafted));
  step_.slots.push_back(place);
}

}  // namespace quire

// Speculation in the engine: which rows are drafted for before a step is planned, and what becomes
// of the drafts when it is committed. The target samples every position of a draft with the noise
// of that position, and takes a draft only if it equals that sample: what a router hears does not
// depend on any of this.
#include <algorithm>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine_state.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

// The most of a row's time that a probe may take: drafting must never cost more than it can bring.
constexpr double kProbeShare = 0.02;

// Until so many steps with drafts have been measured, their time is not known and drafts are tried.
constexpr int64_t kLearningSteps = 8;

// Whether the row's next step may hold drafts. Rows with a budget of thoughts have none: it counts
// their samples one by one.
bool MayDraft(const Choice& choice) {
  return choice.request != nullptr && !choice.is_beam &&
         choice.request->submit.thought_budget == nullptr && !choice.Prefilling() &&
         choice.drafts_in_flight == 0 && choice.OutputCount() > 0 &&
         choice.OutputsKnown() + 1 < std::min(choice.output_limit, choice.window_end);
}

}  // namespace

bool Engine::State::Drafts() const {
  return options.drafter != nullptr || (options.forced_tokens && constrained_choices > 0);
}

bool Engine::State::LearnsDrafts() const { return draft_steps < kLearningSteps; }

// What a row's grammar forces, else what the drafter guesses. Rows whose last sample is still in
// flight wait for it where there is something to draft.
void Engine::State::ProposeDrafts() {
  draft_rows.clear();
  drafting.clear();
  masked_drafts = 0;
  // A state cannot step back behind a rejected draft.
  if (std::ranges::any_of(options.cache_kinds, &CacheKindShape::HoldsStates)) return;
  const StepTimes& times = step_time.times();
  StepWork work;
  for (Sequence* const sequence : scheduler.running()) {
    if (!sequence->Prefilling()) work.AddDecode(sequence->planned);
  }
  DraftStep step{times.Predict(work), static_cast<double>(work.decode_rows)};
  const bool learning = LearnsDrafts();
  for (Sequence* const sequence : scheduler.running()) {
    Choice& choice = static_cast<Choice&>(*sequence);
    if (choice.drafts_in_flight > 0) continue;
    choice.drafts.clear();
    choice.forced = choice.awaits_sample = false;
    if (!MayDraft(choice)) continue;
    double micros = times.row_us + times.context_us * static_cast<double>(choice.tokens.size());
    if (ProposeForced(choice, step, micros) || options.drafter == nullptr) continue;
    micros += options.drafter->TokenMicros();
    const bool begins = choice.draft_tokens == 0;
    const bool predicted =
        options.drafter->UsesPredictions() && !choice.request->submit.prediction_ids.empty();
    // What a client says of its answer is tried once before it is judged.
    if (begins && !predicted) choice.drafted.Begin(draft_start.Chance());
    const bool unjudged = learning || (begins && predicted);
    const int64_t outputs = std::min(choice.output_limit, choice.window_end);
    const int64_t most = std::min<int64_t>(options.max_drafts, outputs - choice.OutputsKnown() - 1);
    int32_t wanted = WorthDrafting(choice.drafted.Chance(), unjudged ? 0 : micros,
                                   static_cast<int32_t>(most), step);
    if (wanted == 0 && ProbePays(choice, step, micros)) wanted = 1;
    if (wanted == 0) continue;
    if (choice.samples_in_flight > 0 && !options.drafter->GuessesForFree()) {
      choice.awaits_sample = true;
      choice.plain_end = 0;
      continue;
    }
    draft_rows.push_back({.sequence = choice.id,
                          .tokens = choice.tokens,
                          .prompt_length = choice.prompt_length,
                          .choice = choice.choice,
                          .sampling = choice.sampling,
                          .end_ids = choice.end_ids,
                          .prediction = choice.request->submit.prediction_ids,
                          .cache = choice.cache,
                          .wanted = wanted + choice.samples_in_flight,
                          .drafts = &choice.drafts});
    drafting.push_back(&choice);
  }
  if (draft_rows.empty()) return;
  options.drafter->Propose(draft_rows);
  for (Choice* const choice : drafting) {
    if (choice->constrained) {
      const size_t most = std::min(choice->drafts.size(), kMaxMaskedDrafts - masked_drafts);
      choice->drafts.resize(most);
      masked_drafts += most;
    }
    if (choice->samples_in_flight == 0 || choice->drafts.empty()) continue;
    choice->drafts.clear();
    choice->awaits_sample = true;
    choice->plain_end = 0;
  }
}

// A row for which drafting does not pay tries one draft now and then: after kDraftProbeTokens, or
// later where its drafter would have much to read for it.
bool Engine::State::ProbePays(const Choice& choice, const DraftStep& step, double micros) const {
  QUIRE_CHECK(options.drafter != nullptr && step.micros >= 0);
  if (!choice.drafted.ProbeDue(choice.OutputCount())) return false;
  const double catch_up =
      options.drafter->CatchUpMicros(choice.id, static_cast<int64_t>(choice.tokens.size()));
  if (catch_up <= 0) return true;
  const double tokens = static_cast<double>(choice.drafted.Since(choice.OutputCount()));
  return catch_up + micros <= kProbeShare * tokens * step.micros / std::max(1.0, step.tokens);
}

// Each of these tokens costs a step its time now or later: now it costs no step of its own.
bool Engine::State::ProposeForced(Choice& choice, DraftStep& step, double micros) {
  if (!choice.constrained || !options.forced_tokens || !options.masks->Has(choice.id)) return false;
  const std::span<const TokenId> ahead = options.masks->Ahead(choice.id);
  const size_t count = std::min(ahead.size(), kMaxMaskedDrafts - masked_drafts);
  if (count == 0) return false;
  QUIRE_CHECK(choice.samples_in_flight == 0);
  masked_drafts += count;
  choice.forced = true;
  choice.drafts.assign(ahead.begin(), ahead.begin() + static_cast<ptrdiff_t>(count));
  step.micros += micros * static_cast<double>(count);
  step.tokens += static_cast<double>(count);
  return true;
}

// Of the samples of a row with drafts: those up to the first that differs from its draft or ends
// the choice, itself included.
size_t Engine::State::SamplesToTake(const Choice& choice, std::span<const TokenId> drafts,
                                    std::span<const SampledToken> samples) const {
  size_t most = AcceptedDrafts(drafts, samples) + 1;
  if (choice.constrained && !choice.ended && !QUIRE_BUG(end_of_text_inside_drafts_ignored)) {
    most = std::min(most, options.masks->Masks(choice.id));
  }
  const StopRules rules{choice.end_ids, choice.min_tokens, choice.output_limit};
  for (size_t i = 0; i + 1 < most; ++i) {
    const int64_t count = choice.OutputCount() + static_cast<int64_t>(i) + 1;
    if (QUIRE_BUG(stop_inside_drafts_ignored)) break;
    if (CheckStop(rules, samples[i].token, count).has_value()) return i + 1;
  }
  return most;
}

void Engine::State::CommitDrafted(Choice& choice, const PlannedRow& row,
                                  std::span<const SampledToken> samples, int64_t now_us) {
  const std::span<const TokenId> drafts =
      std::span(choice.drafts).first(static_cast<size_t>(row.draft_count));
  const size_t accepted = AcceptedDrafts(drafts, samples);
  const size_t taken = SamplesToTake(choice, drafts, samples);
  // Behind the last of them its text is at its end.
  const bool ends = choice.constrained && !choice.ended && taken == accepted &&
                    taken == options.masks->Masks(choice.id);
  const int64_t before = choice.OutputCount();
  scheduler.CommitDrafts(row, drafts.first(taken - 1));
  if (!scheduler.CommitRow(row, samples[taken - 1].token)) {
    // It ended while the step ran, and one sample was counted then.
    ++totals.generated_tokens;
    ++totals.discarded_tokens;
    return;
  }
  NoteDrafts(choice, drafts.size(), std::min(taken, accepted));
  for (size_t i = 0; i < taken; ++i) {
    QUIRE_CHECK_MSG(!choice.ended, "a sample behind the end of its choice is taken");
    CommitSample(choice, samples[i], before + static_cast<int64_t>(i) + 1, now_us);
    if (i + 1 == taken && taken > 1 && !choice.ended && QUIRE_BUG(bonus_token_told_twice)) {
      CommitSample(choice, samples[i], before + static_cast<int64_t>(i) + 2, now_us);
    }
  }
  if (choice.ended || !choice.constrained) return;
  if (ends) return EndText(choice);
  // It begins again with the tokens that it has.
  if (options.masks->Astray(choice.id)) EndTextOf(choice);
}

void Engine::State::NoteDrafts(Choice& choice, size_t drafted, size_t accepted) {
  QUIRE_CHECK(drafted >= 1 && drafted <= totals.accepted_at.size() && accepted <= drafted);
  if (choice.forced) {
    totals.forced_tokens += drafted;
    totals.accepted_forced_tokens += accepted;
    return;
  }
  if (choice.draft_tokens == 0 && choice.request->submit.prediction_ids.empty()) {
    draft_start.Add(static_cast<int64_t>(drafted), static_cast<int64_t>(accepted));
  }
  ++totals.draft_rows;
  totals.draft_tokens += drafted;
  totals.accepted_draft_tokens += accepted;
  for (size_t i = 0; i < accepted; ++i) ++totals.accepted_at[i];
  choice.draft_tokens += static_cast<uint32_t>(drafted);
  choice.accepted_draft_tokens += static_cast<uint32_t>(accepted);
  if (!choice.request->submit.prediction_ids.empty()) {
    choice.accepted_prediction = static_cast<uint8_t>(accepted);
    choice.rejected_prediction = static_cast<uint8_t>(drafted - accepted);
  }
  choice.drafted.Add(static_cast<int64_t>(drafted), static_cast<int64_t>(accepted),
                     choice.OutputCount());
}

}  // namespace quire

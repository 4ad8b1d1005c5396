#include "router/dispatch/live_dispatch.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/wire/features.h"

namespace quire {

LiveDispatch::LiveDispatch(DispatchRequest r, uint32_t window_size)
    : request(std::move(r)),
      journal(std::move(request.submit.choices),
              static_cast<uint64_t>(std::max(0, request.submit.sampling.max_tokens))) {
  request.submit.choices.clear();
  const size_t prompt = request.submit.prompt_ids.size();
  const bool scores = request.submit.sampling.prompt_logprobs > 0 && prompt > 0;
  journal.ExpectPrompt(scores ? static_cast<uint32_t>(prompt - 1) : 0);
  for (uint32_t choice = 0; choice < journal.choice_count(); ++choice) {
    windows.emplace_back(window_size).Take(journal.accepted(choice));
  }
}

const PromptKey& LiveDispatch::Prompt() const {
  if (!prompt_) prompt_ = PromptKeyOf(request.submit);
  return *prompt_;
}

uint64_t LiveDispatch::FurthestChoice() const {
  uint64_t furthest = 0;
  for (uint32_t choice = 0; choice < journal.choice_count(); ++choice) {
    furthest = std::max(furthest, journal.accepted(choice));
  }
  return furthest;
}

std::vector<std::string> LiveDispatch::Features() const {
  std::vector<std::string> features =
      RequiredFeatures(request.submit.sampling, journal.choice_count());
  if (journal.TotalOutputs() > 0 && !QUIRE_BUG(resume_not_asked_for))
    features.emplace_back(kFeatureResume);
  if (request.submit.constraint.kind != ConstraintKind::kNone) {
    features.emplace_back(kFeatureConstraint);
  }
  if (request.submit.thought_budget != nullptr) features.emplace_back(kFeatureThoughtBudget);
  if (!request.submit.adapter.empty()) features.emplace_back(kFeatureAdapter);
  return features;
}

uint32_t LiveDispatch::InitialWindow() const {
  if (!Windowed()) return 0;
  std::optional<uint64_t> room;
  for (uint32_t choice = 0; choice < windows.size(); ++choice) {
    if (journal.ended(choice)) continue;
    const uint64_t here = windows[choice].Room(journal.accepted(choice));
    room = std::min(room.value_or(here), here);
  }
  if (QUIRE_BUG(window_not_carried_over) && carry_on) return windows.front().size();
  QUIRE_CHECK_MSG(room && *room > 0, "an attempt has a choice to go on with");
  return static_cast<uint32_t>(*room);
}

Submit LiveDispatch::MakeSubmit() const {
  Submit submit = request.submit;
  submit.choices = journal.choices();
  if (QUIRE_BUG(carry_on_one_token_late) && carry_on && journal.AnyAccepted()) {
    for (ResumedChoice& choice : submit.choices) choice.outputs.push_back(0);
  }
  if (QUIRE_BUG(carry_on_drops_the_adapter) && carry_on) submit.adapter.clear();
  submit.required_features = Features();
  submit.initial_window = InitialWindow();
  return submit;
}

}  // namespace quire

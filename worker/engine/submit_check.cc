#include "worker/engine/submit_check.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/wire/features.h"
#include "worker/adapters/adapter_table.h"
#include "worker/draft/drafter.h"
#include "worker/engine/beams.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

Refused Refuse(RefusalCode code, std::string field, std::string message) {
  Refused refused;
  refused.code = code;
  refused.field = std::move(field);
  refused.message = refused.field + ": " + std::move(message);
  return refused;
}

std::optional<Refused> CheckTokens(std::span<const TokenId> ids, std::string field,
                                   int32_t vocab_size) {
  for (TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return Refuse(RefusalCode::kInvalid, std::move(field),
                  "token id " + std::to_string(id) + " is outside the vocabulary [0, " +
                      std::to_string(vocab_size) + ")");
  }
  return std::nullopt;
}

std::optional<Refused> CheckFeatures(const Submit& submit, const EngineOptions& options) {
  std::vector<std::string> required = RequiredFeatures(submit.sampling, submit.choices.size());
  if (!submit.adapter.empty()) required.emplace_back(kFeatureAdapter);
  if (submit.constraint.kind != ConstraintKind::kNone) required.emplace_back(kFeatureConstraint);
  if (submit.thought_budget != nullptr) required.emplace_back(kFeatureThoughtBudget);
  required.insert(required.end(), submit.required_features.begin(), submit.required_features.end());
  const std::vector<std::string> served = ServedFeatures(options);
  const std::string missing(MissingFeature(required, served).substr(0, 64));
  if (missing.empty()) return std::nullopt;
  return Refuse(RefusalCode::kUnsupported, missing, "this worker does not serve it");
}

std::optional<Refused> CheckPrompt(const Submit& submit, const EngineOptions& options) {
  if (submit.prompt_ids.empty()) {
    return Refuse(RefusalCode::kInvalid, "prompt_ids", "is empty; at least one token is needed");
  }
  if (submit.prompt_ids.size() >= static_cast<size_t>(options.max_model_len)) {
    return Refuse(RefusalCode::kInvalid, "prompt_ids",
                  "has " + std::to_string(submit.prompt_ids.size()) + " tokens; at most " +
                      std::to_string(options.max_model_len - 1) + " leave room for an answer");
  }
  return CheckTokens(submit.prompt_ids, "prompt_ids", options.vocab_size);
}

std::optional<Refused> CheckChoices(const Submit& submit, const EngineOptions& options) {
  const size_t limit = static_cast<size_t>(options.max_choices);
  if (submit.choices.empty() || submit.choices.size() > limit) {
    return Refuse(RefusalCode::kInvalid, "n", "must be in [1, " + std::to_string(limit) + "]");
  }
  bool any_open = false;
  for (const ResumedChoice& choice : submit.choices) {
    any_open = any_open || !choice.ended;
    const size_t length = submit.prompt_ids.size() + choice.outputs.size();
    if (choice.outputs.size() > static_cast<size_t>(submit.sampling.max_tokens) ||
        length > static_cast<size_t>(options.max_model_len)) {
      return Refuse(RefusalCode::kInvalid, "choices.outputs",
                    "has more tokens than max_tokens or the context allow");
    }
    if (auto refused = CheckTokens(choice.outputs, "choices.outputs", options.vocab_size)) {
      return refused;
    }
  }
  if (any_open) return std::nullopt;
  return Refuse(RefusalCode::kInvalid, "choices.ended", "every choice has ended already");
}

}  // namespace

std::vector<std::string> ServedFeatures(const EngineOptions& options) {
  if (!options.features.empty()) return options.features;
  std::vector<std::string> features;
  for (std::string_view feature :
       {kFeatureTypicalP, kFeaturePenalties, kFeatureMinTokens, kFeatureLogitBias,
        kFeatureAllowedTokenIds, kFeatureBadWords, kFeatureLogprobs, kFeaturePromptLogprobs,
        kFeatureBeamSearch, kFeatureResume}) {
    features.emplace_back(feature);
  }
  if (options.prefix_caching) features.emplace_back(kFeatureSnapshot);
  if (options.masks != nullptr) {
    features.emplace_back(kFeatureConstraint);
    features.emplace_back(kFeatureThoughtBudget);
  }
  if (options.max_choices > 1) features.emplace_back(kFeatureChoices);
  if (options.drafter != nullptr && options.drafter->UsesPredictions()) {
    features.emplace_back(kFeaturePrediction);
  }
  if (options.adapters != nullptr && options.adapters->max_loras() > 0) {
    features.emplace_back(kFeatureAdapter);
  }
  return features;
}

std::optional<Refused> CheckSubmit(const Submit& submit, const EngineOptions& options,
                                   const AdapterSlots& adapters) {
  QUIRE_CHECK(options.vocab_size > 0 && options.max_model_len > 1);
  QUIRE_CHECK(options.max_choices >= 1);
  if (submit.model_id != options.model_id) {
    return Refuse(RefusalCode::kWrongModel, "model_id", "is not the model that is served here");
  }
  if (submit.salt.size() > kMaxSaltBytes) {
    return Refuse(RefusalCode::kInvalid, "salt", "has more than 64 bytes");
  }
  if (submit.tenant.size() > kMaxTenantBytes) {
    return Refuse(RefusalCode::kInvalid, "tenant", "has more than 256 bytes");
  }
  const absl::Status sampling = ValidateSamplingParams(submit.sampling, options.vocab_size);
  if (!sampling.ok()) {
    // The message opens with the field's name and a colon.
    const std::string message = StatusMessage(sampling);
    const size_t colon = std::min(message.find(':'), message.size());
    const size_t rest = message.find_first_not_of(": ", colon);
    return Refuse(RefusalCode::kInvalid, message.substr(0, colon),
                  rest == std::string::npos ? "is invalid" : message.substr(rest));
  }
  if (auto refused = CheckPrompt(submit, options)) return refused;
  if (submit.prediction_ids.size() > kMaxPredictionIds) {
    return Refuse(RefusalCode::kInvalid, "prediction_ids",
                  "has more than " + std::to_string(kMaxPredictionIds) + " tokens");
  }
  if (auto refused = CheckTokens(submit.prediction_ids, "prediction_ids", options.vocab_size)) {
    return refused;
  }
  if (auto refused = CheckChoices(submit, options)) return refused;
  if (submit.sampling.beam_width > 0) {
    const size_t ends = EndIds(submit.sampling, options.eos_token_ids).size();
    if (auto problem = CheckBeams(submit.sampling, submit.choices.size(), ends)) {
      return Refuse(RefusalCode::kInvalid, std::string(problem->field),
                    std::string(problem->message));
    }
  }
  if (submit.sampling.beam_width > 0 && submit.constrained()) {
    const bool grammar = submit.constraint.kind != ConstraintKind::kNone;
    return Refuse(RefusalCode::kInvalid, grammar ? "constraint" : "thought_budget",
                  "is not served together with a beam search; leave one of them out");
  }
  if (submit.thought_budget != nullptr) {
    if (auto refused =
            CheckTokens(submit.thought_budget->end, "thought_budget.end", options.vocab_size)) {
      return refused;
    }
  }
  if (auto refused = CheckFeatures(submit, options)) return refused;
  if (submit.adapter.empty() || adapters.SlotOf(submit.adapter)) return std::nullopt;
  // Its router may find another worker that has it.
  return Refuse(RefusalCode::kNotReady, "adapter", "this worker does not hold it");
}

}  // namespace quire

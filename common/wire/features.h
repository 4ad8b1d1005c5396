// The names with which a worker's Hello lists what it serves beyond the basics, and which of them a
// request needs. Router and worker share this one table.
//
// The basics, served by every worker: one choice, greedy or temperature with top_p, top_k and
// min_p, a seed, stop token ids, max_tokens, ignore_eos. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/wire/sampling.h"

namespace quire {

inline constexpr std::string_view kFeatureTypicalP = "typical_p";
inline constexpr std::string_view kFeaturePenalties =
    "penalties";  // repetition, frequency, presence
inline constexpr std::string_view kFeatureMinTokens = "min_tokens";
inline constexpr std::string_view kFeatureLogitBias = "logit_bias";
inline constexpr std::string_view kFeatureAllowedTokenIds = "allowed_token_ids";
inline constexpr std::string_view kFeatureBadWords = "bad_words";
inline constexpr std::string_view kFeatureLogprobs = "logprobs";
inline constexpr std::string_view kFeaturePromptLogprobs =
    "prompt_logprobs";  // and max_tokens 0, which requests nothing else
inline constexpr std::string_view kFeatureBeamSearch = "beam_search";
inline constexpr std::string_view kFeatureChoices = "choices";  // n > 1, up to Limits.max_choices
inline constexpr std::string_view kFeatureResume = "resume";    // choices that already have outputs
inline constexpr std::string_view kFeatureConstraint = "constraint";
inline constexpr std::string_view kFeatureThoughtBudget = "thought_budget";
inline constexpr std::string_view kFeatureAdapter = "adapter";
// A worker's, which drafts from predictions. No request needs it: elsewhere they are left out.
inline constexpr std::string_view kFeaturePrediction = "prediction";
// The first is a worker's, which takes AdapterOrders; the second a router's, which takes
// AdaptersChanged.
inline constexpr std::string_view kFeatureAdapterOrders = "adapter_orders";
inline constexpr std::string_view kFeatureAdapterChanges = "adapter_changes";
inline constexpr std::string_view kFeatureSnapshot =
    "snapshot";  // cache events and SnapshotRequest

// The features that these parameters use, in the order of the list above.
std::vector<std::string> RequiredFeatures(const SamplingParams& params, size_t choice_count);

// The first of `required` that is not in `offered`; empty when all are.
std::string_view MissingFeature(const std::vector<std::string>& required,
                                const std::vector<std::string>& offered);

}  // namespace quire

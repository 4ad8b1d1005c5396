// A client's sampling parameters, the model's defaults and the workers' limits become final
// sampling parameters.
//
// Pure functions; any thread.
//  1. Every error names the client's field and the range that is served.
//  2. A parameter that no worker of the model serves is accepted at its neutral value only; a
//     default of the model that is not served becomes neutral.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/wire/sampling.h"
#include "common/wire/values.h"
#include "router/core/limits.h"
#include "router/core/model_text.h"
#include "router/core/result.h"

namespace quire {

// What a worker's Hello says about the model that a request is for.
struct ModelFacts {
  std::string name;  // names the model in messages
  uint32_t max_model_len = 0;
  uint32_t vocab_size = 0;
  WorkerLimits limits;
  std::vector<std::string> features;
};

// Everything except max_tokens, which needs the prompt's length, and bad_words, which need the
// tokenizer. The seed is the client's or `fresh_seed`.
Result<SamplingParams> ResolveSampling(const SamplingOptions& options,
                                       const GenerationSettings& defaults, const ModelFacts& model,
                                       const RouterLimits& limits, uint64_t fresh_seed);

// Of a prompt that is tokens.
struct PromptSize {
  size_t tokens = 0;
  std::string_view field = "prompt";  // of the client
};

// max_tokens for a prompt of this length: the client's value, or 16, or with `rest_of_context` all
// that is left. A prompt that leaves no room for one token is refused with the code that clients of
// OpenAI know: "context_length_exceeded".
Result<int32_t> ResolveMaxTokens(const SamplingOptions& options, const PromptSize& prompt,
                                 const ModelFacts& model, bool rest_of_context);

}  // namespace quire

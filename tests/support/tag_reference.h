// What the tag model answers to a request, worked out from the request alone: no engine, no
// scheduler, no pages, no row state. The oracle that engines are held against.
//
// Pure. The sampling kernel is shared with the engine (it has tests of its own); what it is told
// (counts, bans, biases) is made here a second time, in the plainest way.
#pragma once

#include <cstdint>
#include <vector>

#include "common/wire/values.h"
#include "worker/core/cache_shape.h"

namespace quire::test {

struct TagModel {
  CacheShape cache;  // only windows and groups matter
  int32_t vocab_size = 64;
  int32_t max_model_len = 2048;
  std::vector<TokenId> eos_token_ids;
};

struct ReferenceAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;  // with sampling.logprobs ≥ 1
  std::vector<TopLogprobs> top;        // with sampling.logprobs > 1
  EndReason reason = EndReason::kUnspecified;
  bool by_stop_token = false;
  TokenId stop_token_id = 0;
};

// The whole answer of one choice, from its first output on; resumed outputs are ignored. With
// max_tokens 0 it is empty.
ReferenceAnswer TagAnswer(const TagModel& model, const Submit& submit, uint32_t choice,
                          uint64_t salt);

// The prompt's logprobs (sampling.prompt_logprobs > 0), from position 1 on.
PromptLogprobs TagPromptLogprobs(const TagModel& model, const Submit& submit, uint64_t salt);

// The answers of a beam search (sampling.beam_width > 0), one for each choice, best first. When it
// finds fewer, all of them fail.
std::vector<ReferenceAnswer> TagBeamAnswers(const TagModel& model, const Submit& submit,
                                            uint64_t salt);

}  // namespace quire::test

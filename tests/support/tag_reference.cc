#include "tests/support/tag_reference.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "common/check.h"
#include "kernels/sampling/sampler.h"
#include "tests/support/tag_grammar.h"
#include "tests/support/tag_keys.h"

namespace quire::test {
namespace {

// What the sampling kernel is told, made again for every token.
struct RowMaker {
  const SamplingParams& params;
  std::set<TokenId> end_ids;
  std::vector<uint32_t> mask;
  std::vector<int32_t> banned;
  std::vector<kernels::TokenBias> bias;
  std::vector<kernels::TokenCount> counts;

  kernels::SampleRow Make(std::span<const TokenId> prompt, const std::vector<TokenId>& outputs,
                          int32_t vocab_size) {
    kernels::SampleRow row;
    row.temperature = params.temperature;
    row.top_p = params.top_p;
    row.top_k = params.top_k;
    row.min_p = params.min_p;
    row.typical_p = params.typical_p;
    row.repetition_penalty = params.repetition_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.presence_penalty = params.presence_penalty;
    row.seed = params.seed;
    row.output_index = outputs.size();
    row.logprobs = params.logprobs;
    std::map<TokenId, int32_t> count;
    for (TokenId id : prompt) count[id] += 0;
    for (TokenId id : outputs) count[id] += 1;
    counts.clear();
    for (const auto& [id, times] : count) counts.push_back({id, times});
    row.token_counts = counts;
    std::set<int32_t> ban;
    for (const std::vector<TokenId>& word : params.bad_words) {
      std::vector<TokenId> text(outputs);
      text.push_back(word.back());
      if (text.size() < word.size()) continue;
      if (std::equal(word.rbegin(), word.rend(), text.rbegin())) ban.insert(word.back());
    }
    if (static_cast<int64_t>(outputs.size()) < params.min_tokens) {
      ban.insert(end_ids.begin(), end_ids.end());
    }
    banned.assign(ban.begin(), ban.end());
    row.banned_ids = banned;
    std::map<TokenId, float> biases(params.logit_bias.begin(), params.logit_bias.end());
    bias.clear();
    for (const auto& [id, value] : biases) bias.push_back({id, value});
    row.logit_bias = bias;
    if (!params.allowed_token_ids.empty()) {
      mask.assign((static_cast<size_t>(vocab_size) + 31) / 32, 0);
      for (TokenId id : params.allowed_token_ids) {
        mask[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
      }
      row.allowed_mask = mask;
    }
    return row;
  }
};

bool EndsWith(std::span<const TokenId> tokens, const std::vector<ThoughtBudget::Mark>& marks) {
  return std::any_of(marks.begin(), marks.end(), [&](const ThoughtBudget::Mark& mark) {
    return mark.size() <= tokens.size() &&
           std::equal(mark.begin(), mark.end(), tokens.end() - static_cast<ptrdiff_t>(mark.size()));
  });
}

// The token that a budget of thoughts demands next, found from the first token on.
struct BudgetReference {
  const ThoughtBudget* budget = nullptr;
  bool inside = false, over = false;
  uint64_t used = 0;
  std::optional<size_t> ending;
  int postponed = 0;

  void Begin() {
    inside = budget != nullptr && budget->opened;
    if (inside && budget->tokens == 0) ending = 0;
  }
  void Close() {
    inside = false;
    ending.reset();
    over = !budget->repeats;
  }
  // Before a sample; `grammar` may be null.
  std::optional<TokenId> Demands(const grammar::Matcher* grammar) {
    if (ending == 0u && grammar != nullptr && !grammar->Fork()->Accept(budget->end).ok()) {
      ending.reset();
      if (++postponed > 3) over = true;
    }
    return ending ? std::optional(budget->end[*ending]) : std::nullopt;
  }
  // After it.
  void Took(std::span<const TokenId> tokens) {
    if (budget == nullptr || over) return;
    if (ending) {
      if (++*ending == budget->end.size()) Close();
      return;
    }
    if (!inside) {
      inside = EndsWith(tokens, budget->opens);
    } else {
      ++used;
      if (EndsWith(tokens, budget->closes)) return Close();
    }
    if (inside && used >= budget->tokens) ending = 0;
  }
};

// What grammar and budget allow next. False: everything.
bool NarrowMask(grammar::Matcher* matcher, BudgetReference& thoughts, std::vector<uint32_t>& mask) {
  if (matcher != nullptr) QUIRE_CHECK(matcher->Mask(mask).ok());
  const auto forced = thoughts.Demands(matcher);
  if (forced) {
    mask.assign(mask.size(), 0);
    mask[static_cast<size_t>(*forced) / 32] = 1u << (*forced % 32);
  }
  return forced || matcher != nullptr;
}

}  // namespace

ReferenceAnswer TagAnswer(const TagModel& model, const Submit& submit, uint32_t choice,
                          uint64_t salt) {
  const SamplingParams& params = submit.sampling;
  RowMaker maker{params, {}, {}, {}, {}, {}};
  maker.end_ids.insert(params.stop_token_ids.begin(), params.stop_token_ids.end());
  if (!params.ignore_eos) {
    maker.end_ids.insert(model.eos_token_ids.begin(), model.eos_token_ids.end());
  }
  const size_t room = static_cast<size_t>(model.max_model_len) - submit.prompt_ids.size();
  const size_t limit = std::min(static_cast<size_t>(params.max_tokens), room);
  TagKeys keys(model.cache, salt);
  for (TokenId token : submit.prompt_ids) keys.Append(token);
  kernels::sampling::Sampler sampler;
  std::vector<float> logits(static_cast<size_t>(model.vocab_size));
  ReferenceAnswer answer;
  std::unique_ptr<grammar::Matcher> matcher;
  if (submit.constraint.kind != ConstraintKind::kNone) {
    matcher = TagGrammar(submit.constraint)->NewMatcher();
  }
  BudgetReference thoughts;
  thoughts.budget = submit.thought_budget.get();
  thoughts.Begin();
  while (answer.reason == EndReason::kUnspecified) {
    if (matcher != nullptr && matcher->Finished()) {
      answer.reason = EndReason::kStop;
      break;
    }
    TagLogits(keys.Seen(), logits);
    kernels::SampleRow row = maker.Make(submit.prompt_ids, answer.tokens, model.vocab_size);
    row.choice = choice;
    std::vector<uint32_t> mask((static_cast<size_t>(model.vocab_size) + 31) / 32);
    if (NarrowMask(matcher.get(), thoughts, mask)) {
      for (size_t i = 0; i < row.allowed_mask.size(); ++i) mask[i] &= row.allowed_mask[i];
      row.allowed_mask = mask;
    }
    kernels::SampleOutput output;
    sampler.Sample(logits, row, output);
    if (output.token < 0) {
      answer.reason = EndReason::kFailed;  // nothing may follow
      break;
    }
    answer.tokens.push_back(output.token);
    if (matcher != nullptr) QUIRE_CHECK(matcher->Accept({&output.token, 1}).ok());
    thoughts.Took(answer.tokens);
    keys.Append(output.token);
    if (params.logprobs >= 1)
      answer.logprob_bits.push_back(std::bit_cast<uint32_t>(output.logprob));
    if (params.logprobs > 1) {
      answer.top.push_back({{output.top_ids, output.top_ids + output.top_count},
                            {output.top_logprobs, output.top_logprobs + output.top_count}});
    }
    const bool may_end = static_cast<int64_t>(answer.tokens.size()) > params.min_tokens;
    if (may_end && maker.end_ids.contains(output.token)) {
      answer.reason = EndReason::kStop;
      answer.by_stop_token = true;
      answer.stop_token_id = output.token;
    } else if (answer.tokens.size() >= limit) {
      answer.reason = EndReason::kLength;
    }
  }
  if (params.max_tokens == 0) {  // one is sampled, and dropped
    const bool failed = answer.reason == EndReason::kFailed;
    answer = {};
    answer.reason = failed ? EndReason::kFailed : EndReason::kLength;
  }
  return answer;
}

PromptLogprobs TagPromptLogprobs(const TagModel& model, const Submit& submit, uint64_t salt) {
  TagKeys keys(model.cache, salt);
  kernels::sampling::Sampler sampler;
  std::vector<float> logits(static_cast<size_t>(model.vocab_size));
  PromptLogprobs scored;
  scored.first_position = 1;
  for (size_t position = 1; position < submit.prompt_ids.size(); ++position) {
    keys.Append(submit.prompt_ids[position - 1]);
    TagLogits(keys.Seen(), logits);
    kernels::SampleRow row;
    row.scored_token = submit.prompt_ids[position];
    row.logprobs = submit.sampling.prompt_logprobs;
    kernels::SampleOutput output;
    sampler.Sample(logits, row, output);
    scored.logprobs.push_back(output.logprob);
    scored.ranks.push_back(static_cast<uint32_t>(output.rank));
    if (submit.sampling.prompt_logprobs == 1) continue;
    scored.top.push_back({{output.top_ids, output.top_ids + output.top_count},
                          {output.top_logprobs, output.top_logprobs + output.top_count}});
  }
  return scored;
}

}  // namespace quire::test

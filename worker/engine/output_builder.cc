#include "worker/engine/output_builder.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {

RouterOutput& OutputBuilder::For(RouterInstance router) {
  RouterOutput& output = routers_[router];
  output.router = router;
  return output;
}

void OutputBuilder::SubmitSeen(RouterInstance router, uint64_t submit_number) {
  uint64_t& last = last_submits_[router];
  last = std::max(last, submit_number);
  For(router);
}

void OutputBuilder::ForgetRouter(RouterInstance router) {
  routers_.erase(router);
  last_submits_.erase(router);
}

void OutputBuilder::AddAdmitted(const Request& request, uint32_t cached_tokens,
                                uint64_t event_seq) {
  For(request.router).admitted.push_back({request.submit.key, cached_tokens, event_seq});
}

void OutputBuilder::AddToken(const Choice& choice, const SampledToken& sample) {
  QUIRE_CHECK(choice.request != nullptr && !choice.ended);
  QUIRE_CHECK(choice.OutputCount() > 0 && choice.tokens.back() == sample.token);
  const Request& request = *choice.request;
  std::vector<Output>& outputs = For(request.router).outputs;
  Output& output = outputs.emplace_back();
  output.key = request.submit.key;
  output.choice = choice.index;
  output.first_index = static_cast<uint64_t>(choice.OutputCount() - 1);
  if (QUIRE_BUG(first_index_after_preemption) && choice.incarnation > 0) ++output.first_index;
  output.ids.push_back(sample.token);
  const int32_t logprobs = request.submit.sampling.logprobs;
  if (logprobs >= 1) output.logprobs.push_back(sample.logprob);
  if (logprobs > 1) output.top.push_back({sample.top_ids, sample.top_logprobs});
}

void OutputBuilder::AddPromptLogprobs(const Request& request, std::span<const ScoredToken> scored) {
  QUIRE_CHECK(!scored.empty() && request.open_choices > 0);
  const bool with_top = request.submit.sampling.prompt_logprobs > 1;
  PromptLogprobs& part = For(request.router).prompt_logprobs.emplace_back();
  part.key = request.submit.key;
  part.first_position = static_cast<uint32_t>(scored.front().position);
  int32_t position = scored.front().position;
  for (const ScoredToken& score : scored) {
    QUIRE_CHECK_MSG(score.position == position++, "scored positions are consecutive");
    part.logprobs.push_back(score.logprob);
    part.ranks.push_back(static_cast<uint32_t>(score.rank));
    if (with_top) part.top.push_back({score.top_ids, score.top_logprobs});
  }
}

void OutputBuilder::AddAnswer(const Choice& choice, const BeamAnswer& answer) {
  QUIRE_CHECK(choice.request != nullptr && !choice.ended);
  const Request& request = *choice.request;
  const size_t first = static_cast<size_t>(choice.OutputCount());
  if (first == answer.outputs.size()) return;
  Output& output = For(request.router).outputs.emplace_back();
  output.key = request.submit.key;
  output.choice = choice.index;
  output.first_index = first;
  output.ids.assign(answer.outputs.begin() + static_cast<ptrdiff_t>(first), answer.outputs.end());
  const int32_t logprobs = request.submit.sampling.logprobs;
  for (size_t i = first; i < answer.outputs.size(); ++i) {
    if (logprobs >= 1) output.logprobs.push_back(answer.logprobs[i]);
    if (logprobs <= 1) continue;
    const size_t count = std::min(static_cast<size_t>(logprobs - 1), answer.top[i].ids.size());
    const auto end = static_cast<ptrdiff_t>(count);
    TopLogprobs& top = output.top.emplace_back();
    top.ids.assign(answer.top[i].ids.begin(), answer.top[i].ids.begin() + end);
    top.logprobs.assign(answer.top[i].logprobs.begin(), answer.top[i].logprobs.begin() + end);
  }
}

void OutputBuilder::AddEnded(const Choice& choice, const ChoiceOutcome& end) {
  QUIRE_CHECK(choice.request != nullptr && choice.ended);
  QUIRE_CHECK(end.reason != EndReason::kUnspecified);
  const Request& request = *choice.request;
  Ended& ended = For(request.router).ended.emplace_back();
  ended.key = request.submit.key;
  ended.choice = choice.index;
  ended.reason = end.reason;
  ended.message = end.message;
  ended.retryable = end.retryable;
  ended.by_stop_token = end.by_stop_token;
  ended.stop_token_id = end.stop_token_id;
  ended.last_choice = request.open_choices == 0 || QUIRE_BUG(first_end_is_the_last);
  if (ended.last_choice) ended.usage = request.Usage();
}

void OutputBuilder::AddRefused(RouterInstance router, Refused refused) {
  QUIRE_CHECK(refused.code != RefusalCode::kUnspecified);
  For(router).refused.push_back(std::move(refused));
}

EngineOutput OutputBuilder::Take() {
  EngineOutput out = std::move(out_);
  out_ = EngineOutput();
  for (auto& [router, output] : routers_) {
    const auto last = last_submits_.find(router);
    output.last_admitted_submit = last == last_submits_.end() ? 0 : last->second;
    out.routers.push_back(std::move(output));
  }
  routers_.clear();
  return out;
}

}  // namespace quire

#include "worker/engine/output_builder.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/core/recycle.h"

namespace quire {

OutputBuilder::OutputBuilder(int32_t rows) : max_spare_(static_cast<size_t>(rows)) {
  spare_words_.reserve(kMaxSpareWords);
  spare_outputs_.reserve(max_spare_);
  spare_tops_.reserve(max_spare_);
}

// There are few routers: a walk over them is quicker than a tree.
size_t OutputBuilder::FindIndex(RouterInstance router) {
  CloseCursor();
  size_t at = 0;
  while (at < out_.routers.size() && out_.routers[at].router < router) ++at;
  if (at == out_.routers.size() || out_.routers[at].router != router) {
    RouterOutput words;
    if (!spare_words_.empty()) {
      words = std::move(spare_words_.back());
      spare_words_.pop_back();
    }
    words.router = router;
    out_.routers.insert(out_.routers.begin() + static_cast<ptrdiff_t>(at), std::move(words));
    fills_.insert(fills_.begin() + static_cast<ptrdiff_t>(at), Fill());
  }
  fills_[at].news = true;
  last_ = at;
  return at;
}

void OutputBuilder::SubmitSeen(RouterInstance router, uint64_t submit_number) {
  uint64_t& last = last_submits_[router];
  last = std::max(last, submit_number);
  For(router);
}

void OutputBuilder::ForgetRouter(RouterInstance router) {
  CloseCursor();
  last_submits_.erase(router);
  for (size_t i = out_.routers.size(); i-- > 0;) {
    if (out_.routers[i].router != router) continue;
    out_.routers.erase(out_.routers.begin() + static_cast<ptrdiff_t>(i));
    fills_.erase(fills_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void OutputBuilder::AddAdmitted(const Request& request, uint32_t cached_tokens,
                                uint64_t event_seq) {
  For(request.router).admitted.push_back({request.submit.key, cached_tokens, event_seq});
}

// A further output, in memory that may have been used before.
void OutputBuilder::AddOutput(std::vector<Output>& outputs) {
  ResizeRecycling(outputs, outputs.size() + 1, spare_outputs_, max_spare_);
  outputs.back().logprobs.reserve(1);
  outputs.back().top.reserve(1);
}

// The next output of the choice's router.
Output& OutputBuilder::NextOutput(const Choice& choice) {
  QUIRE_CHECK(choice.request != nullptr && !choice.ended);
  CloseCursor();
  const size_t router = IndexOf(choice.router);
  std::vector<Output>& outputs = out_.routers[router].outputs;
  size_t& filled = fills_[router].outputs;
  QUIRE_CHECK(filled <= outputs.size());
  if (filled == outputs.size()) AddOutput(outputs);
  Output& output = outputs[filled++];
  cursor_ = {choice.router, router, outputs.data() + filled, outputs.data() + outputs.size()};
  output.key = choice.key;
  output.choice = choice.index;
  output.accepted_prediction_tokens = choice.accepted_prediction;
  output.rejected_prediction_tokens = choice.rejected_prediction;
  output.logprobs.clear();
  if (!output.top.empty()) ResizeRecycling(output.top, 0, spare_tops_, max_spare_);
  return output;
}

void OutputBuilder::CloseCursor() {
  if (cursor_.next == nullptr) return;
  const ptrdiff_t filled = cursor_.next - out_.routers[cursor_.index].outputs.data();
  QUIRE_CHECK(cursor_.next <= cursor_.end && filled > 0);
  fills_[cursor_.index].outputs = static_cast<size_t>(filled);
  cursor_ = Cursor();
}

void OutputBuilder::AddTop(Output& output) {
  tops_wanted_ = true;
  QUIRE_CHECK(output.top.size() < output.ids.size());
  ResizeRecycling(output.top, output.top.size() + 1, spare_tops_, max_spare_);
  output.top.back().ids.reserve(kMaxLogprobs);
  output.top.back().logprobs.reserve(kMaxLogprobs);
}

void OutputBuilder::AddToken(const Choice& choice, const SampledToken& sample, int64_t output_count,
                             const TopTokens& top) {
  QUIRE_CHECK(output_count > 0 && sample.token >= 0);
  Output& output = NextOutput(choice);
  output.first_index = static_cast<uint64_t>(output_count - 1);
  if (QUIRE_BUG(first_index_after_preemption) && choice.incarnation > 0) ++output.first_index;
  output.ids.assign(1, sample.token);
  if (choice.logprobs == 0) return;
  logprobs_wanted_ = true;
  output.logprobs.push_back(sample.logprob);
  if (choice.logprobs == 1) return;
  AddTop(output);
  output.top[0].ids.assign(top.ids.begin(), top.ids.end());
  output.top[0].logprobs.assign(top.logprobs.begin(), top.logprobs.end());
}

void OutputBuilder::AddPromptLogprobs(const Request& request, std::span<const ScoredToken> scored,
                                      const StepResult& result) {
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
    if (!with_top) continue;
    const TopTokens top = result.Top(score.top);
    part.top.push_back(
        {{top.ids.begin(), top.ids.end()}, {top.logprobs.begin(), top.logprobs.end()}});
  }
}

void OutputBuilder::AddAnswer(const Choice& choice, const BeamAnswer& answer) {
  QUIRE_CHECK(choice.request != nullptr && !choice.ended);
  const Request& request = *choice.request;
  const size_t first = static_cast<size_t>(choice.OutputCount());
  if (first == answer.outputs.size()) return;
  Output& output = NextOutput(choice);
  output.first_index = first;
  output.ids.assign(answer.outputs.begin() + static_cast<ptrdiff_t>(first), answer.outputs.end());
  const int32_t logprobs = request.submit.sampling.logprobs;
  logprobs_wanted_ = logprobs_wanted_ || logprobs >= 1;
  for (size_t i = first; i < answer.outputs.size(); ++i) {
    if (logprobs >= 1) output.logprobs.push_back(answer.logprobs[i]);
    if (logprobs <= 1) continue;
    const size_t count = std::min(static_cast<size_t>(logprobs - 1), answer.top[i].ids.size());
    const auto end = static_cast<ptrdiff_t>(count);
    tops_wanted_ = true;
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

void OutputBuilder::Take(EngineOutput& into) {
  CloseCursor();
  QUIRE_CHECK(fills_.size() == out_.routers.size());
  for (size_t i = out_.routers.size(); i-- > 0;) {
    RouterOutput& output = out_.routers[i];
    if (fills_[i].news) {
      ResizeRecycling(output.outputs, fills_[i].outputs, spare_outputs_, max_spare_);
      const auto last = last_submits_.find(output.router);
      output.last_admitted_submit = last == last_submits_.end() ? 0 : last->second;
      continue;
    }
    if (spare_words_.size() < kMaxSpareWords) spare_words_.push_back(std::move(output));
    out_.routers.erase(out_.routers.begin() + static_cast<ptrdiff_t>(i));
  }
  std::swap(out_, into);
  StartRound();
}

// A returned list holds an earlier round's outputs: they are overwritten one by one, so that their
// memory stays.
void OutputBuilder::StartRound() {
  for (RouterOutput& output : out_.routers) {
    output.admitted.clear();
    output.prompt_logprobs.clear();
    output.ended.clear();
    output.refused.clear();
    // All lists of top tokens are taken back before any is used again: any output may need one.
    for (Output& told : output.outputs) {
      if (!tops_wanted_) break;
      if (!told.top.empty()) ResizeRecycling(told.top, 0, spare_tops_, max_spare_);
    }
  }
  // After a merge a router may be there more than once, and in any order.
  const auto by_router = [](const RouterOutput& a, const RouterOutput& b) {
    return a.router < b.router;
  };
  if (!std::is_sorted(out_.routers.begin(), out_.routers.end(), by_router)) out_.routers.clear();
  const auto twice = std::adjacent_find(
      out_.routers.begin(), out_.routers.end(),
      [](const RouterOutput& a, const RouterOutput& b) { return a.router == b.router; });
  if (twice != out_.routers.end()) out_.routers.clear();
  fills_.assign(out_.routers.size(), Fill());
  out_.snapshot_parts.clear();
  out_.records.clear();
  out_.drained = false;
}

}  // namespace quire

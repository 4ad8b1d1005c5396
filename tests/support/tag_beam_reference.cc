// Beam search over the tag model in the plainest way: every beam is a whole sequence of its own,
// and its keys are made again for every token.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "common/check.h"
#include "kernels/sampling/sampler.h"
#include "tests/support/tag_keys.h"
#include "tests/support/tag_reference.h"

namespace quire::test {
namespace {

struct Beam {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<TopLogprobs> rows;  // all that was known at each token
  double sum = 0;
  bool by_end = false;
  double score = 0;
};

// What the model offers behind the prompt and these outputs: its best `count` tokens.
TopLogprobs Offers(const TagModel& model, const Submit& submit, uint64_t salt,
                   const std::vector<TokenId>& outputs, int32_t count) {
  TagKeys keys(model.cache, salt);
  for (TokenId token : submit.prompt_ids) keys.Append(token);
  for (TokenId token : outputs) keys.Append(token);
  std::vector<float> logits(static_cast<size_t>(model.vocab_size));
  TagLogits(keys.Seen(), logits);
  kernels::SampleRow row;
  row.temperature = 0.0f;
  row.logprobs = 1 + count;
  kernels::SampleOutput output;
  kernels::sampling::Sampler sampler;
  sampler.Sample(logits, row, output);
  return {{output.top_ids, output.top_ids + output.top_count},
          {output.top_logprobs, output.top_logprobs + output.top_count}};
}

ReferenceAnswer AnswerOf(const Beam& beam, int32_t logprobs) {
  ReferenceAnswer answer;
  answer.tokens = beam.tokens;
  answer.reason = beam.by_end ? EndReason::kStop : EndReason::kLength;
  answer.by_stop_token = beam.by_end;
  answer.stop_token_id = beam.by_end ? beam.tokens.back() : 0;
  for (size_t i = 0; i < beam.tokens.size(); ++i) {
    if (logprobs >= 1) answer.logprob_bits.push_back(std::bit_cast<uint32_t>(beam.logprobs[i]));
    if (logprobs <= 1) continue;
    TopLogprobs top = beam.rows[i];
    top.ids.resize(static_cast<size_t>(logprobs - 1));
    top.logprobs.resize(static_cast<size_t>(logprobs - 1));
    answer.top.push_back(std::move(top));
  }
  return answer;
}

class Search {
 public:
  Search(const TagModel& model, const Submit& submit, uint64_t salt)
      : model_(model), submit_(submit), salt_(salt) {
    const SamplingParams& params = submit.sampling;
    ends_.insert(params.stop_token_ids.begin(), params.stop_token_ids.end());
    if (!params.ignore_eos) ends_.insert(model.eos_token_ids.begin(), model.eos_token_ids.end());
    const size_t room = static_cast<size_t>(model.max_model_len) - submit.prompt_ids.size();
    longest_ = std::min(static_cast<size_t>(params.max_tokens), room);
    width_ = static_cast<size_t>(params.beam_width);
  }

  // The finished ones, best first.
  std::vector<Beam> Run() {
    std::vector<Beam> beams(1);
    for (size_t length = 1; !beams.empty(); ++length) {
      const std::vector<Beam> ranked = Ranked(beams, length);
      beams.clear();
      for (size_t rank = 0; rank < ranked.size(); ++rank) {
        Beam beam = ranked[rank];
        beam.by_end = ends_.contains(beam.tokens.back());
        if (beam.by_end || length == longest_) {
          if (rank < width_) Finish(beam);
        } else if (beams.size() < width_) {
          beams.push_back(beam);
        }
      }
      if (!beams.empty() && Over(beams.front(), length)) break;
    }
    return finished_;
  }

 private:
  double Score(double sum, size_t length) const {
    return sum / std::pow(static_cast<double>(length), double{submit_.sampling.length_penalty});
  }

  // Every beam with every token that it may go on with, best first; ties in the order of beams,
  // then of ids.
  std::vector<Beam> Ranked(const std::vector<Beam>& beams, size_t length) const {
    const SamplingParams& params = submit_.sampling;
    const auto wanted = static_cast<int32_t>(width_ + ends_.size());
    const int32_t count = std::max(std::min(wanted, model_.vocab_size), params.logprobs - 1);
    std::vector<Beam> ranked;
    for (const Beam& beam : beams) {
      const TopLogprobs offers = Offers(model_, submit_, salt_, beam.tokens, count);
      std::vector<std::pair<TokenId, float>> by_id;
      for (size_t i = 0; i < offers.ids.size(); ++i) {
        by_id.emplace_back(offers.ids[i], offers.logprobs[i]);
      }
      std::sort(by_id.begin(), by_id.end());
      for (const auto& [id, logprob] : by_id) {
        const bool early = length <= static_cast<size_t>(params.min_tokens);
        if (!std::isfinite(logprob) || (early && ends_.contains(id))) continue;
        Beam& next = ranked.emplace_back(beam);
        next.tokens.push_back(id);
        next.logprobs.push_back(logprob);
        next.rows.push_back(offers);
        next.sum += double{logprob};
      }
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Beam& a, const Beam& b) { return a.sum > b.sum; });
    return ranked;
  }

  void Finish(Beam beam) {
    beam.score = Score(beam.sum, beam.tokens.size());
    finished_.push_back(std::move(beam));
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Beam& a, const Beam& b) { return a.score > b.score; });
    if (finished_.size() > width_) finished_.pop_back();
  }

  bool Over(const Beam& best, size_t length) const {
    if (finished_.size() < width_) return false;
    const EarlyStopping stopping = submit_.sampling.early_stopping;
    if (stopping == EarlyStopping::kWhenFull) return true;
    const bool hopes = stopping == EarlyStopping::kNever && submit_.sampling.length_penalty > 0;
    return Score(best.sum, hopes ? longest_ : length) <= finished_.back().score;
  }

  const TagModel& model_;
  const Submit& submit_;
  const uint64_t salt_;
  std::set<TokenId> ends_;
  size_t longest_ = 0;
  size_t width_ = 0;
  std::vector<Beam> finished_;
};

}  // namespace

std::vector<ReferenceAnswer> TagBeamAnswers(const TagModel& model, const Submit& submit,
                                            uint64_t salt) {
  QUIRE_CHECK(submit.sampling.beam_width > 0);
  const std::vector<Beam> found = Search(model, submit, salt).Run();
  std::vector<ReferenceAnswer> answers(submit.choices.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    if (i < found.size()) answers[i] = AnswerOf(found[i], submit.sampling.logprobs);
    if (found.size() < answers.size()) answers[i].reason = EndReason::kFailed;
  }
  return answers;
}

}  // namespace quire::test

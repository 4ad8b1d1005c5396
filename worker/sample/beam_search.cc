#include "worker/sample/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace quire {

int32_t BeamCandidates(const BeamSearchOptions& options) {
  return options.width + static_cast<int32_t>(options.end_ids.size());
}

BeamSearch::BeamSearch(BeamSearchOptions options) : options_(std::move(options)) {
  QUIRE_CHECK(options_.width >= 1 && options_.max_outputs >= 1);
  QUIRE_CHECK(std::is_sorted(options_.end_ids.begin(), options_.end_ids.end()));
}

double BeamSearch::Score(double sum, int64_t length) const {
  return sum / std::pow(static_cast<double>(length), double{options_.length_penalty});
}

// All candidates of the beams, best first, without ends that come too early.
std::vector<BeamSearch::Candidate> BeamSearch::Rank(std::span<const BeamRow> rows) const {
  std::vector<Candidate> ranked;
  for (uint32_t beam = 0; beam < rows.size(); ++beam) {
    QUIRE_CHECK(rows[beam].ids.size() == rows[beam].logprobs.size());
    for (size_t i = 0; i < rows[beam].ids.size(); ++i) {
      Candidate candidate{beam, rows[beam].ids[i], rows[beam].logprobs[i], 0, false};
      candidate.sum = beams_[beam].sum + double{candidate.logprob};
      candidate.ends =
          std::binary_search(options_.end_ids.begin(), options_.end_ids.end(), candidate.token);
      if (!std::isfinite(candidate.logprob)) continue;
      if (candidate.ends && length_ < options_.min_outputs) continue;
      ranked.push_back(candidate);
    }
  }
  std::sort(ranked.begin(), ranked.end(), [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  });
  return ranked;
}

std::vector<BeamStep> BeamSearch::Step(std::span<const BeamRow> rows) {
  QUIRE_CHECK(rows.size() == beams_.size() && length_ < options_.max_outputs);
  const std::vector<Candidate> ranked = Rank(rows);
  const int32_t first_row = static_cast<int32_t>(rows_.size());
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  ++length_;
  const bool full_length = length_ == options_.max_outputs;
  const size_t width = static_cast<size_t>(options_.width);
  std::vector<BeamStep> next;
  std::vector<Beam> beams;
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    const Candidate& candidate = ranked[rank];
    if (candidate.ends || full_length) {
      if (rank < width) Finish(candidate, first_row, candidate.ends);
    } else if (beams.size() < width) {
      beams.push_back({AddNode(candidate, first_row), candidate.sum});
      next.push_back({candidate.parent, candidate.token});
    }
  }
  beams_ = std::move(beams);
  if (beams_.empty() || Over(beams_[0].sum)) {
    beams_.clear();
    next.clear();
  }
  return next;
}

int32_t BeamSearch::AddNode(const Candidate& candidate, int32_t first_row) {
  ++tokens_;
  nodes_.push_back({beams_[candidate.parent].node, candidate.token, candidate.logprob,
                    first_row + static_cast<int32_t>(candidate.parent)});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

void BeamSearch::Finish(const Candidate& candidate, int32_t first_row, bool by_end) {
  const Finished done{AddNode(candidate, first_row), Score(candidate.sum, length_), by_end};
  const auto at =
      std::upper_bound(finished_.begin(), finished_.end(), done,
                       [](const Finished& a, const Finished& b) { return a.score > b.score; });
  finished_.insert(at, done);
  if (finished_.size() > static_cast<size_t>(options_.width)) finished_.pop_back();
}

// Whether the running beams are stopped, whose best one has this sum.
bool BeamSearch::Over(double best_sum) const {
  if (finished_.size() < static_cast<size_t>(options_.width)) return false;
  if (options_.early_stopping == EarlyStopping::kWhenFull) return true;
  const bool longest =
      options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  return Score(best_sum, longest ? options_.max_outputs : length_) <= finished_.back().score;
}

BeamAnswer BeamSearch::Answer(size_t index) const {
  QUIRE_CHECK(index < finished_.size());
  BeamAnswer answer;
  answer.score = finished_[index].score;
  answer.by_end = finished_[index].by_end;
  for (int32_t at = finished_[index].node; at != kRoot; at = nodes_[at].parent) {
    const Node& node = nodes_[at];
    answer.outputs.push_back(node.token);
    answer.logprobs.push_back(node.logprob);
    answer.top.push_back({rows_[node.row].ids, rows_[node.row].logprobs});
  }
  std::reverse(answer.outputs.begin(), answer.outputs.end());
  std::reverse(answer.logprobs.begin(), answer.logprobs.end());
  std::reverse(answer.top.begin(), answer.top.end());
  return answer;
}

}  // namespace quire

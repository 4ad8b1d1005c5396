// Beam search over the best tokens of each beam: which beams continue, which answers are finished,
// when it is over. The search follows `transformers`: sums of raw log-probabilities; of the
// candidates of all beams, the ends among the best `width` are finished, and the best `width`
// others continue.
//
// Owner: the engine's request. Pure. Invariants:
// 1. At most `width` beams and at most `width` finished answers, both best first.
// 2. Ties go to the earlier beam, then to the lower token id.
// 3. A search depends only on the rows that it gets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/wire/sampling.h"
#include "common/wire/values.h"

namespace quire {

struct BeamSearchOptions {
  int32_t width = 1;
  float length_penalty = 1.0f;  // a score is sum / length^penalty; above 0 it favours length
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  int64_t min_outputs = 0;  // no end before this many
  int64_t max_outputs = 1;
  std::vector<TokenId> end_ids;  // sorted
};

// How many best tokens a step needs of each beam: as many as may continue, plus all those that end
// it.
int32_t BeamCandidates(const BeamSearchOptions& options);

// A beam's best tokens, best first. With fewer tokens in the vocabulary it may hold fewer.
struct BeamRow {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

struct BeamStep {
  uint32_t parent = 0;  // of the beams so far
  TokenId token = 0;
};

struct BeamAnswer {
  std::vector<TokenId> outputs;
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;  // of each output, all that its row held
  bool by_end = false;           // false: it has max_outputs
  double score = 0;
};

class BeamSearch {
 public:
  explicit BeamSearch(BeamSearchOptions options);

  // Advances every beam by one token; `rows` are in the order of the beams. Returns the beams of
  // the next step, empty when the search is over.
  std::vector<BeamStep> Step(std::span<const BeamRow> rows);

  size_t beam_count() const { return beams_.size(); }
  // Tokens given to beams and answers so far.
  int64_t tokens() const { return tokens_; }
  // Finished answers, best first.
  size_t answer_count() const { return finished_.size(); }
  BeamAnswer Answer(size_t index) const;

 private:
  static constexpr int32_t kRoot = -1;
  // One token of a beam; the tokens before it follow from `parent`. Beams share their common
  // tokens.
  struct Node {
    int32_t parent = kRoot;
    TokenId token = 0;
    float logprob = 0;
    int32_t row = 0;  // in rows_: the other candidates at this position
  };
  struct Beam {
    int32_t node = kRoot;
    double sum = 0;
  };
  struct Finished {
    int32_t node = kRoot;
    double score = 0;
    bool by_end = false;
  };
  struct Candidate {
    uint32_t parent = 0;
    TokenId token = 0;
    float logprob = 0;
    double sum = 0;
    bool ends = false;
  };

  std::vector<Candidate> Rank(std::span<const BeamRow> rows) const;
  int32_t AddNode(const Candidate& candidate, int32_t first_row);
  void Finish(const Candidate& candidate, int32_t first_row, bool by_end);
  bool Over(double best_sum) const;
  double Score(double sum, int64_t length) const;

  const BeamSearchOptions options_;
  std::vector<Beam> beams_{Beam{}};
  std::vector<Finished> finished_;
  std::vector<Node> nodes_;
  std::vector<BeamRow> rows_;
  int64_t length_ = 0;  // outputs of every beam
  int64_t tokens_ = 0;
};

}  // namespace quire

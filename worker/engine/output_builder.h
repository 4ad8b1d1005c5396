// Collects the engine's outputs for each router until the next RunOnce returns them.
//
// Owner: Engine, on its thread. Invariants:
// 1. Nothing is kept for a router whose Attach has ended.
// 2. Once every router and row has had an output, a round allocates nothing: outputs reuse those of
//    the round before last, which come back through Take.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "worker/core/engine_io.h"
#include "worker/core/step_plan.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/request_table.h"
#include "worker/sample/beam_search.h"

namespace quire {

// How a choice ends.
struct ChoiceOutcome {
  EndReason reason = EndReason::kUnspecified;
  std::string message{};
  bool retryable = false;
  FailureCause cause = FailureCause::kUnspecified;  // with kFailed
  bool by_stop_token = false;
  TokenId stop_token_id = 0;
};

class OutputBuilder {
 public:
  // `rows`: the most outputs in a round, without beam searches.
  explicit OutputBuilder(int32_t rows);

  void SubmitSeen(RouterInstance router, uint64_t submit_number);
  void ForgetRouter(RouterInstance router);

  void AddAdmitted(const Request& request, uint32_t cached_tokens, uint64_t event_seq);
  // Adds the choice's output number `output_count`.
  void AddToken(const Choice& choice, const SampledToken& sample, int64_t output_count,
                const TopTokens& top);
  // A fast path for nearly every token: one more for the same router, without logprobs, reusing an
  // output of the round before last. False: the token needs the general path, and nothing has been
  // done.
  bool AddPlainToken(const Choice& choice, TokenId token, int64_t output_count) {
    if (cursor_.next == cursor_.end || choice.router != cursor_.router || logprobs_wanted_ ||
        choice.logprobs > 0 || cursor_.next->ids.size() != 1 ||
        (choice.accepted_prediction | choice.rejected_prediction) != 0) {
      return false;
    }
    Output& output = *cursor_.next++;
    output.key = choice.key;
    output.choice = choice.index;
    output.accepted_prediction_tokens = output.rejected_prediction_tokens = 0;
    output.first_index = static_cast<uint64_t>(output_count - 1);
    output.ids[0] = token;
    return true;
  }
  // `scored`: consecutive positions, out of `result`.
  void AddPromptLogprobs(const Request& request, std::span<const ScoredToken> scored,
                         const StepResult& result);
  // Adds all of an answer that the router has not received.
  void AddAnswer(const Choice& choice, const BeamAnswer& answer);
  // Requires: choice.ended. The usage is reported with the last of a request's choices.
  void AddEnded(const Choice& choice, const ChoiceOutcome& end);
  void AddRefused(RouterInstance router, Refused refused);
  void AddRecord(AttemptRecord record) { out_.records.push_back(std::move(record)); }

  // Everything since the last call, into `into`, whose memory is reused for the next round.
  void Take(EngineOutput& into);

 private:
  // Spare outputs for other routers: as many as there are of these.
  static constexpr size_t kMaxSpareWords = 256;

  // How much of a router's output belongs to this round; the rest is memory for reuse.
  struct Fill {
    bool news = false;
    size_t outputs = 0;
  };

  // The outputs of `router` that are overwritten next. Invariants: null, or between the fill of
  // that router (which is updated when the cursor is closed) and the end of its outputs; unless
  // logprobs_wanted_, these hold no logprobs.
  struct Cursor {
    RouterInstance router;
    size_t index = 0;
    Output* next = nullptr;
    Output* end = nullptr;
  };

  size_t IndexOf(RouterInstance router) {
    const bool same = last_ < out_.routers.size() && out_.routers[last_].router == router;
    return same && fills_[last_].news ? last_ : FindIndex(router);
  }
  size_t FindIndex(RouterInstance router);
  void AddOutput(std::vector<Output>& outputs);
  RouterOutput& For(RouterInstance router) { return out_.routers[IndexOf(router)]; }
  Output& NextOutput(const Choice& choice);
  void CloseCursor();
  void AddTop(Output& output);
  void StartRound();

  EngineOutput out_;         // its routers are sorted
  std::vector<Fill> fills_;  // of out_.routers
  size_t last_ = 0;          // the router of the last output
  const size_t max_spare_;
  std::vector<RouterOutput> spare_words_;
  std::vector<Output> spare_outputs_;
  std::vector<TopLogprobs> spare_tops_;
  Cursor cursor_;
  bool logprobs_wanted_ = false;  // by any choice so far
  bool tops_wanted_ = false;      // the same
  std::map<RouterInstance, uint64_t> last_submits_;
};

}  // namespace quire

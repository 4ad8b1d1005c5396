// Gathers what the engine has to say to each router until the next RunOnce hands it out.
//
// Owner: Engine, on its thread. Invariant: nothing is kept for a router whose Attach has ended.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "worker/core/engine_io.h"
#include "worker/core/step_plan.h"
#include "worker/engine/request_table.h"
#include "worker/sample/beam_search.h"

namespace quire {

// How a choice ends.
struct ChoiceOutcome {
  EndReason reason = EndReason::kUnspecified;
  std::string message{};
  bool retryable = false;
  bool by_stop_token = false;
  TokenId stop_token_id = 0;
};

class OutputBuilder {
 public:
  void SubmitSeen(RouterInstance router, uint64_t submit_number);
  void ForgetRouter(RouterInstance router);

  void AddAdmitted(const Request& request, uint32_t cached_tokens, uint64_t event_seq);
  void AddToken(const Choice& choice, const SampledToken& sample);
  // `scored`: consecutive positions.
  void AddPromptLogprobs(const Request& request, std::span<const ScoredToken> scored);
  // All of an answer that the router has not had.
  void AddAnswer(const Choice& choice, const BeamAnswer& answer);
  // Requires: choice.ended. The usage goes with the last of a request's choices.
  void AddEnded(const Choice& choice, const ChoiceOutcome& end);
  void AddRefused(RouterInstance router, Refused refused);
  void AddRecord(AttemptRecord record) { out_.records.push_back(std::move(record)); }

  // Everything since the last call.
  EngineOutput Take();

 private:
  RouterOutput& For(RouterInstance router);

  EngineOutput out_;
  std::map<RouterInstance, RouterOutput> routers_;  // with news
  std::map<RouterInstance, uint64_t> last_submits_;
};

}  // namespace quire

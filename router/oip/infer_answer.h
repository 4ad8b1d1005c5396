// The answer to one inference request as it grows: the pipeline's events become the output tensors
// of the next response.
//
// Owner: the call that answers; event loop only.
//  1. Each output is in exactly one response, in order.
//  2. The finish reason is in the last response with outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/oip/infer_request.h"

namespace quire::oip {

class InferAnswer {
 public:
  explicit InferAnswer(const InferRequest& request)
      : wanted_(request.wanted), logprobs_asked_(request.generate.sampling.logprobs.value_or(0)) {}

  void Add(const Started& started);
  void Add(const Delta& delta);
  void Add(const ChoiceEnd& end) {
    finish_reason_ = end.finish_reason;
    by_stop_string_ = end.stop_string.has_value();
  }

  bool ended() const { return !finish_reason_.empty(); }
  // Something has been added since the last Take.
  bool pending() const { return pending_; }
  // Memory of what has been added since the last Take.
  size_t held_bytes() const {
    return text_.capacity() + ids_.capacity() * sizeof(TokenId) + logprobs_.capacity();
  }
  // Outputs below this have been added.
  uint64_t next_index() const { return next_index_; }

  // What has been added since the last Take, and after the end the finish reason. Always contains
  // all requested outputs, so that each response has the same ones.
  std::vector<OutputTensor> Take();

  const std::string& finish_reason() const { return finish_reason_; }
  bool by_stop_string() const { return by_stop_string_; }

 private:
  void AddLogprobs(const Delta& delta);

  const WantedOutputs wanted_;
  const int32_t logprobs_asked_;
  uint32_t input_count_ = 0;
  uint64_t next_index_ = 0;
  bool pending_ = false;
  std::string text_;
  std::vector<TokenId> ids_;
  std::string logprobs_;  // a JSON list without its brackets
  double cumulative_logprob_ = 0;
  std::string finish_reason_;
  bool by_stop_string_ = false;
};

}  // namespace quire::oip

#include "router/oip/infer_answer.h"

#include <utility>

#include "common/json/json.h"

namespace quire::oip {
namespace {

// {"17":{"logprob":-0.5,"rank":1,"decoded_token":" a"}}, as vLLM's backend of Triton writes it.
void AppendCandidate(const TokenLogprob& token, bool first, std::string& out) {
  if (!first) out += ',';
  out += '"' + std::to_string(token.id) + "\":{\"logprob\":";
  out += json::Serialize(static_cast<double>(token.logprob));
  if (token.rank > 0) out += ",\"rank\":" + std::to_string(token.rank);
  out += ",\"decoded_token\":";
  json::AppendQuoted(token.token, out);
  out += '}';
}

OutputTensor OneText(std::string_view name, std::string text) {
  return {name, OutputTensor::Strings{std::move(text)}};
}

}  // namespace

void InferAnswer::Add(const Started& started) {
  input_count_ = static_cast<uint32_t>(started.prompt_ids.size());
  text_ += started.prompt_text;
}

void InferAnswer::Add(const Delta& delta) {
  pending_ = true;
  text_ += delta.text;
  ids_.insert(ids_.end(), delta.ids.begin(), delta.ids.end());
  next_index_ = delta.first_index + delta.ids.size();
  for (const TokenLogprob& token : delta.logprobs) cumulative_logprob_ += token.logprob;
  if (wanted_.logprobs) AddLogprobs(delta);
}

void InferAnswer::AddLogprobs(const Delta& delta) {
  for (const TokenLogprob& token : delta.logprobs) {
    logprobs_ += logprobs_.empty() ? "{" : ",{";
    AppendCandidate(token, true, logprobs_);
    int32_t shown = 0;
    for (const TokenLogprob& candidate : token.top) {
      if (shown++ >= logprobs_asked_) break;
      if (candidate.id != token.id) AppendCandidate(candidate, false, logprobs_);
    }
    logprobs_ += '}';
  }
}

std::vector<OutputTensor> InferAnswer::Take() {
  std::vector<OutputTensor> outputs;
  const uint32_t count = static_cast<uint32_t>(ids_.size());
  if (wanted_.text) outputs.push_back(OneText("text_output", std::exchange(text_, {})));
  if (wanted_.ids) outputs.push_back({"output_ids", std::exchange(ids_, {})});
  if (wanted_.finish_reason && ended()) outputs.push_back(OneText("finish_reason", finish_reason_));
  if (wanted_.cumulative_logprob) {
    const float sum = static_cast<float>(cumulative_logprob_);
    outputs.push_back({"cumulative_logprob", OutputTensor::Floats{sum}});
  }
  if (wanted_.logprobs) {
    outputs.push_back(OneText("logprobs", "[" + std::exchange(logprobs_, {}) + "]"));
  }
  if (wanted_.input_count) {
    outputs.push_back({"num_input_tokens", OutputTensor::Counts{input_count_}});
  }
  if (wanted_.output_count) {
    outputs.push_back({"num_output_tokens", OutputTensor::Counts{count}});
  }
  text_.clear();
  ids_.clear();
  logprobs_.clear();
  pending_ = false;
  return outputs;
}

}  // namespace quire::oip

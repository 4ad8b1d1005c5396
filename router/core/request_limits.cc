#include "router/core/request_limits.h"

#include <algorithm>
#include <string>

namespace quire {
namespace {

Counter& Refusals(Metrics& metrics, const char* limit) {
  return metrics.AddCounter({"quire_router_limit_refusals_total",
                             "Requests refused because they asked for more than a limit allows.",
                             {{"limit", limit}}});
}

std::optional<ApiError> CheckTextSize(std::string_view field, size_t bytes,
                                      const RequestLimits& limits) {
  if (bytes <= limits.max_prompt_bytes) return std::nullopt;
  ApiError error = PastLimit(field, "--max-prompt-bytes", limits.max_prompt_bytes,
                             limits.counters ? &limits.counters->prompt_bytes : nullptr);
  error.code = ApiCode::kTooLarge;
  return error;
}

}  // namespace

LimitCounters::LimitCounters(Metrics& m)
    : prompts(Refusals(m, "prompts")),
      messages(Refusals(m, "messages")),
      json_depth(Refusals(m, "json_depth")),
      json_values(Refusals(m, "json_values")),
      prompt_bytes(Refusals(m, "prompt_bytes")),
      choices(Refusals(m, "choices")),
      request_choices(Refusals(m, "request_choices")),
      stop_strings(Refusals(m, "stop_strings")),
      logit_bias(Refusals(m, "logit_bias")),
      tools(Refusals(m, "tools")),
      call_requests(Refusals(m, "call_requests")) {}

ApiError PastLimit(std::string_view field, std::string_view flag, size_t limit, Counter* counter) {
  if (counter != nullptr) counter->Add();
  return {ApiCode::kInvalidArgument,
          std::string(field) + ": is more than is served here, " + std::to_string(limit) + " (" +
              std::string(flag) + ")",
          std::string(field), 0};
}

std::optional<ApiError> CheckChoiceCount(size_t prompts, int32_t n, const RequestLimits& limits) {
  const size_t choices = prompts * static_cast<size_t>(std::max(n, 1));
  if (choices <= limits.max_request_choices) return std::nullopt;
  if (limits.counters != nullptr) limits.counters->request_choices.Add();
  const std::string most = std::to_string(limits.max_request_choices);
  return ApiError{ApiCode::kInvalidArgument,
                  "n: " + std::to_string(prompts) + " prompts with " + std::to_string(n) +
                      " choices each are " + std::to_string(choices) + " choices; at most " + most +
                      " are served in one request (--max-request-choices)",
                  "n", 0};
}

std::optional<ApiError> CheckMessageCount(size_t count, const RequestLimits& limits) {
  if (count <= limits.max_messages) return std::nullopt;
  return PastLimit("messages", "--max-messages", limits.max_messages,
                   limits.counters ? &limits.counters->messages : nullptr);
}

std::optional<ApiError> CheckPromptSize(const Prompt& prompt, const RequestLimits& limits) {
  const auto* text = std::get_if<TextPrompt>(&prompt);
  const auto* chat = std::get_if<ChatPrompt>(&prompt);
  size_t bytes = 0;
  if (text != nullptr) bytes = text->text.size();
  if (chat != nullptr) bytes = chat->messages_json.size() + chat->tools_json.size();
  return CheckTextSize(PromptField(prompt), bytes, limits);
}

std::optional<ApiError> CheckLimits(const GenerateRequest& request, const RequestLimits& limits) {
  LimitCounters* counters = limits.counters;
  const SamplingOptions& sampling = request.sampling;
  if (sampling.n > limits.max_choices) {
    return PastLimit("n", "--max-choices", static_cast<size_t>(limits.max_choices),
                     counters ? &counters->choices : nullptr);
  }
  if (auto problem = CheckChoiceCount(1, sampling.n, limits)) return problem;
  if (sampling.stop.size() > limits.max_stop_strings) {
    return PastLimit("stop", "--max-stop-strings", limits.max_stop_strings,
                     counters ? &counters->stop_strings : nullptr);
  }
  if (sampling.logit_bias.size() > limits.max_logit_bias) {
    return PastLimit("logit_bias", "--max-logit-bias", limits.max_logit_bias,
                     counters ? &counters->logit_bias : nullptr);
  }
  if (auto problem = CheckTextSize("prediction",
                                   request.prediction ? request.prediction->size() : 0, limits)) {
    return problem;
  }
  return CheckPromptSize(request.prompt, limits);
}

}  // namespace quire

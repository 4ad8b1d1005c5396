// The limits of one request, for every protocol: each limit has a flag, a name in the refusal, and
// a counter.
//
// Plain values, fixed at start; the counters may be used on any thread.
#pragma once

#include <optional>
#include <string_view>

#include "common/memory_account.h"
#include "common/metrics/metrics.h"
#include "router/core/api.h"

namespace quire {

struct LimitCounters {
  explicit LimitCounters(Metrics& metrics);

  Counter& prompts;
  Counter& messages;
  Counter& json_depth;
  Counter& json_values;
  Counter& prompt_bytes;
  Counter& choices;
  Counter& request_choices;
  Counter& stop_strings;
  Counter& logit_bias;
  Counter& tools;
  Counter& call_requests;  // running at once in one call
};

struct RequestLimits {
  size_t max_prompts = 1024;            // of one completion request
  size_t max_messages = 16'384;         // of one chat
  size_t max_json_depth = 64;           // of a body, and of JSON within a message
  size_t max_json_values = 1u << 20;    // of a body, with those in its strings that are JSON
  size_t max_prompt_bytes = 16u << 20;  // of one prompt's text, its messages as JSON, a prediction
  int32_t max_choices = 128;            // n
  size_t max_request_choices = 1024;    // of all prompts of one request together
  size_t max_stop_strings = 16;
  size_t max_logit_bias = 300;        // entries
  size_t max_tools = 512;             // of one chat
  LimitCounters* counters = nullptr;  // outlives the limits; nullptr: nothing is counted
  // Counts what the current request holds, while it is read and afterwards; nullptr: nothing is
  // counted.
  MemoryHold* hold = nullptr;
};

// The refusal of a request whose `field` exceeds what is served; the refusal is counted.
ApiError PastLimit(std::string_view field, std::string_view flag, size_t limit, Counter* counter);

// Checks everything except the number of prompts and messages; nullopt: the request is served.
std::optional<ApiError> CheckLimits(const GenerateRequest& request, const RequestLimits& limits);
std::optional<ApiError> CheckPromptSize(const Prompt& prompt, const RequestLimits& limits);
// Checks a request of this many prompts, each with n choices.
std::optional<ApiError> CheckChoiceCount(size_t prompts, int32_t n, const RequestLimits& limits);
std::optional<ApiError> CheckMessageCount(size_t count, const RequestLimits& limits);

}  // namespace quire

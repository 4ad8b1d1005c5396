// The bodies of the OpenAI-shaped API, read into requests of the pipeline.
//
// Any thread; pure. Bodies are hostile: size, depth, counts and numbers are checked, and an error
// names the field in the client's spelling. Known but unserved fields pass at their neutral value
// and are refused by name otherwise; unknown fields are listed and ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api.h"
#include "router/core/request_limits.h"

namespace quire {

enum class ApiKind : uint8_t { kCompletion, kChat };

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  // What the client requested of the prompt's logprobs; the pipeline's requests may need more.
  std::optional<int32_t> prompt_logprobs;
  bool return_tokens_as_ids = false;  // "token_id:N" for the text of logprob tokens
  bool include_reasoning = true;
  bool functions = false;                 // tools came as the older `functions`, and so do calls
  std::vector<GenerateRequest> requests;  // one per prompt, in order; never empty
  std::vector<std::string> unknown_fields;
};

// nullopt: `out` holds the request.
std::optional<ApiError> ParseApiRequest(ApiKind kind, std::string_view body,
                                        const RequestLimits& limits, ApiRequest& out);

struct TokenizeBody {
  std::string model;
  Prompt prompt;
  bool return_token_strings = false;
  std::vector<std::string> unknown_fields;
};
std::optional<ApiError> ParseTokenizeBody(std::string_view body, TokenizeBody& out,
                                          const RequestLimits& limits = {});

struct DetokenizeBody {
  std::string model;
  std::vector<TokenId> ids;
  std::vector<std::string> unknown_fields;
};
std::optional<ApiError> ParseDetokenizeBody(std::string_view body, DetokenizeBody& out,
                                            const RequestLimits& limits = {});

// "2.5", "2.5s", "300ms" or "2m" as milliseconds. nullopt when it is none of these, 0 or over a
// day.
std::optional<uint64_t> ParseTimeoutMs(std::string_view text, double default_unit_ms);

}  // namespace quire

// A request and its answer as the pipeline sees them, for every protocol.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/wire/constraint.h"
#include "common/wire/sampling.h"
#include "common/wire/shared_tokens.h"
#include "router/core/tenant.h"
#include "router/core/tools.h"
#include "router/core/usage.h"

namespace quire {

// Why a request failed, with the field to blame and, for overload, when to come back.
enum class ApiCode : uint8_t {
  kInvalidArgument,   // 400 / INVALID_ARGUMENT
  kUnauthenticated,   // 401 / UNAUTHENTICATED
  kPermissionDenied,  // 403 / PERMISSION_DENIED
  kNotFound,          // 404 / NOT_FOUND
  kConflict,          // 409 / FAILED_PRECONDITION
  kTooLarge,          // 413 / RESOURCE_EXHAUSTED
  kRateLimited,       // 429 / RESOURCE_EXHAUSTED
  kCancelled,         // 499 / CANCELLED
  kInternal,          // 500 / INTERNAL
  kUnimplemented,     // 501 / UNIMPLEMENTED
  kUnavailable,       // 503 / UNAVAILABLE
  kDeadlineExceeded,  // 504 / DEADLINE_EXCEEDED
};

struct ApiError {
  ApiCode code = ApiCode::kInternal;
  std::string message;
  std::string param;            // the offending field, in the client's spelling; may be empty
  uint32_t retry_after_ms = 0;  // with kRateLimited and kUnavailable
  // A code that a program may act on where the status says too little, a literal such as
  // "request_suspect"; empty: the status's own code.
  std::string_view reason = {};
};

// Sampling parameters; an unset one takes the model's generation default.
struct SamplingOptions {
#define QUIRE_OPTIONAL_NUMBER(name, range, feature) \
  std::optional<decltype(SamplingParams::name)> name;
  QUIRE_SAMPLING_NUMBERS(QUIRE_OPTIONAL_NUMBER)
#undef QUIRE_OPTIONAL_NUMBER
#define QUIRE_LIST(name, most, feature) std::vector<TokenId> name;
  QUIRE_SAMPLING_LISTS(QUIRE_LIST)
#undef QUIRE_LIST
  std::optional<uint64_t> seed;
  std::string_view max_tokens_field = "max_tokens";  // what the client called it, a literal
  bool max_tokens_at_most = false;  // more than the context has room for is cut, not refused
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  int32_t n = 1;
  std::optional<int32_t> logprobs;  // number of top candidates, 0 … 20
  std::optional<int32_t> prompt_logprobs;
  std::map<int32_t, float> logit_bias;
  std::vector<std::string> bad_words;
  bool skip_special_tokens = true;
  bool use_beam_search = false;  // n beams; all of them are the answer, best first
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
};

// `field` is what the client's protocol calls it, a literal.
struct TextPrompt {
  std::string text;
  bool add_special_tokens = true;
  std::string_view field = "prompt";
};
struct TokenPrompt {
  std::vector<TokenId> ids;
  std::string_view field = "prompt";
};
// A conversation in OpenAI's shape, as JSON text checked to be a list of objects.
struct ChatPrompt {
  static constexpr std::string_view field = "messages";
  std::string messages_json;
  std::string tools_json;            // empty: none
  std::string template_kwargs_json;  // empty: none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
  std::string without_template = {};  // what a model without one continues; empty: it refuses
};
using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;
inline std::string_view PromptField(const Prompt& prompt) {
  return std::visit([](const auto& one) { return one.field; }, prompt);
}

struct ResumeRequest {
  uint64_t seed = 0;
  int64_t created = 0;
  std::string model_id;
  std::vector<std::vector<TokenId>> outputs;  // one per choice
};

struct GenerateRequest {
  std::string request_id;  // x-request-id or made by the edge
  std::string model;       // a served name; empty: the only one
  Prompt prompt;
  SamplingOptions sampling;
  Constraint constraint;
  std::string_view constraint_field = "response_format";  // what the client called it, a literal
  bool read_answer = false;  // content, thoughts and tool calls of the answer come apart
  ToolUse tool_use;
  Thinking thinking;
  bool chat_defaults = false;  // max_tokens defaults to the rest of the context, not to 16
  bool streaming = false;      // false: the pipeline is the taker, there is no client window
  bool echo = false;           // the prompt's text is a part of the answer
  std::optional<int32_t> truncate_prompt_tokens;
  // What the client expects the answer to be. Drafts are taken from it; no answer depends on it.
  std::optional<std::string> prediction;
  int32_t priority = 0;
  std::shared_ptr<const TenantProfile> tenant;  // from the credential alone; nullptr: none needed
  std::string cache_salt;
  uint64_t timeout_ms = 0;  // 0 is none
  std::string traceparent;
  std::string tracestate;  // the part that is passed on: KeepTracestate
  std::string session;  // names the client's session; policies may keep one session on its worker
  bool want_text = true;
  std::optional<ResumeRequest> resume;
};

struct TokenLogprob {
  TokenId id = 0;
  std::string token;  // its text, U+FFFD for bytes that are no UTF-8
  std::string bytes;  // its bytes
  float logprob = 0;
  std::vector<TokenLogprob> top;
  uint32_t rank = 0;      // rank of a prompt token in the vocabulary, from 1; 0: unknown
  bool unscored = false;  // the first token of a prompt, which has no logprob
  bool hidden = false;    // a special token that the text leaves out
};

struct Started {
  std::string model;     // the served name
  std::string model_id;  // with an adapter, its digest follows: ResumeRequest has it too
  uint64_t seed = 0;
  int64_t created = 0;  // unix seconds
  SharedTokens prompt_ids;
  std::string worker;  // that took the first attempt
  // Empty when a client resumes an answer: the client already has these.
  std::string prompt_text;                    // with echo
  std::vector<TokenLogprob> prompt_logprobs;  // when requested: one per prompt id
};

// Some outputs of one choice. Text may lag behind the ids (incomplete characters, possible stop
// strings and marks). What a token says may take several deltas; its id is in the last of them.
// Within a delta the thoughts come first, then the text, then the calls.
struct Delta {
  uint32_t choice = 0;
  uint64_t first_index = 0;
  std::string text;
  std::string reasoning;                  // with read_answer, like what follows
  std::vector<ToolCallDelta> tool_calls;  // in the order in which the model wrote them
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;
};

inline bool SaysNothing(const Delta& delta) {
  return delta.ids.empty() && delta.text.empty() && delta.reasoning.empty() &&
         delta.tool_calls.empty();
}

struct ChoiceEnd {
  uint32_t choice = 0;
  std::string finish_reason;  // "stop", "length", "tool_calls": it has calls, and none was cut
  std::optional<std::string> stop_string;  // the stop string that matched
  std::optional<TokenId> stop_token;       // the stop token that matched and was requested
};

struct ModelEntry {
  std::string name;      // or an alias
  std::string model_id;  // if there are several, the one with the largest share
  uint32_t max_model_len = 0;
  uint32_t workers_ready = 0;  // sum over all models of the name
  int64_t created = 0;
  std::vector<std::string> model_ids = {};  // with a worker; if there are none, the one seen last
  // Names of --tool-call-parser and --reasoning-parser; empty: none, or its text is not known yet.
  std::string_view tool_call_parser = {}, reasoning_parser = {};
  std::string chat_problem = {};  // why it does not chat; empty: it does
  std::string_view state = {};    // under `quire serve`: "absent", "loading" …; else empty
  std::string parent = {}, adapter = {};  // of an adapter: a name of its model; its digest
};

}  // namespace quire

// The JSON of answers and of stream chunks, appended to strings without building a document first.
//
// Owner: one generate call. Shapes are OpenAI's, with vLLM's additions (token_ids, stop_reason).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api.h"
#include "router/http/api_request.h"
#include "router/http/chat_parts.h"

namespace quire {

// What an answer contains about one prompt.
struct AnswerPrompt {
  SharedTokens ids;
  std::vector<TokenLogprob> logprobs;  // when asked for
};

// One choice of an answer that is not streamed, as it grows.
struct AnswerChoice {
  uint32_t index = 0;
  std::string text, reasoning;
  std::vector<WholeCall> calls;
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;
  std::optional<ChoiceEnd> end;
};

struct AnswerHead {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;                          // "cmpl-…", "chatcmpl-…"
  std::optional<int32_t> logprobs;         // candidates shown beside each token
  std::optional<int32_t> prompt_logprobs;  // the same for the prompt's tokens
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool include_usage = false;
  ChatStyle style;
};

// What one chunk contains of one choice. Pointers are borrowed for the call; absent parts are left
// out.
struct ChunkParts {
  uint32_t index = 0;
  bool role = false;  // chat: the first chunk of a choice
  const Delta* delta = nullptr;
  const ToolCallDelta* call = nullptr;  // a piece of the delta's calls, in place of its words
  bool outputs = true;                  // with the delta's token ids and logprobs
  const ChoiceEnd* end = nullptr;
  const SharedTokens* prompt_ids = nullptr;
  const std::vector<TokenLogprob>* prompt_logprobs = nullptr;
  const Usage* usage = nullptr;  // running usage
};

class AnswerWriter {
 public:
  explicit AnswerWriter(AnswerHead head) : head_(std::move(head)) {}

  // Fixes id, created and model, which are the same in all chunks.
  void Begin(const Started& started);
  const AnswerHead& head() const { return head_; }

  // One SSE event, "data: {…}\n\n"; of a delta with calls one for its words and one for each piece
  // of a call.
  void AppendChunks(const ChunkParts& parts, std::string& out);
  void AppendUsageChunk(const Usage& usage, std::string& out);
  // `resumable`: another router may be able to resume the answer, and the chunk includes what that
  // needs.
  void AppendErrorEvent(const ApiError& error, bool resumable, std::string& out) const;
  static void AppendDone(std::string& out);

  // The whole answer. `prompts` in order; choices come in order of their index.
  std::string WholeAnswer(const std::vector<AnswerChoice>& choices, const Usage& usage,
                          const std::vector<AnswerPrompt>& prompts,
                          uint32_t choices_per_prompt) const;

 private:
  void AppendChunk(const ChunkParts& parts, std::string& out);
  void AppendWholeChoice(const AnswerChoice& choice, const AnswerPrompt& prompt,
                         std::string& out) const;
  void AppendPromptLogprobs(const std::vector<TokenLogprob>& logprobs, std::string& out) const;
  void AppendChatParts(const ChunkParts& parts, std::string& out);
  void AppendCompletionParts(const ChunkParts& parts, std::string& out);
  void AppendLogprobs(const std::vector<TokenLogprob>& logprobs, uint32_t index, std::string& out);
  void AppendHead(std::string_view object, std::string& out) const;

  AnswerHead head_;
  int64_t created_ = 0;
  std::string model_;
  uint64_t seed_ = 0;
  std::string model_id_;
  std::string chunk_prefix_;  // up to and including "choices":[
  bool first_chunk_ = true;
  std::vector<uint64_t> text_offsets_;  // per choice, in characters, for completions' logprobs
};

}  // namespace quire

#include "router/pipeline/held_bytes.h"

#include <algorithm>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr size_t kCopies = 4;         // in the request, its parameters, its attempt and its frame
constexpr size_t kStopBytesEach = 5;  // a byte of a stop string and where to go back to from there
constexpr size_t kNodeBytes = 80;     // of a map or a set, or a string's own, with the allocator's

size_t BytesOf(const std::vector<std::string>& strings, size_t per_byte) {
  size_t bytes = 0;
  for (const std::string& text : strings) bytes += kNodeBytes + per_byte * text.size();
  return bytes;
}

size_t BytesOf(const SamplingOptions& sampling) {
  // Bad words become ids twice, at most one for a byte.
  return BytesOf(sampling.stop, 1 + kStopBytesEach) +
         BytesOf(sampling.bad_words, 1 + 2 * kCopies * sizeof(TokenId)) +
         (kNodeBytes + kCopies * sizeof(TokenId)) * sampling.stop_token_ids.size() +
         (kNodeBytes + kCopies * 2 * sizeof(TokenId)) * sampling.logit_bias.size() +
         kCopies * sizeof(TokenId) * sampling.allowed_token_ids.size();
}

}  // namespace

size_t PromptBytes(const Prompt& prompt) {
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) return text->text.size();
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) return ids->ids.size() * sizeof(TokenId);
  const ChatPrompt& chat = std::get<ChatPrompt>(prompt);
  return chat.messages_json.size() + chat.tools_json.size() + chat.template_kwargs_json.size() +
         chat.without_template.size();
}

size_t HeldBytes(const GenerateRequest& request) {
  size_t bytes = kBytesPerRequest + BytesOf(request.sampling);
  const size_t reader = request.read_answer ? kBytesPerReader : 0;
  bytes += (kBytesPerChoice + reader) * static_cast<size_t>(std::max(request.sampling.n, 1));
  bytes += request.request_id.size() + request.model.size() + request.cache_salt.size() +
           request.session.size() + request.traceparent.size() + request.tracestate.size();
  bytes +=
      kCopies * (request.constraint.source.size() + request.constraint.whitespace_pattern.size());
  if (request.prediction) bytes += request.prediction->size();
  if (request.thinking.budget) bytes += kBytesPerThoughtBudget;
  const auto* chat = std::get_if<ChatPrompt>(&request.prompt);
  if (request.read_answer && chat != nullptr) bytes += kBytesPerToolByte * chat->tools_json.size();
  if (const auto* prompt = std::get_if<TokenPrompt>(&request.prompt)) {
    bytes += kBytesPerPromptToken * prompt->ids.size();
  }
  if (!request.resume) return bytes;
  for (const std::vector<TokenId>& outputs : request.resume->outputs) {
    bytes += kCopies * sizeof(TokenId) * outputs.size();
  }
  return bytes;
}

}  // namespace quire

#include "router/http/answer_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/json/json.h"
#include "router/http/errors.h"

namespace quire {
namespace {

void AppendNumber(uint64_t value, std::string& out) {
  char buffer[24];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, result.ptr);
}

void AppendSigned(int64_t value, std::string& out) {
  char buffer[24];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, result.ptr);
}

// JSON has no infinities; clients know −9999 for "impossible" from vLLM.
void AppendLogprob(float value, std::string& out) {
  if (!std::isfinite(value)) value = -9999.0f;
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  const std::string_view text(buffer, result.ptr - buffer);
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendIds(std::span<const TokenId> ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    AppendSigned(ids[i], out);
  }
  out += ']';
}

void AppendUsage(const Usage& usage, std::string& out) {
  out += "{\"prompt_tokens\":";
  AppendNumber(usage.prompt_tokens, out);
  out += ",\"completion_tokens\":";
  AppendNumber(usage.completion_tokens, out);
  out += ",\"total_tokens\":";
  AppendNumber(uint64_t{usage.prompt_tokens} + usage.completion_tokens, out);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  AppendNumber(usage.cached_tokens, out);
  out += '}';
  if (usage.reasoning_tokens > 0 || usage.has_prediction) {
    out += ",\"completion_tokens_details\":{\"reasoning_tokens\":";
    AppendNumber(usage.reasoning_tokens, out);
    if (usage.has_prediction) {
      out += ",\"accepted_prediction_tokens\":";
      AppendNumber(usage.accepted_prediction_tokens, out);
      out += ",\"rejected_prediction_tokens\":";
      AppendNumber(usage.rejected_prediction_tokens, out);
    }
    out += '}';
  }
  out += '}';
}

void AppendFinish(const ChoiceEnd* end, const ChatStyle& style, std::string& out) {
  out += ",\"finish_reason\":";
  if (!end) {
    out += "null";
    return;
  }
  json::AppendQuoted(FinishReasonOf(*end, style), out);
  out += ",\"stop_reason\":";
  if (end->stop_string) {
    json::AppendQuoted(*end->stop_string, out);
  } else if (end->stop_token) {
    AppendSigned(*end->stop_token, out);
  } else {
    out += "null";
  }
}

void AppendTokenText(const TokenLogprob& token, bool as_id, std::string& out) {
  if (as_id) {
    json::AppendQuoted("token_id:" + std::to_string(token.id), out);
  } else {
    json::AppendQuoted(token.token, out);
  }
}

uint64_t CountCharacters(std::string_view text) {
  uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

void AppendChatToken(const TokenLogprob& token, bool as_id, std::string& out) {
  out += "{\"token\":";
  AppendTokenText(token, as_id, out);
  out += ",\"logprob\":";
  AppendLogprob(token.logprob, out);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    AppendNumber(static_cast<unsigned char>(token.bytes[i]), out);
  }
  out += ']';
}

void AppendChatLogprobs(const std::vector<TokenLogprob>& logprobs, bool as_id, std::string& out) {
  out += "{\"content\":[";
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out += ',';
    AppendChatToken(logprobs[i], as_id, out);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < logprobs[i].top.size(); ++k) {
      if (k > 0) out += ',';
      AppendChatToken(logprobs[i].top[k], as_id, out);
      out += '}';
    }
    out += "]}";
  }
  out += "]}";
}

// The candidates as one object. The token itself is always among them, as in OpenAI's answers; of
// several with the same text the likeliest is kept.
void AppendTopOf(const TokenLogprob& token, bool as_id, std::string& out) {
  if (token.unscored) {
    out += "null";
    return;
  }
  out += '{';
  std::vector<const TokenLogprob*> written;
  const auto append = [&](const TokenLogprob& entry) {
    for (const TokenLogprob* other : written) {
      if (as_id ? other->id == entry.id : other->token == entry.token) return;
    }
    if (!written.empty()) out += ',';
    written.push_back(&entry);
    AppendTokenText(entry, as_id, out);
    out += ':';
    AppendLogprob(entry.logprob, out);
  };
  for (const TokenLogprob& entry : token.top) append(entry);
  append(token);
  out += '}';
}

// `offset` is the number of characters of the choice before these tokens, and is advanced past
// them.
void AppendCompletionLogprobs(const std::vector<TokenLogprob>& logprobs, bool as_id,
                              uint64_t& offset, std::string& out) {
  std::string tokens, values, tops, offsets;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const TokenLogprob& token = logprobs[i];
    const char* comma = i > 0 ? "," : "";
    tokens += comma;
    AppendTokenText(token, as_id, tokens);
    values += comma;
    if (token.unscored) {
      values += "null";
    } else {
      AppendLogprob(token.logprob, values);
    }
    offsets += comma;
    AppendNumber(offset, offsets);
    if (!token.hidden) offset += CountCharacters(token.token);
    tops += comma;
    AppendTopOf(token, as_id, tops);
  }
  out += "{\"tokens\":[" + tokens + "],\"token_logprobs\":[" + values + "],\"top_logprobs\":[" +
         tops + "],\"text_offset\":[" + offsets + "]}";
}

// vLLM's shape: by id, with the rank among all tokens.
void AppendRanked(const TokenLogprob& entry, uint32_t rank, bool first, std::string& out) {
  out += first ? "\"" : ",\"";
  AppendSigned(entry.id, out);
  out += "\":{\"logprob\":";
  AppendLogprob(entry.logprob, out);
  out += ",\"rank\":";
  AppendNumber(rank, out);
  out += ",\"decoded_token\":";
  json::AppendQuoted(entry.token, out);
  out += '}';
}

}  // namespace

void AnswerWriter::Begin(const Started& started) {
  created_ = started.created;
  model_ = started.model;
  seed_ = started.seed;
  model_id_ = started.model_id;
  chunk_prefix_ = "data: ";
  AppendHead(head_.kind == ApiKind::kChat ? "chat.completion.chunk" : "text_completion",
             chunk_prefix_);
}

void AnswerWriter::AppendHead(std::string_view object, std::string& out) const {
  out += "{\"id\":";
  json::AppendQuoted(head_.id, out);
  out += ",\"object\":\"";
  out += object;
  out += "\",\"created\":";
  AppendSigned(created_, out);
  out += ",\"model\":";
  json::AppendQuoted(model_, out);
  out += ",\"choices\":[";
}

void AnswerWriter::AppendLogprobs(const std::vector<TokenLogprob>& logprobs, uint32_t index,
                                  std::string& out) {
  out += ",\"logprobs\":";
  if (!head_.logprobs || logprobs.empty()) {
    out += "null";
  } else if (head_.kind == ApiKind::kChat) {
    AppendChatLogprobs(logprobs, head_.tokens_as_ids, out);
  } else {
    if (text_offsets_.size() <= index) text_offsets_.resize(index + 1, 0);
    AppendCompletionLogprobs(logprobs, head_.tokens_as_ids, text_offsets_[index], out);
  }
}

void AnswerWriter::AppendPromptLogprobs(const std::vector<TokenLogprob>& logprobs,
                                        std::string& out) const {
  const size_t shown = static_cast<size_t>(head_.prompt_logprobs.value_or(0));
  out += ",\"prompt_logprobs\":[";
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out += ',';
    const TokenLogprob& token = logprobs[i];
    if (token.unscored) {
      out += "null";
      continue;
    }
    out += '{';
    AppendRanked(token, token.rank, true, out);
    for (size_t k = 0; k < std::min(shown, token.top.size()); ++k) {
      if (token.top[k].id == token.id) continue;
      AppendRanked(token.top[k], static_cast<uint32_t>(k + 1), false, out);
    }
    out += '}';
  }
  out += ']';
}

void AnswerWriter::AppendChatParts(const ChunkParts& parts, std::string& out) {
  out += ",\"delta\":{";
  if (parts.role) out += "\"role\":\"assistant\",\"content\":\"\"";
  if (!parts.role && parts.call) {
    AppendCall(*parts.call, head_.style, out);
  } else if (!parts.role && parts.delta) {
    AppendDelta(*parts.delta, head_.style, out);
  }
  out += '}';
}

void AnswerWriter::AppendCompletionParts(const ChunkParts& parts, std::string& out) {
  out += ",\"text\":";
  json::AppendQuoted(parts.delta ? std::string_view(parts.delta->text) : std::string_view(), out);
}

void AnswerWriter::AppendChunks(const ChunkParts& parts, std::string& out) {
  if (parts.delta == nullptr || parts.delta->tool_calls.empty()) return AppendChunk(parts, out);
  ChunkParts piece = parts;
  piece.outputs = false;
  if (SaysWords(*parts.delta, head_.style)) AppendChunk(piece, out);
  for (const ToolCallDelta& call : parts.delta->tool_calls) {
    piece.call = &call;
    piece.outputs = &call == &parts.delta->tool_calls.back();
    AppendChunk(piece, out);
  }
}

void AnswerWriter::AppendChunk(const ChunkParts& parts, std::string& out) {
  static const std::vector<TokenLogprob> kNoLogprobs;
  out += chunk_prefix_;
  out += "{\"index\":";
  AppendNumber(parts.index, out);
  const bool chat = head_.kind == ApiKind::kChat;
  if (chat) {
    AppendChatParts(parts, out);
  } else {
    AppendCompletionParts(parts, out);
  }
  const bool outputs = parts.delta && parts.outputs;
  AppendLogprobs(outputs ? parts.delta->logprobs : kNoLogprobs, parts.index, out);
  AppendFinish(parts.end, head_.style, out);
  if (!chat && parts.prompt_logprobs) AppendPromptLogprobs(*parts.prompt_logprobs, out);
  if (head_.return_token_ids) {
    if (!chat && parts.prompt_ids) {
      out += ",\"prompt_token_ids\":";
      AppendIds(*parts.prompt_ids, out);
    }
    if (outputs) {
      out += ",\"token_ids\":";
      AppendIds(parts.delta->ids, out);
    }
  }
  out += "}]";
  if (chat && parts.prompt_logprobs) AppendPromptLogprobs(*parts.prompt_logprobs, out);
  if (head_.return_token_ids && chat && parts.prompt_ids) {
    out += ",\"prompt_token_ids\":";
    AppendIds(*parts.prompt_ids, out);
  }
  if (head_.return_token_ids && first_chunk_) {
    // With these and the token ids a client can have its answer resumed by another router.
    out += ",\"seed\":";
    AppendNumber(seed_, out);
    out += ",\"model_id\":";
    json::AppendQuoted(model_id_, out);
  }
  first_chunk_ = false;
  if (parts.usage) {
    out += ",\"usage\":";
    AppendUsage(*parts.usage, out);
  } else if (head_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void AnswerWriter::AppendUsageChunk(const Usage& usage, std::string& out) {
  out += chunk_prefix_;
  out += "],\"usage\":";
  AppendUsage(usage, out);
  out += "}\n\n";
}

void AnswerWriter::AppendErrorEvent(const ApiError& error, bool resumable, std::string& out) const {
  out += "data: ";
  out += ErrorJson(error);
  if (resumable) {
    out.pop_back();  // the end of the object
    out += ",\"resume\":{\"seed\":";
    AppendNumber(seed_, out);
    out += ",\"created\":";
    AppendSigned(created_, out);
    out += ",\"model_id\":";
    json::AppendQuoted(model_id_, out);
    out += "}}";
  }
  out += "\n\n";
}

void AnswerWriter::AppendDone(std::string& out) { out += "data: [DONE]\n\n"; }

void AnswerWriter::AppendWholeChoice(const AnswerChoice& choice, const AnswerPrompt& prompt,
                                     std::string& out) const {
  const bool chat = head_.kind == ApiKind::kChat;
  out += "{\"index\":";
  AppendNumber(choice.index, out);
  out += chat ? ",\"message\":" : ",\"text\":";
  if (chat) {
    AppendMessage({choice.text, choice.reasoning, choice.calls}, head_.style, out);
  } else {
    json::AppendQuoted(choice.text, out);
  }
  out += ",\"logprobs\":";
  if (!head_.logprobs) {
    out += "null";
  } else if (chat) {
    AppendChatLogprobs(choice.logprobs, head_.tokens_as_ids, out);
  } else {
    uint64_t offset = 0;
    AppendCompletionLogprobs(choice.logprobs, head_.tokens_as_ids, offset, out);
  }
  AppendFinish(choice.end ? &*choice.end : nullptr, head_.style, out);
  if (!chat && head_.prompt_logprobs) AppendPromptLogprobs(prompt.logprobs, out);
  if (head_.return_token_ids) {
    if (!chat) {
      out += ",\"prompt_token_ids\":";
      AppendIds(prompt.ids, out);
    }
    out += ",\"token_ids\":";
    AppendIds(choice.ids, out);
  }
  out += '}';
}

std::string AnswerWriter::WholeAnswer(const std::vector<AnswerChoice>& choices, const Usage& usage,
                                      const std::vector<AnswerPrompt>& prompts,
                                      uint32_t choices_per_prompt) const {
  const bool chat = head_.kind == ApiKind::kChat;
  std::string out;
  AppendHead(chat ? "chat.completion" : "text_completion", out);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    AppendWholeChoice(choices[i], prompts[choices[i].index / choices_per_prompt], out);
  }
  out += "],\"usage\":";
  AppendUsage(usage, out);
  if (chat && head_.prompt_logprobs) AppendPromptLogprobs(prompts[0].logprobs, out);
  if (head_.return_token_ids) {
    if (chat) {
      out += ",\"prompt_token_ids\":";
      AppendIds(prompts[0].ids, out);
    }
    out += ",\"seed\":";
    AppendNumber(seed_, out);
    out += ",\"model_id\":";
    json::AppendQuoted(model_id_, out);
  }
  out += '}';
  return out;
}

}  // namespace quire

// A prompt in any of its forms becomes token ids.
//
// Pure functions of their arguments, called off the event loop: templates and long texts take a
// while.
//  1. Special tokens are added to a text as its request says (completions add them), and never to a
//     rendered chat a second time.
//  2. The content of a chat's messages never becomes a special token; a text prompt may contain
//     special tokens.
//  3. A prompt has at least one token, and every id is in the vocabulary.
//  4. Work begins when there is memory for the most that it may need; otherwise the prompt is
//     refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/memory_account.h"
#include "router/core/limits.h"
#include "router/core/model_text.h"
#include "router/core/result.h"

namespace quire {

struct PromptOptions {
  uint32_t vocab_size = 0;
  uint32_t max_model_len = 0;
  int64_t now_unix_seconds = 0;  // the time that a template's clock shows
  // Keeps the last tokens, this many; −1 keeps as many as fit in the context beside the answer.
  std::optional<int32_t> truncate_prompt_tokens;
  uint32_t answer_tokens = 1;  // the number that the client requested
  RouterLimits limits;
  // For a prompt that must fit the context of this model: a text that cannot fit is not tokenised.
  std::string must_fit = {};
  const std::atomic<bool>* cancelled = nullptr;  // see ModelText
  // Grows by what templates and tokenizers may need before they start, and shrinks when they are
  // done; nullptr: nothing is charged.
  MemoryHold* hold = nullptr;
  // Where a rendered chat may end inside one of these thoughts, and whether it does; both or none.
  const dialect::Thoughts* thoughts = nullptr;
  bool* in_thought = nullptr;
};

Result<std::vector<TokenId>> BuildPrompt(const ModelText& text, const Prompt& prompt,
                                         const PromptOptions& options);

// The ids of what a client expects its answer to be: as text, in which nothing is a special token.
// At most as many as the context has room for behind a prompt of so many tokens; the rest is cut.
Result<std::vector<TokenId>> BuildPrediction(const ModelText& text, std::string_view prediction,
                                             size_t prompt_tokens, const PromptOptions& options);

// The token sequences that keep these words from being written: each word as it stands and after a
// space, as vLLM does.
Result<std::vector<std::vector<TokenId>>> BuildBadWords(const ModelText& text,
                                                        const std::vector<std::string>& words);

}  // namespace quire

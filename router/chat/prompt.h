// A prompt in any of its forms becomes token ids.
//
// Pure functions of their arguments, called off the event loop: templates and long texts take their
// time.
//  1. Special tokens are added to a text as its request says (completions do), and never to a
//     rendered chat a second time.
//  2. What a chat's messages say never becomes a special token; a text prompt may spell them.
//  3. A prompt has at least one token, and every id lies in the vocabulary.
//  4. Work begins when there is memory for the most that it may take: else the prompt is refused.
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
  int64_t now_unix_seconds = 0;  // what a template's clock shows
  // Keeps the last so many tokens; −1 is as many as the context holds beside the answer.
  std::optional<int32_t> truncate_prompt_tokens;
  uint32_t answer_tokens = 1;  // that the client asked for
  RouterLimits limits;
  // Of a prompt that must fit the context of this model: a text that cannot is not tokenised.
  std::string must_fit = {};
  const std::atomic<bool>* cancelled = nullptr;  // see ModelText
  // Grows by what templates and tokenizers may take, before they work, until they have; nullptr:
  // nothing is charged.
  MemoryHold* hold = nullptr;
};

Result<std::vector<TokenId>> BuildPrompt(const ModelText& text, const Prompt& prompt,
                                         const PromptOptions& options);

// The token sequences that keep these words from being written: each word as it stands and after a
// space, as vLLM does.
Result<std::vector<std::vector<TokenId>>> BuildBadWords(const ModelText& text,
                                                        const std::vector<std::string>& words);

}  // namespace quire

// A prompt's way through the background: template, tokens, bad words, the text to echo, the tokens
// of a prediction, and how its answer is read.
//
// Called on the router's executor; the work reads only immutable values and copies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "router/core/limits.h"
#include "router/core/result.h"
#include "router/pipeline/answer_plan.h"
#include "router/pipeline/request.h"

namespace quire {

struct PromptTokens {
  SharedTokens ids;
  SharedTokens prediction_ids;
  std::vector<std::vector<TokenId>> bad_words;
  std::string echo_text;  // when requested
  AnswerPlan plan;
};

// Takes the prompt and the prediction out of the request. Nothing is done for a request that is
// gone by then. `done` runs on the executor later, or within this call where the prompt is already
// token ids. False: the background's queue is full, and `done` never runs.
bool TokenizePrompt(LiveRequest& request, const RouterLimits& limits, Background& background,
                    std::function<void(Result<PromptTokens>)> done);

}  // namespace quire

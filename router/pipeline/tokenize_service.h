// Tokens of a text and text of tokens, for those who ask for nothing else.
//
// Owner: the pipeline, on the router's executor; the work is done in the background.
//  1. At most max_tokenize_requests are under way.
//  2. `done` is called once, never inside the call that asks, and not after this object is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "router/core/limits.h"
#include "router/core/result.h"
#include "router/pipeline/pipeline.h"
#include "router/pipeline/request.h"

namespace quire {

class TokenizeService {
 public:
  // `executor` and `background` outlive this object.
  TokenizeService(const RouterLimits& limits, Executor& executor, Background& background);

  using TokenizeDone = std::function<void(absl::StatusOr<TokenizeResult>)>;
  using DetokenizeDone = std::function<void(absl::StatusOr<std::string>)>;
  void Tokenize(Result<ServedModel> model, Prompt prompt, TokenizeDone done);
  void Detokenize(Result<ServedModel> model, std::vector<TokenId> ids, DetokenizeDone done);

 private:
  template <class Value>
  void Run(std::function<absl::StatusOr<Value>()> work,
           std::function<void(absl::StatusOr<Value>)> done);

  const RouterLimits limits_;
  Executor& executor_;
  Background& background_;
  std::shared_ptr<size_t> live_;  // watched by work in the background
};

}  // namespace quire

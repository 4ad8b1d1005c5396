#include "router/pipeline/tokenize_service.h"

#include <utility>

#include "router/chat/prompt.h"
#include "router/core/utf8.h"

namespace quire {

TokenizeService::TokenizeService(const RouterLimits& limits, Executor& executor,
                                 Background& background)
    : limits_(limits),
      executor_(executor),
      background_(background),
      live_(std::make_shared<size_t>(0)) {}

template <class Value>
void TokenizeService::Run(std::function<absl::StatusOr<Value>()> work,
                          std::function<void(absl::StatusOr<Value>)> done) {
  auto value = std::make_shared<absl::StatusOr<Value>>(
      absl::UnavailableError("too many texts wait to be tokenised"));
  const auto finish = [value, done = std::move(done), live = std::weak_ptr(live_)] {
    const auto count = live.lock();
    if (count == nullptr) return;
    --*count;
    done(std::move(*value));
  };
  const bool room = *live_ < limits_.max_tokenize_requests;
  ++*live_;
  const bool queued =
      room && background_.Run([value, work = std::move(work)] { *value = work(); }, finish);
  if (!queued) executor_.Post(finish);
}

void TokenizeService::Tokenize(Result<ServedModel> model, Prompt prompt, TokenizeDone done) {
  PromptOptions options;
  options.limits = limits_;
  options.now_unix_seconds = executor_.clock().UnixSeconds();
  Run<TokenizeResult>(
      [model = std::move(model), prompt = std::move(prompt),
       options]() mutable -> absl::StatusOr<TokenizeResult> {
        if (!model.ok()) return StatusFromError(model.error());
        const ServedModel& served = model.value();
        options.vocab_size = served.facts.vocab_size;
        options.max_model_len = served.facts.max_model_len;
        Result<std::vector<TokenId>> ids = BuildPrompt(*served.text, prompt, options);
        if (!ids.ok()) return StatusFromError(ids.error());
        TokenizeResult result;
        result.ids = std::move(ids.value());
        result.max_model_len = served.facts.max_model_len;
        for (const TokenId id : result.ids) {
          result.pieces.push_back(ValidUtf8(served.text->TokenBytes(id)));
        }
        return result;
      },
      std::move(done));
}

void TokenizeService::Detokenize(Result<ServedModel> model, std::vector<TokenId> ids,
                                 DetokenizeDone done) {
  Run<std::string>(
      [model = std::move(model), ids = std::move(ids),
       max_ids = limits_.max_prompt_bytes / sizeof(TokenId)]() -> absl::StatusOr<std::string> {
        if (!model.ok()) return StatusFromError(model.error());
        if (ids.size() > max_ids) {
          return InvalidArgument("tokens: at most " + std::to_string(max_ids) + " are served");
        }
        for (const TokenId id : ids) {
          if (id >= 0 && static_cast<uint32_t>(id) < model.value().facts.vocab_size) continue;
          return InvalidArgument("tokens: token id " + std::to_string(id) +
                                 " is outside the vocabulary");
        }
        return model.value().text->Decode(ids, /*skip_special_tokens=*/false);
      },
      std::move(done));
}

}  // namespace quire

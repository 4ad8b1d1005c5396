// Tokens and texts of models that may not be loaded.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/loading/loading_pipeline.h"

namespace quire {

Result<std::shared_ptr<const ModelText>> LoadingPipeline::TextOf(const std::string& name) {
  if (std::optional<ApiError> error = WakeForText(name)) return *std::move(error);
  return inner_.TextOf(name);
}

void LoadingPipeline::Tokenize(TokenizeAsk ask, TokenizeDone done) {
  if (std::optional<ApiError> error = WakeForText(ask.by.model)) {
    return runtime_.executor.Post(
        [done = std::move(done), error = *std::move(error)] { done(error); });
  }
  inner_.Tokenize(std::move(ask), std::move(done));
}

void LoadingPipeline::Detokenize(TextAsk by, std::vector<TokenId> ids, DetokenizeDone done) {
  if (std::optional<ApiError> error = WakeForText(by.model)) {
    return runtime_.executor.Post(
        [done = std::move(done), error = *std::move(error)] { done(error); });
  }
  inner_.Detokenize(std::move(by), std::move(ids), std::move(done));
}

// A text needs no worker once this router has seen the model; until then its client comes again.
std::optional<ApiError> LoadingPipeline::WakeForText(const std::string& name) {
  const std::string model = RequestedName(name);
  if (model.empty()) return MayBeBehind(name) ? std::nullopt : std::optional(NotHere(name));
  const std::vector<ModelEntry> known = inner_.Models();
  const bool seen = std::any_of(known.begin(), known.end(),
                                [&](const ModelEntry& entry) { return entry.name == model; });
  const serve::ModelNews& news = shelf_.Find(model)->news;
  if (seen || news.kept) return std::nullopt;
  shelf_.Want(model, Now());
  LookSoon();
  return ApiError{ApiCode::kUnavailable, "model " + model + " is being loaded; come again", "",
                  RetryAfterMs(news)};
}

}  // namespace quire

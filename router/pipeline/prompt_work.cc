#include "router/pipeline/prompt_work.h"

#include <atomic>
#include <memory>
#include <utility>

#include "router/chat/prompt.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

// The data of the background thread; shared with it, read by `done` when it has finished.
struct PromptWork {
  std::shared_ptr<const std::atomic<bool>> cancelled;
  bool echo = false;
  bool skip_special_tokens = true;
  std::shared_ptr<const ModelText> text;
  Prompt prompt;
  std::shared_ptr<PromptHold> hold;
  std::vector<std::string> bad_words;
  PromptOptions options;
  Result<PromptTokens> tokens = PromptTokens();
};

// Token ids are checked in less time than another thread needs to wake up.
constexpr size_t kMaxIdsOnTheLoop = 8192;

bool IsQuick(const PromptWork& work) {
  const auto* prompt = std::get_if<TokenPrompt>(&work.prompt);
  return prompt != nullptr && prompt->ids.size() <= kMaxIdsOnTheLoop && !work.echo &&
         work.bad_words.empty();
}

Result<PromptTokens> Work(const PromptWork& work) {
  if (*work.cancelled) return ApiError{ApiCode::kCancelled, "the client has left", "", 0};
  Result<std::vector<TokenId>> ids = BuildPrompt(*work.text, work.prompt, work.options);
  if (!ids.ok()) return ids.error();
  Result<std::vector<std::vector<TokenId>>> bad_words = BuildBadWords(*work.text, work.bad_words);
  if (!bad_words.ok()) return bad_words.error();
  PromptTokens tokens;
  if (work.echo) tokens.echo_text = work.text->Decode(ids.value(), work.skip_special_tokens);
  tokens.ids = std::move(ids.value());
  tokens.bad_words = std::move(bad_words.value());
  return tokens;
}

}  // namespace

bool TokenizePrompt(LiveRequest& request, const RouterLimits& limits, Background& background,
                    std::function<void(Result<PromptTokens>)> done) {
  const ModelFacts& facts = request.model.facts;
  auto work = std::make_shared<PromptWork>();
  request.cancelled = std::make_shared<std::atomic<bool>>(false);
  work->cancelled = request.cancelled;
  work->text = request.model.text;
  request.prompt_field = PromptField(request.ask.prompt);
  work->prompt = std::move(request.ask.prompt);
  work->hold = std::move(request.prompt_hold);
  work->echo = request.ask.echo;
  work->skip_special_tokens = request.ask.sampling.skip_special_tokens;
  work->bad_words = request.ask.sampling.bad_words;
  work->options = {facts.vocab_size,
                   facts.max_model_len,
                   request.created,
                   request.ask.truncate_prompt_tokens,
                   static_cast<uint32_t>(request.ask.sampling.max_tokens.value_or(1)),
                   limits,
                   facts.name,
                   work->cancelled.get(),
                   work->hold == nullptr ? nullptr : &work->hold->tenant};
  const auto finish = [work, done = std::move(done)] {
    work->hold.reset();  // from here on the tokens count
    done(std::move(work->tokens));
  };
  if (!IsQuick(*work)) {
    const WorkShare share{NameOf(request.ask.tenant), PromptBytes(work->prompt), work->cancelled};
    return background.RunFor(
        share, [work] { work->tokens = Work(*work); }, finish);
  }
  work->tokens = Work(*work);
  finish();
  return true;
}

}  // namespace quire

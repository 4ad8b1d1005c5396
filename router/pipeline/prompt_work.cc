#include "router/pipeline/prompt_work.h"

#include <memory>
#include <utility>

#include "router/chat/prompt.h"

namespace quire {
namespace {

// What the background thread works on; shared with it, read by `done` when it is through.
struct PromptWork {
  std::weak_ptr<const bool> wanted;
  bool echo = false;
  bool skip_special_tokens = true;
  std::shared_ptr<const ModelText> text;
  Prompt prompt;
  std::shared_ptr<const MemoryHold> hold;  // of the prompt's bytes
  std::vector<std::string> bad_words;
  PromptOptions options;
  Result<PromptTokens> tokens = PromptTokens();
};

// Token ids are looked over in less time than another thread takes to wake up.
constexpr size_t kMaxIdsOnTheLoop = 8192;

size_t PromptBytes(const Prompt& prompt) {
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) return text->text.size();
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) return ids->ids.size() * sizeof(TokenId);
  const ChatPrompt& chat = std::get<ChatPrompt>(prompt);
  return chat.messages_json.size() + chat.tools_json.size() + chat.template_kwargs_json.size();
}

bool IsQuick(const PromptWork& work) {
  const auto* prompt = std::get_if<TokenPrompt>(&work.prompt);
  return prompt != nullptr && prompt->ids.size() <= kMaxIdsOnTheLoop && !work.echo &&
         work.bad_words.empty();
}

Result<PromptTokens> Work(const PromptWork& work) {
  if (work.wanted.expired()) return ApiError{ApiCode::kCancelled, "nobody waits for it", "", 0};
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

std::optional<Refusal> HoldPrompt(LiveRequest& request,
                                  const std::shared_ptr<MemoryAccount>& waiting,
                                  Admission& admission) {
  auto hold = std::make_shared<MemoryHold>(waiting);
  hold->Resize(PromptBytes(request.ask.prompt));
  if (waiting->over()) return admission.RefusePrompt(request.ask.tenant);
  request.prompt_hold = std::move(hold);
  return std::nullopt;
}

bool TokenizePrompt(LiveRequest& request, const RouterLimits& limits, Background& background,
                    std::function<void(Result<PromptTokens>)> done) {
  const ModelFacts& facts = request.model.facts;
  auto work = std::make_shared<PromptWork>();
  request.wanted = std::make_shared<const bool>(true);
  work->wanted = request.wanted;
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
                   limits};
  if (IsQuick(*work)) {
    done(Work(*work));
    return true;
  }
  return background.Run([work] { work->tokens = Work(*work); },
                        [work, done = std::move(done)] { done(std::move(work->tokens)); });
}

}  // namespace quire

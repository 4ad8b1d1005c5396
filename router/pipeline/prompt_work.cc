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
  std::shared_ptr<const AnswerFormat> format;
  bool read_answer = false;
  ToolUse tool_use;
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

// How the answer to the prompt comes apart; nothing: it is content alone.
Result<std::optional<AnswerReading>> ReadingFor(const PromptWork& work, bool in_thought) {
  const auto* chat = std::get_if<ChatPrompt>(&work.prompt);
  if (!work.read_answer || chat == nullptr) return std::optional<AnswerReading>();
  const AnswerFormat& format = *work.format;
  const bool calls = MayCall(format, *chat, work.tool_use);
  const bool channels =
      format.dialect != nullptr && format.dialect->form == dialect::Form::kChannels;
  if (!calls && !channels && format.thoughts == nullptr) return std::optional<AnswerReading>();
  AnswerReading reading;
  reading.parser.dialect = format.dialect;
  reading.parser.thoughts = format.thoughts;
  reading.parser.thought_opened = in_thought;
  reading.parser.tokens = format.tokens;
  reading.parser.calls = calls;
  reading.one_call = calls && !work.tool_use.parallel;
  if (!calls) return std::optional(std::move(reading));
  absl::StatusOr<dialect::ToolTypes> types = dialect::ToolTypes::FromJson(chat->tools_json);
  if (!types.ok()) return ErrorFromStatus(Annotate(types.status(), "tools"), "tools");
  reading.parser.types = std::make_shared<const dialect::ToolTypes>(*std::move(types));
  return std::optional(std::move(reading));
}

Result<PromptTokens> Work(const PromptWork& work) {
  if (*work.cancelled) return ApiError{ApiCode::kCancelled, "the client has left", "", 0};
  PromptOptions options = work.options;
  bool in_thought = false;
  if (work.read_answer) {
    options.thoughts = work.format->thoughts;
    options.in_thought = &in_thought;
  }
  Result<std::vector<TokenId>> ids = BuildPrompt(*work.text, work.prompt, options);
  if (!ids.ok()) return ids.error();
  Result<std::optional<AnswerReading>> reading = ReadingFor(work, in_thought);
  if (!reading.ok()) return reading.error();
  Result<std::vector<std::vector<TokenId>>> bad_words = BuildBadWords(*work.text, work.bad_words);
  if (!bad_words.ok()) return bad_words.error();
  PromptTokens tokens;
  if (work.echo) tokens.echo_text = work.text->Decode(ids.value(), work.skip_special_tokens);
  tokens.ids = std::move(ids.value());
  tokens.bad_words = std::move(bad_words.value());
  tokens.reading = std::move(reading.value());
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
  work->format = request.model.format;
  work->read_answer = request.ask.read_answer;
  work->tool_use = request.ask.tool_use;
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

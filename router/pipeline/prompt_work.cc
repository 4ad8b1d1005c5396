#include "router/pipeline/prompt_work.h"

#include <atomic>
#include <memory>
#include <utility>

#include "common/wire/features.h"
#include "router/chat/prompt.h"
#include "router/chat/tool_fields.h"
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
  std::string prediction;  // empty: none, or no worker drafts from it
  std::vector<std::string> bad_words;
  std::shared_ptr<const AnswerFormat> format;
  bool read_answer = false;
  ToolUse tool_use;
  Thinking thinking;
  Constraint constraint;
  std::string_view constraint_field;
  PromptOptions options;
  Result<PromptTokens> tokens = PromptTokens();
};

// Token ids are checked in less time than another thread needs to wake up.
constexpr size_t kMaxIdsOnTheLoop = 8192;

bool IsQuick(const PromptWork& work) {
  const auto* prompt = std::get_if<TokenPrompt>(&work.prompt);
  return prompt != nullptr && prompt->ids.size() <= kMaxIdsOnTheLoop && !work.echo &&
         work.prediction.empty() && work.bad_words.empty();
}

// A chat's answer comes apart; that of other prompts is content alone.
Result<AnswerPlan> PlanFor(const PromptWork& work, bool in_thought) {
  const auto* chat = std::get_if<ChatPrompt>(&work.prompt);
  if (!work.read_answer || chat == nullptr) return AnswerPlan();
  return PlanAnswer({*work.text, *work.format, *chat, work.tool_use, work.constraint,
                     work.constraint_field, in_thought, work.thinking});
}

Result<PromptTokens> Work(PromptWork& work) {
  if (*work.cancelled) return ApiError{ApiCode::kCancelled, "the client has left", "", 0};
  if (auto* chat = std::get_if<ChatPrompt>(&work.prompt)) ApplyThinking(work.thinking, *chat);
  PromptOptions options = work.options;
  bool in_thought = false;
  if (work.read_answer) {
    options.thoughts = work.format->thoughts;
    options.in_thought = &in_thought;
  }
  Result<std::vector<TokenId>> ids = BuildPrompt(*work.text, work.prompt, options);
  if (!ids.ok()) return ids.error();
  Result<AnswerPlan> plan = PlanFor(work, in_thought);
  if (!plan.ok()) return plan.error();
  Result<std::vector<std::vector<TokenId>>> bad_words = BuildBadWords(*work.text, work.bad_words);
  if (!bad_words.ok()) return bad_words.error();
  Result<std::vector<TokenId>> prediction =
      BuildPrediction(*work.text, work.prediction, ids.value().size(), options);
  if (!prediction.ok()) return prediction.error();
  PromptTokens tokens;
  if (!prediction.value().empty()) tokens.prediction_ids = std::move(prediction.value());
  if (work.echo) tokens.echo_text = work.text->Decode(ids.value(), work.skip_special_tokens);
  tokens.ids = std::move(ids.value());
  tokens.bad_words = std::move(bad_words.value());
  tokens.plan = std::move(plan.value());
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
  if (auto prediction = std::exchange(request.ask.prediction, std::nullopt)) {
    request.has_prediction = true;
    if (MissingFeature({std::string(kFeaturePrediction)}, facts.features).empty()) {
      work->prediction = *std::move(prediction);
    }
  }
  work->thinking = request.ask.thinking;
  work->hold = std::move(request.prompt_hold);
  work->echo = request.ask.echo;
  work->skip_special_tokens = request.ask.sampling.skip_special_tokens;
  work->bad_words = request.ask.sampling.bad_words;
  work->format = request.model.format;
  work->read_answer = request.ask.read_answer;
  work->tool_use = request.ask.tool_use;
  work->constraint = request.ask.constraint;
  work->constraint_field = request.ask.constraint_field;
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
    const size_t bytes = PromptBytes(work->prompt) + work->prediction.size();
    const WorkShare share{NameOf(request.ask.tenant), bytes, work->cancelled};
    return background.RunFor(
        share, [work] { work->tokens = Work(*work); }, finish);
  }
  work->tokens = Work(*work);
  finish();
  return true;
}

}  // namespace quire

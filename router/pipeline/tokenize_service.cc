#include "router/pipeline/tokenize_service.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/json/json.h"
#include "common/utf8.h"
#include "router/chat/prompt.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

constexpr size_t kBytesPerPiece = 48;  // beside its text
constexpr size_t kDecodedAtOnce = 4096;
constexpr size_t kBytesPerToken = 4;  // of a text, if there is no better estimate

// An answer as JSON, while it grows.
class AnswerSize {
 public:
  AnswerSize(const RouterLimits& limits, Counter& refused)
      : limit_(limits.max_tokenize_answer_bytes), refused_(refused) {}

  void AddId(TokenId id) { bytes_ += std::to_string(id).size() + 1; }
  void AddText(std::string_view text) {
    scratch_.clear();
    json::AppendQuoted(text, scratch_);
    bytes_ += scratch_.size() + 1;
  }
  size_t bytes() const { return bytes_; }
  std::optional<ApiError> Check(std::string_view field) const {
    if (bytes_ <= limit_) return std::nullopt;
    refused_.Add();
    ApiError error =
        InvalidField(field, "its answer would have more than " + std::to_string(limit_) +
                                " bytes, the most that is served; ask for it in parts");
    error.code = ApiCode::kTooLarge;
    return error;
  }

 private:
  const size_t limit_;
  Counter& refused_;
  size_t bytes_ = 0;
  std::string scratch_;
};

Result<TokenizeResult> TokensOf(const ServedModel& model, const TokenizeAsk& ask,
                                PromptOptions options, AnswerSize size,
                                const std::shared_ptr<MemoryHold>& hold) {
  options.vocab_size = model.facts.vocab_size;
  options.max_model_len = model.facts.max_model_len;
  options.hold = hold.get();
  Result<std::vector<TokenId>> ids = BuildPrompt(*model.text, ask.prompt, options);
  if (!ids.ok()) return ids.error();
  TokenizeResult result;
  result.ids = std::move(ids.value());
  result.max_model_len = model.facts.max_model_len;
  const std::string_view field = PromptField(ask.prompt);
  for (const TokenId id : result.ids) size.AddId(id);
  if (const auto error = size.Check(field)) return *error;
  size_t held = result.ids.size() * sizeof(TokenId);
  for (size_t i = 0; ask.wants_pieces && i < result.ids.size(); ++i) {
    const std::string_view bytes = model.text->TokenBytes(result.ids[i]);
    held += kBytesPerPiece + bytes.size();
    result.pieces.push_back(ValidUtf8(bytes));
    size.AddText(result.pieces.back());
    if (const auto error = size.Check(field)) return *error;
  }
  if (!hold->TryResize(hold->bytes() + held + size.bytes())) return TooManyLargeRequests();
  result.hold = hold;
  return result;
}

Result<std::string> TextOf(const ServedModel& model, const std::vector<TokenId>& ids,
                           const RouterLimits& limits, AnswerSize size, MemoryHold& hold) {
  const size_t max_ids = limits.max_prompt_bytes / sizeof(TokenId);
  if (ids.size() > max_ids) {
    return InvalidField("tokens", "at most " + std::to_string(max_ids) + " are served");
  }
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < model.facts.vocab_size) continue;
    return InvalidField("tokens", "token id " + std::to_string(id) + " is outside the vocabulary");
  }
  std::string text;
  const std::unique_ptr<TextDecoder> decoder = model.text->NewDecoder(false);
  const std::span<const TokenId> all(ids);
  for (size_t at = 0; at <= ids.size(); at += kDecodedAtOnce) {
    const auto part = all.subspan(at, std::min(kDecodedAtOnce, ids.size() - at));
    std::string piece = decoder->Append(part);
    if (at + kDecodedAtOnce > ids.size()) piece += decoder->Flush();
    size.AddText(piece);
    if (const auto error = size.Check("tokens")) return *error;
    // The text, with room to grow, and the JSON that an edge makes of it.
    if (!hold.TryResize(hold.bytes() + 3 * piece.size())) return TooManyLargeRequests();
    text += piece;
  }
  return text;
}

}  // namespace

template <class Value>
struct TokenizeService::Job {
  Job(Place its_place, TextAsk its_client, std::function<void(Result<Value>)> its_done)
      : place(std::move(its_place)),
        by(std::move(its_client)),
        hold(std::make_shared<MemoryHold>(place.account)),
        done(std::move(its_done)) {}

  const Place place;
  const TextAsk by;
  size_t bytes = 0;  // of input
  const std::shared_ptr<MemoryHold> hold;
  std::function<Result<Value>()> work;
  std::function<uint64_t(const Value&)> tokens;  // that a value took
  const std::function<void(Result<Value>)> done;
  Result<Value> value = ApiError{ApiCode::kCancelled, "the client has left", "", 0};
};

TokenizeService::TokenizeService(const RouterLimits& limits, const World& world)
    : limits_(limits),
      world_(world),
      answers_refused_(world.metrics.AddCounter(
          {"quire_router_limit_refusals_total",
           "Requests refused because they asked for more than a limit allows.",
           {{"limit", "tokenize_answer"}}})) {}

std::optional<ApiError> TokenizeService::Enter(const Place& place, const TextAsk& by, size_t bytes,
                                               MemoryHold& hold) {
  const auto mine = state_->by_tenant.find(NameOf(by.tenant));
  const size_t count = mine == state_->by_tenant.end() ? 0 : mine->second;
  if (count >= limits_.max_tokenize_requests ||
      state_->live >= limits_.max_tokenize_requests_of_all) {
    return ApiError{ApiCode::kUnavailable, "too many texts wait to be tokenised", "",
                    Pace::kLeastMs};
  }
  Admission& admission = world_.admission;
  if (!hold.TryResize(bytes)) return admission.RefuseMemory(by.tenant, *place.account, bytes).error;
  const Micros now = world_.executor.clock().Now();
  if (auto refusal = admission.Enter(place.id, by.tenant, 0, now)) return refusal->error;
  ++state_->live;
  ++state_->by_tenant[NameOf(by.tenant)];
  return std::nullopt;
}

void TokenizeService::Leave(uint64_t id, const std::string& tenant, uint64_t tokens) {
  world_.admission.Leave(id, tokens, world_.executor.clock().Now());
  --state_->live;
  const auto mine = state_->by_tenant.find(tenant);
  if (--mine->second == 0) state_->by_tenant.erase(mine);
}

template <class Value>
void TokenizeService::Run(std::shared_ptr<Job<Value>> job) {
  const auto state = std::weak_ptr(state_);
  if (auto error = Enter(job->place, job->by, job->bytes, *job->hold)) {
    job->value = *std::move(error);
    world_.executor.Post([job, state] {
      if (!state.expired()) job->done(std::move(job->value));
    });
    return;
  }
  const auto finish = [this, job, state] {
    if (state.expired()) return;
    Leave(job->place.id, NameOf(job->by.tenant),
          job->value.ok() ? job->tokens(job->value.value()) : job->bytes / kBytesPerToken);
    job->done(std::move(job->value));
  };
  const WorkShare share{NameOf(job->by.tenant), job->bytes, job->by.cancelled};
  const auto work = [job] { job->value = job->work(); };
  if (world_.background.RunFor(share, work, finish)) return;
  job->value =
      ApiError{ApiCode::kUnavailable, "too many texts wait to be tokenised", "", Pace::kLeastMs};
  world_.executor.Post(finish);
}

void TokenizeService::Tokenize(Place place, TokenizeAsk ask, TokenizeDone done) {
  auto job = std::make_shared<Job<TokenizeResult>>(std::move(place), ask.by, std::move(done));
  job->bytes = PromptBytes(ask.prompt);
  job->tokens = [](const TokenizeResult& result) { return result.ids.size(); };
  PromptOptions options;
  options.limits = limits_;
  options.cancelled = ask.by.cancelled.get();
  options.now_unix_seconds = world_.executor.clock().UnixSeconds();
  job->work = [model = job->place.model, ask = std::move(ask), options, hold = job->hold,
               size = AnswerSize(limits_, answers_refused_)]() -> Result<TokenizeResult> {
    if (!model.ok()) return model.error();
    return TokensOf(model.value(), ask, options, size, hold);
  };
  Run(std::move(job));
}

void TokenizeService::Detokenize(Place place, TextAsk by, std::vector<TokenId> ids,
                                 DetokenizeDone done) {
  auto job = std::make_shared<Job<std::string>>(std::move(place), std::move(by), std::move(done));
  job->bytes = ids.size() * sizeof(TokenId);
  job->tokens = [count = ids.size()](const std::string&) { return count; };
  job->work = [model = job->place.model, ids = std::move(ids), limits = limits_, hold = job->hold,
               size = AnswerSize(limits_, answers_refused_)]() -> Result<std::string> {
    if (!model.ok()) return model.error();
    return TextOf(model.value(), ids, limits, size, *hold);
  };
  Run(std::move(job));
}

}  // namespace quire

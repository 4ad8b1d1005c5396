// Constrained requests in the engine: they wait for their grammar, and each choice writes a text
// under it, or under a budget of its thoughts. The text's mask for the next token is computed from
// the commit of the last one on, while the next step computes, and what it finds about the text is
// judged when that step ends.
#include <string>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine_state.h"

namespace quire {

void Engine::State::On(GrammarCommand command, int64_t /*now_us*/) {
  Request* request = requests.Find(command.router, command.key);
  // It may have ended in the meantime, and a later one may have its name.
  if (request == nullptr || request->compiling == 0) return;
  if (request->compiling != command.compiling) return;
  if (command.grammar == nullptr) return RefuseLate(*request, std::move(command.refused));
  request->grammar = std::move(command.grammar);
  request->constraint.compile_us = command.compile_us;
  request->compiling = 0;
  Enter(*request);
}

// Nothing was computed for it. Where a choice has ended already, its router knows it as accepted.
void Engine::State::RefuseLate(Request& request, Refused refused) {
  QUIRE_CHECK(refused.code != RefusalCode::kUnspecified);
  size_t open = 0;
  for (const ResumedChoice& choice : request.submit.choices) open += !choice.ended;
  if (request.open_choices < open) {
    return EndRequest(request, {.reason = EndReason::kFailed,
                                .message = std::move(refused.message),
                                .retryable = refused.code == RefusalCode::kQueueFull,
                                .cause = FailureCause::kConstraint});
  }
  refused.key = request.submit.key;
  refused.traceparent = std::move(request.submit.traceparent);
  refused.tracestate = std::move(request.submit.tracestate);
  refused.request_id = std::move(request.submit.request_id);
  ++totals.refused[static_cast<size_t>(refused.code)];
  out.AddRefused(request.router, std::move(refused));
  --waiting_requests;
  constrained_choices -= open;
  requests.Forget(request);
}

// Begins the texts of rows that the step names first, and says which drafts the step has. True: it
// samples constrained rows.
bool Engine::State::BeginTexts(const Launched& step) {
  QUIRE_CHECK(options.masks != nullptr);
  bool samples = false;
  for (const PlannedRow& row : step.rows) {
    if (!row.sequence->constrained) continue;
    samples = samples || row.sample;
    const Choice& choice = static_cast<const Choice&>(*row.sequence);
    if (!options.masks->Has(choice.id)) {
      const std::span<const TokenId> tokens(choice.tokens);
      const Request& request = *choice.request;
      options.masks->Begin(choice.id, {request.grammar, request.submit.thought_budget},
                           tokens.subspan(static_cast<size_t>(choice.prompt_length)));
    }
    if (row.draft_count > 0) options.masks->Draft(choice.id, choice.drafts, choice.forced);
  }
  options.masks->Send();
  return samples;
}

// Before its sample is taken: a text that is complete ends its choice without it, and one that
// cannot continue ends the request.
void Engine::State::JudgeText(Choice& choice) {
  if (choice.ended) return;
  ++totals.constrained_rows;
  if (options.masks->Masks(choice.id) == 0) EndText(choice);
}

// Behind the last token that it can have.
void Engine::State::EndText(Choice& choice) {
  const TextState state = options.masks->Look(choice.id);
  if (state == TextState::kFinished) return EndChoice(choice, {.reason = EndReason::kStop});
  QUIRE_CHECK(state == TextState::kFailed);
  EndRequest(*choice.request, {.reason = EndReason::kFailed,
                               .message = options.masks->WhyFailed(choice.id),
                               .cause = FailureCause::kConstraint});
}

// Its text is of no use any more.
void Engine::State::EndTextOf(Choice& choice) {
  if (!options.masks->Has(choice.id)) return;
  choice.request->constraint.mask_us += options.masks->MaskMicros(choice.id);
  options.masks->End(choice.id);
}

std::string Engine::State::NoTokenMessage(const Choice& choice) const {
  if (!choice.constrained) return "INTERNAL: no token may follow under this request's limits";
  const SamplingParams& sampling = choice.request->submit.sampling;
  std::string fields;
  const auto add = [&fields](bool is_set, const char* field) {
    if (is_set) fields += (fields.empty() ? "" : ", ") + std::string(field);
  };
  add(!sampling.allowed_token_ids.empty(), "allowed_token_ids");
  add(!sampling.bad_words.empty(), "bad_words");
  add(sampling.min_tokens > choice.OutputCount(), "min_tokens");
  add(!sampling.logit_bias.empty(), "logit_bias");
  const bool grammar = choice.request->grammar != nullptr;
  return (grammar ? "constraint: no token that it allows is left after "
                  : "thought_budget: what ends a thought is forbidden after ") +
         std::to_string(choice.OutputCount()) + " tokens by " + fields + "; leave these out";
}

}  // namespace quire

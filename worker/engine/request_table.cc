#include "worker/engine/request_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/engine/beams.h"

namespace quire {

Request::Request() = default;
Request::~Request() = default;

bool Request::Admitted() const {
  if (beams != nullptr) return told_admitted;
  return std::any_of(choices.begin(), choices.end(), [](const auto& c) { return c->admitted; });
}

bool Request::StepsInFlight() const {
  const auto named = [](const auto& c) { return c->steps_in_flight > 0; };
  if (beams != nullptr) return std::any_of(beams->rows.begin(), beams->rows.end(), named);
  return std::any_of(choices.begin(), choices.end(), named);
}

AttemptUsage Request::Usage() const {
  AttemptUsage usage = beams == nullptr ? AttemptUsage() : beams->usage;
  usage.prompt_tokens = prompt_tokens;
  for (const OwnedChoice& choice : choices) {
    QUIRE_CHECK(choice->recomputed_total <= choice->computed_total);
    QUIRE_CHECK(choice->cached_total >= 0 && choice->recomputed_total >= 0);
    QUIRE_CHECK(choice->discarded <= choice->generated);
    usage.cached_tokens += static_cast<uint32_t>(choice->cached_total);
    usage.computed_tokens += static_cast<uint32_t>(choice->computed_total);
    usage.recomputed_tokens += static_cast<uint32_t>(choice->recomputed_total);
    usage.generated_tokens += static_cast<uint32_t>(choice->generated);
    usage.discarded_tokens += static_cast<uint32_t>(choice->discarded);
    usage.draft_tokens += choice->draft_tokens;
    usage.accepted_draft_tokens += choice->accepted_draft_tokens;
  }
  return usage;
}

AttemptRecord Request::Record(EndReason reason, int64_t now_us) const {
  QUIRE_CHECK(open_choices == 0 && accepted_us <= now_us);
  AttemptRecord record;
  record.router = router;
  record.key = submit.key;
  record.request_id = submit.request_id;
  record.tenant = submit.tenant;
  record.adapter = submit.adapter;
  record.traceparent = submit.traceparent;
  record.tracestate = submit.tracestate;
  record.prefill = prefill;
  record.constraint = constraint;
  record.reason = reason;
  record.usage = Usage();
  record.max_tokens = static_cast<uint32_t>(std::max(0, submit.sampling.max_tokens));
  record.choices = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const int64_t kept = choices[i]->generated - choices[i]->discarded;
    record.longest_tokens = std::max(record.longest_tokens, static_cast<uint32_t>(kept));
    record.choices += !submit.choices[i].ended;
    record.preemptions += choices[i]->incarnation;
    record.resumed_tokens += submit.choices[i].outputs.size();
  }
  if (beams != nullptr) record.preemptions += beams->preemptions;
  const int64_t launched = std::min(launched_us, now_us);
  const int64_t first_token = std::min(first_token_us, now_us);
  QUIRE_CHECK(accepted_us <= launched && launched <= first_token);
  record.accepted_us = accepted_us;
  record.queue_us = launched - accepted_us;
  record.prefill_us = first_token - launched;
  record.decode_us = now_us - first_token;
  return record;
}

Request& RequestTable::Add(std::unique_ptr<Request> request) {
  QUIRE_CHECK(!request->choices.empty());
  const auto [at, added] = live_.emplace(request->key(), std::move(request));
  QUIRE_CHECK_MSG(added, "two attempts of one request live");
  return *at->second;
}

Request* RequestTable::Find(RouterInstance router, const AttemptKey& key) {
  Request* request = FindAnyAttempt({router, key.request});
  return request != nullptr && request->submit.key.attempt == key.attempt ? request : nullptr;
}

Request* RequestTable::FindAnyAttempt(const WireKey& key) {
  const auto found = live_.find(key);
  return found == live_.end() ? nullptr : found->second.get();
}

std::optional<Attempt> RequestTable::EndedAttempt(const WireKey& key) const {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return std::nullopt;
  return found->second;
}

void RequestTable::Retire(Request& request) {
  QUIRE_CHECK(request.open_choices == 0);
  const auto found = live_.find(request.key());
  QUIRE_CHECK(found != live_.end() && found->second.get() == &request);
  if (QUIRE_BUG(ended_attempt_forgotten)) {
    retired_.push_back(std::move(found->second));
    live_.erase(found);
    return;
  }
  const auto [at, added] = ended_.emplace(request.key(), request.submit.key.attempt);
  at->second = request.submit.key.attempt;
  if (added) ended_order_.push_back(request.key());
  if (ended_order_.size() > kRememberedAttempts) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
  retired_.push_back(std::move(found->second));
  live_.erase(found);
}

void RequestTable::Forget(Request& request) {
  QUIRE_CHECK(!request.StepsInFlight() && !request.counted);
  QUIRE_CHECK(live_.erase(request.key()) == 1);
}

void RequestTable::Sweep() {
  std::erase_if(retired_, [](const auto& request) { return !request->StepsInFlight(); });
}

bool RequestTable::UsesAdapterSlot(int slot) const {
  const auto in_slot = [slot](const Request& request) { return request.adapter_slot == slot; };
  return std::any_of(live_.begin(), live_.end(),
                     [&](const auto& entry) { return in_slot(*entry.second); }) ||
         std::any_of(retired_.begin(), retired_.end(),
                     [&](const auto& request) { return in_slot(*request); });
}

void RequestTable::CheckInvariants() const {
  QUIRE_CHECK(ended_.size() == ended_order_.size() && ended_.size() <= kRememberedAttempts);
  for (const auto& [key, request] : live_) {
    QUIRE_CHECK(key == request->key());
    QUIRE_CHECK(request->open_choices > 0);
    QUIRE_CHECK(request->counted == (request->compiling == 0));
    size_t open = 0;
    for (const OwnedChoice& choice : request->choices) {
      open += !choice->ended;
      QUIRE_CHECK(choice->request == request.get());
      const bool placed = choice->place != SequencePlace::kNone;
      const bool waits_for_grammar = request->compiling != 0;
      QUIRE_CHECK(placed == (!choice->ended && request->beams == nullptr && !waits_for_grammar));
      QUIRE_CHECK(!placed || choice->OutputCount() < choice->output_limit);
      QUIRE_CHECK(choice->OutputCount() <= choice->window_end || choice->ended);
    }
    QUIRE_CHECK(open == request->open_choices);
  }
}

}  // namespace quire

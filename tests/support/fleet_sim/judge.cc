// The oracle: what must hold of a life of a fleet, whatever went wrong in it.
#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "tests/support/fleet_sim/fleet_world.h"

namespace quire::sim {
namespace {

using Kind = FleetFault::Kind;

// The value of a counter or gauge in a text of metrics.
std::optional<uint64_t> ValueOf(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return std::nullopt;
  return std::stoull(text.substr(at + name.size() + 2));
}

constexpr const char* kCounted[] = {"quire_router_carry_ons_total",
                                    "quire_router_placement_retries_total",
                                    "quire_router_paced_carry_ons_total",
                                    "quire_router_worker_deaths_total",
                                    "quire_router_worker_deaths_taken_back_total",
                                    "quire_router_kept_silences_total",
                                    "quire_router_suspect_requests_total",
                                    "quire_router_silent_workers_total",
                                    "quire_router_broken_attempts_total",
                                    "quire_router_placement_retries_denied_total",
                                    "quire_router_stale_outputs_total",
                                    "quire_router_cache_index_stale_total",
                                    "quire_router_cache_predictions_total{verdict=\"wrong\"}",
                                    "quire_router_cache_predictions_total{verdict=\"raced\"}",
                                    "quire_router_cache_predictions_total{verdict=\"exact\"}"};

bool SameLogprob(const TokenLogprob& left, const TokenLogprob& right) {
  return left.id == right.id && left.bytes == right.bytes && left.logprob == right.logprob &&
         left.rank == right.rank && left.unscored == right.unscored &&
         left.hidden == right.hidden &&
         std::equal(left.top.begin(), left.top.end(), right.top.begin(), right.top.end(),
                    SameLogprob);
}

// Whether `part` is what `whole` begins with, or all of it.
template <typename Whole, typename Same>
bool Begins(const Whole& whole, const Whole& part, bool all, Same same) {
  if (all ? part.size() != whole.size() : part.size() > whole.size()) return false;
  return std::equal(part.begin(), part.end(), whole.begin(), same);
}

}  // namespace

bool FleetWorld::HasAny(std::initializer_list<Kind> kinds) const {
  return std::any_of(kinds.begin(), kinds.end(), [this](Kind kind) { return scenario_.Has(kind); });
}

void FleetWorld::CountRouter(const Router& router) {
  const std::string text = router.metrics.Render();
  const uint64_t retries = ValueOf(text, "quire_router_placement_retries_total").value_or(0);
  if (retries > scenario_.retry_burst + router.asked / 10) {
    Violate(std::to_string(retries) + " placement retries for " + std::to_string(router.asked) +
            " requests");
  }
  for (const char* name : kCounted) {
    const std::optional<uint64_t> value = ValueOf(text, name);
    if (!value) Violate(std::string(name) + " is not counted");
    Meet(name, value.value_or(0));
  }
}

void FleetWorld::Judge(const CalmAnswers& calm) {
  if (!calm_) {
    for (const auto& worker : workers_) {
      if (worker->up() && !worker->AtRest()) Violate(worker->name() + " still holds something");
    }
    JudgeIndexes();
    for (const RequestRecord& record : records_) JudgeRecord(record);
  }
  if (result_.met["quire_router_cache_predictions_total{verdict=\"wrong\"}"] > 0) {
    Violate("a router thought it knew what was cached");
  }
  if (result_.met["quire_router_broken_attempts_total"] > 0) {
    Violate("a router found a worker's outputs out of order");
  }
  if (!HasAny({Kind::kHold, Kind::kHoldOneWay, Kind::kHoldAll, Kind::kWorkerStop}) &&
      result_.met["quire_router_silent_workers_total"] > 0) {
    Violate("a worker was given up for silence that only the router's own sleep can explain");
  }
  if (!HasAny({Kind::kFreeze}) && std::any_of(records_.begin(), records_.end(), [](const auto& r) {
        return std::any_of(r.attempts.begin(), r.attempts.end(), [](const AttemptReport& attempt) {
          return attempt.end == AttemptEnd::kStuck;
        });
      })) {
    Violate("a worker was taken for stuck that was only held up");
  }
  // Each router counts what it saw, over all requests with that prompt, as long as it lives.
  uint64_t routers_lives = scenario_.policies.size();
  for (const FleetFault& fault : scenario_.faults) {
    routers_lives += fault.kind == Kind::kRouterKill ? 1 : 0;
  }
  uint64_t poison_asks = 1;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const FleetSimClient& client = *clients_[i];
    if (calm_ && !client.finished) Violate("a calm world finishes everything");
    if (client.finished) Meet("finished");
    if (scenario_.clients[i].poison) poison_asks = static_cast<uint64_t>(client.asks);
    if (client.suspect) JudgeSuspect(scenario_.clients[i]);
    if (!calm_) JudgeAnswer(i, calm);
  }
  if (poison_kills_ > 3 * std::min(poison_asks, routers_lives)) {
    Violate("a poisonous request killed " + std::to_string(poison_kills_) + " workers");
  }
  Meet("killed by poison", poison_kills_);
}

// Each word of it, as far as it came, is that of the world without faults.
void FleetWorld::JudgeAnswer(size_t index, const CalmAnswers& calm) {
  const FleetSimClient& client = *clients_[index];
  if (client.model_id().empty()) return;  // no worker began it
  const auto answers = calm.find(SimModelOf(client.model_id()));
  if (answers == calm.end()) return Violate("a client hears of a model that no worker has");
  const std::string& asked = scenario_.clients[index].ask.model;
  const std::string adapter = scenario_.clients[index].adapter;
  if (client.model_id() != AnswererOf(answers->first, adapter)) {
    Violate("a client that asks for '" + asked + "' is answered by " + client.model_id());
  }
  if (!adapter.empty()) Meet("answered with an adapter");
  const auto other = [&](const std::string& what) {
    Violate("client " + std::to_string(index) + " has other " + what + " than in a calm world");
  };
  for (size_t choice = 0; choice < client.choices.size(); ++choice) {
    const FleetAnswer& has = client.choices[choice];
    const FleetAnswer& whole = answers->second.answers.at(index).at(choice);
    const bool all = !has.finish_reason.empty();
    if (!Begins(whole.ids, has.ids, all, std::equal_to<>())) other("tokens");
    if (!Begins(whole.text, has.text, all, std::equal_to<>())) other("text");
    if (!Begins(whole.logprobs, has.logprobs, all, SameLogprob)) other("logprobs");
    if (all && has.finish_reason != whole.finish_reason) other("ends");
    Meet("logprobs compared", has.logprobs.size());
  }
  if (!Begins(answers->second.prompts.at(index), client.prompt_logprobs, true, SameLogprob)) {
    other("logprobs of its prompt");
  }
}

// Its prompt met its deaths, in this request or in others with the same prompt.
void FleetWorld::JudgeSuspect(const FleetClient& plan) {
  Meet("suspect");
  const auto ids_of = [](const FleetClient& one) {
    return std::get<TokenPrompt>(one.ask.prompt).ids;
  };
  // A step that was stuck and the end of its epoch may both be deaths.
  std::set<std::tuple<std::string, uint64_t, AttemptEnd>> met;
  for (const RequestRecord& record : records_) {
    const auto same = [&](const FleetClient& one) {
      return one.ask.request_id == record.request_id && ids_of(one) == ids_of(plan);
    };
    if (std::none_of(scenario_.clients.begin(), scenario_.clients.end(), same)) continue;
    for (const AttemptReport& attempt : record.attempts) {
      const bool gone = attempt.end == AttemptEnd::kLost || attempt.end == AttemptEnd::kStuck;
      const std::pair key(attempt.worker_id, attempt.epoch.value());
      if (gone && dead_.contains(key)) met.insert({key.first, key.second, attempt.end});
    }
  }
  if (met.size() < 3) {
    Violate("a request is suspect after " + std::to_string(met.size()) + " deaths");
  }
}

// The bill of a request, against what workers booked of its attempts.
void FleetWorld::JudgeRecord(const RequestRecord& record) {
  const auto wrong = [&](const std::string& what) {
    Violate("the record of request " + std::to_string(record.request.value()) + ": " + what);
  };
  if (record.delivered_tokens + record.discarded_tokens != record.accepted_tokens) {
    wrong("delivered and discarded are not what was accepted");
  }
  if (record.cached_tokens > record.prompt_tokens) wrong("more was cached than was asked");
  uint64_t accepted = 0;
  for (const AttemptReport& attempt : record.attempts) {
    accepted += attempt.accepted_tokens;
    if (attempt.accepted_tokens > 0 && !attempt.admitted) {
      wrong("tokens were taken from an attempt that was not admitted");
    }
    const auto booked =
        booked_.find({attempt.worker_id, attempt.epoch.value(), record.router.value(),
                      record.request.value(), attempt.attempt.value()});
    if (booked == booked_.end()) {
      const bool lives = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
        return worker->up() && worker->name() == attempt.worker_id &&
               worker->epoch() == attempt.epoch;
      });
      if (lives && attempt.admitted) wrong("its worker lives, and booked nothing");
      continue;
    }
    const AttemptRecord& theirs = booked->second;
    if (attempt.accepted_tokens > theirs.usage.generated_tokens) {
      wrong("more was taken from an attempt than it wrote");
    }
    if (theirs.tenant != record.tenant) wrong("its worker booked it on another tenant");
    if (theirs.reason == EndReason::kRouterLost) Meet("attempts that lost their router");
    if (attempt.admitted &&
        std::min(attempt.cached_tokens, record.prompt_tokens) != theirs.usage.cached_tokens) {
      wrong("its worker booked another number of cached tokens");
    }
  }
  if (record.attempts.size() == record.attempts_total && accepted != record.accepted_tokens) {
    wrong("its attempts do not add up");
  }
}

// What a router knows for certain of a cache is what is there.
void FleetWorld::JudgeIndexes() {
  for (size_t i = 0; i < routers_.size(); ++i) {
    if (routers_[i] == nullptr) continue;
    for (const WorkerStatus& status : routers_[i]->pipeline->Workers()) {
      if (status.index_state != "exact") continue;
      for (const auto& worker : workers_) {
        if (worker->target() != status.target || !worker->up()) continue;
        Meet("exact indexes");
        if (worker->PublishedBlocks() == status.cached_blocks) continue;
        Violate("router " + std::to_string(i) + " knows of " +
                std::to_string(status.cached_blocks) + " blocks of " + worker->name() +
                ", which has " + std::to_string(worker->PublishedBlocks()));
      }
    }
  }
}

// In the middle of it all: what is exact is so as of the events that the router has heard.
void FleetWorld::CheckIndexes(size_t router) {
  for (const WorkerStatus& status : routers_[router]->pipeline->Workers()) {
    const bool known = status.index_state == "exact" && status.index_event_seq > 0;
    if (!known) continue;
    for (const auto& worker : workers_) {
      if (worker->target() != status.target || EpochOf(status) != worker->epoch()) continue;
      Meet("exact indexes on the way");
      if (worker->MayHavePublished(status.cached_blocks, status.index_event_seq)) continue;
      Violate("router " + std::to_string(router) + " knows of " +
              std::to_string(status.cached_blocks) + " blocks of " + worker->name() +
              ", which never had as many when that was its last event");
    }
  }
}

}  // namespace quire::sim

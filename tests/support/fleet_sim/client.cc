#include "tests/support/fleet_sim/client.h"

#include <memory>
#include <utility>

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;
constexpr int kMaxAsks = 200;

}  // namespace

void FleetSimClient::Say(const std::string& what) {
  fleet_.Trace("client-" + std::to_string(index_) + " " + what);
}
void FleetSimClient::Violate(const std::string& what) {
  fleet_.Violate("client " + std::to_string(index_) + " " + what);
}

void FleetSimClient::Ask() {
  if (over || asking_) return;
  if (AllEnded()) {  // only the last word was lost
    over = finished = true;
    return;
  }
  Pipeline* pipeline =
      fleet_.Serving(router_ = (plan_.router + static_cast<size_t>(asks)) % fleet_.router_count());
  if (++asks > kMaxAsks) return Violate("has asked so often that it gives up");
  if (pipeline == nullptr) return AskAgain(300 * kMilli);
  GenerateRequest ask = plan_.ask;
  if (ever_started_ && ask.streaming) {
    ask.resume = resume_;
    for (const Choice& choice : choices) ask.resume->outputs.push_back(choice.ids);
    resumed = true;
    fleet_.Meet("resumed by their client", 1);
  } else {
    choices.assign(choices.size(), {});
  }
  auto tenant = std::make_shared<TenantProfile>();
  tenant->name = plan_.tenant;
  ask.tenant = std::move(tenant);
  asking_ = true;
  started_ = false;
  fleet_.Asked(router_);
  id_ = pipeline->Start(std::move(ask), this);
}

void FleetSimClient::AskAgain(Micros after) {
  fleet_.At(after, [this] { Ask(); });
}

void FleetSimClient::Cancel() {
  if (over) return;
  Say("cancels");
  over = cancelled = true;
  Pipeline* pipeline = fleet_.Serving(router_);
  if (asking_ && pipeline != nullptr) pipeline->Cancel(id_);
  // Towards a router that is stopped the connection closes, and it hears of it later.
  if (asking_ && pipeline == nullptr) over = false, cancelled = false;
}

void FleetSimClient::RouterDied(size_t router) {
  if (!asking_ || router_ != router || over) return;
  asking_ = false;
  Say("lost its router");
  AskAgain(100 * kMilli);
}

void FleetSimClient::OnStarted(const Started& started) {
  if (over || started_) Violate("is told twice that it starts");
  started_ = true;
  if (ever_started_ && plan_.ask.streaming) {
    if (started.seed != resume_.seed || started.created != resume_.created) {
      Violate("goes on under another seed or time");
    }
  }
  ever_started_ = true;
  resume_.seed = started.seed;
  resume_.created = started.created;
  resume_.model_id = started.model_id;
  Say("started");
}

void FleetSimClient::OnDelta(const Delta& delta) {
  if (over || !asking_) return Violate("hears something after its end");
  Choice& choice = choices.at(delta.choice);
  if (!choice.finish_reason.empty()) Violate("hears of a choice that has ended");
  if (delta.first_index != choice.ids.size()) {
    Violate("gets index " + std::to_string(delta.first_index) + " instead of " +
            std::to_string(choice.ids.size()));
  }
  choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
  for (const TokenLogprob& token : delta.logprobs) choice.logprobs.push_back(token.logprob);
  Say("has " + std::to_string(choice.ids.size()) + " of " + std::to_string(delta.choice));
  fleet_.At(plan_.takes_after,
            [this, id = id_, router = router_, which = delta.choice, taken = choice.ids.size()] {
              if (!asking_ || id_ != id || router_ != router) return;
              if (Pipeline* pipeline = fleet_.Serving(router)) pipeline->Taken(id, which, taken);
            });
}

void FleetSimClient::OnChoiceEnd(const ChoiceEnd& end) {
  if (over || !asking_) return Violate("hears something after its end");
  Choice& choice = choices.at(end.choice);
  if (!choice.finish_reason.empty() && (!resumed || choice.finish_reason != end.finish_reason)) {
    Violate("hears two ends of a choice");
  }
  choice.finish_reason = end.finish_reason;
  Say("end of " + std::to_string(end.choice) + " " + end.finish_reason);
}

void FleetSimClient::OnFinished(const Usage& usage) {
  if (over || !asking_) return Violate("has a second end");
  if (!AllEnded()) Violate("is finished before its choices are");
  size_t tokens = 0;
  for (const Choice& choice : choices) tokens += choice.ids.size();
  if (usage.completion_tokens != tokens) Violate("is billed for tokens that it did not get");
  asking_ = false;
  over = finished = true;
  Say("finished");
}

void FleetSimClient::OnError(const ApiError& error) {
  if (over || !asking_) return Violate("has a second end");
  asking_ = false;
  Say("error " + error.message);
  if (error.reason == "request_suspect") {
    over = suspect = true;
  } else if (error.code == ApiCode::kDeadlineExceeded && plan_.ask.timeout_ms > 0) {
    over = late = true;
  } else if (plan_.poison && asks >= 3) {
    over = true;  // each time that it asks is another request, and kills anew
  } else if (error.code == ApiCode::kUnavailable) {
    fleet_.Meet("told to come back", 1);
    AskAgain(300 * kMilli);
  } else {
    over = true;
    Violate("ends in an error: " + error.message);
  }
}

}  // namespace quire::sim

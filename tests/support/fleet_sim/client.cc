#include "tests/support/fleet_sim/client.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;
constexpr int kMaxAsks = 400;
constexpr Micros kLongestWaitMs = 5000;  // who is patient asks no later than that

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
  ended_before_.assign(choices.size(), false);
  if (ever_started_ && ask.streaming) {
    ask.resume = resume_;
    for (size_t i = 0; i < choices.size(); ++i) {
      ask.resume->outputs.push_back(choices[i].ids);
      ended_before_[i] = !choices[i].finish_reason.empty();
    }
    resumed = true;
    fleet_.Meet("resumed by their client", 1);
  } else {
    choices.assign(choices.size(), {});
  }
  asking_ = true;
  asked_at_ = fleet_.Now();
  started_ = false;
  const bool streaming = ask.streaming;
  id_ = pipeline->Start(std::move(ask), this);
  fleet_.Asked(router_, id_, streaming);
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
    if (started.model_id != resume_.model_id) Violate("goes on with another model");
  }
  if (!resumed) prompt_logprobs = started.prompt_logprobs;
  ever_started_ = true;
  resume_.seed = started.seed;
  resume_.created = started.created;
  resume_.model_id = started.model_id;
  Say("started");
}

void FleetSimClient::OnDelta(const Delta& delta) {
  if (over || !asking_) return Violate("hears something after its end");
  FleetAnswer& choice = choices.at(delta.choice);
  // A router cannot know whether its client had the end, so it tells the end again, and before it
  // the text that the end set free.
  if (ended_before_.at(delta.choice) && delta.ids.empty()) return;
  if (!choice.finish_reason.empty()) Violate("hears of a choice that has ended");
  if (delta.first_index != choice.ids.size()) {
    Violate("gets index " + std::to_string(delta.first_index) + " instead of " +
            std::to_string(choice.ids.size()));
  }
  choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
  fleet_.Told(router_, id_, delta.choice, choice.ids.size());
  choice.text += delta.text;
  if (delta.logprobs.size() != (plan_.ask.sampling.logprobs ? delta.ids.size() : 0)) {
    Violate("gets " + std::to_string(delta.logprobs.size()) + " logprobs with " +
            std::to_string(delta.ids.size()) + " tokens");
  }
  choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  Say("has " + std::to_string(choice.ids.size()) + " of " + std::to_string(delta.choice));
  fleet_.At(plan_.takes_after,
            [this, id = id_, router = router_, which = delta.choice, taken = choice.ids.size()] {
              if (!asking_ || id_ != id || router_ != router) return;
              fleet_.Took(router, id, which, taken);
            });
}

void FleetSimClient::OnChoiceEnd(const ChoiceEnd& end) {
  if (over || !asking_) return Violate("hears something after its end");
  FleetAnswer& choice = choices.at(end.choice);
  if (!choice.finish_reason.empty() && (!resumed || choice.finish_reason != end.finish_reason)) {
    Violate("hears two ends of a choice");
  }
  choice.finish_reason = end.finish_reason;
  ended_before_[end.choice] = false;
  Say("end of " + std::to_string(end.choice) + " " + end.finish_reason);
}

void FleetSimClient::OnFinished(const Usage& usage) {
  if (over || !asking_) return Violate("has a second end");
  if (!AllEnded()) Violate("is finished before its choices are");
  size_t tokens = 0;
  for (const FleetAnswer& choice : choices) tokens += choice.ids.size();
  if (usage.completion_tokens != tokens) Violate("is billed for tokens that it did not get");
  asking_ = false;
  over = finished = true;
  Say("finished");
}

bool FleetSimClient::Limited() const {
  const TenantProfile* tenant = plan_.ask.tenant.get();
  return tenant != nullptr && (tenant->requests_per_minute > 0 || tenant->tokens_per_minute > 0 ||
                               tenant->max_concurrent > 0);
}

void FleetSimClient::LeftBehind(const std::string& how) {
  over = left_behind = true;
  fleet_.Meet(how, 1);
}

// An answer that has begun is lost only where nobody is left who could go on with it.
void FleetSimClient::Unavailable(const ApiError& error) {
  fleet_.Meet("told to come back", 1);
  const bool resumes = ever_started_ && plan_.ask.streaming;
  // A router that it comes to later may be too busy, and say so.
  const bool nobody = resumes && error.message.rfind("no worker", 0) == 0;
  if (started_) fleet_.Meet("told to come back in the middle of an answer", 1);
  if (!started_ && nobody) fleet_.Meet("told elsewhere that nobody can go on", 1);
  if ((started_ || nobody) && !fleet_.MayLackWorkers(router_, resume_.model_id)) {
    Violate("loses its answer though a worker could go on with it: " + error.message);
  }
  if (resumes && !fleet_.MayBeServed(resume_.model_id)) {
    return LeftBehind("left behind by an update");
  }
  AskAgain(300 * kMilli);
}

void FleetSimClient::OnError(const ApiError& error) {
  if (over || !asking_) return Violate("has a second end");
  asking_ = false;
  Say("error " + error.message);
  const bool resumes = ever_started_ && plan_.ask.streaming;
  const std::string needed = resumes ? resume_.model_id : "";
  const bool come_back = error.code == ApiCode::kUnavailable || error.code == ApiCode::kRateLimited;
  if (come_back && !started_ && error.retry_after_ms == 0) Violate("is not told when to come back");
  if (error.reason == "request_suspect") {
    over = suspect = true;
  } else if (error.code == ApiCode::kDeadlineExceeded && plan_.ask.timeout_ms > 0) {
    over = late = true;
  } else if (plan_.poison && asks >= 3) {
    over = true;  // each time that it asks is another request, and kills again
  } else if (error.code == ApiCode::kRateLimited) {
    if (!Limited()) Violate("has no quota, and is over it");
    if (started_) Violate("is over its quota in the middle of an answer");
    fleet_.Meet("told to wait for its quota", 1);
    AskAgain(std::min<Micros>(error.retry_after_ms, kLongestWaitMs) * kMilli);
  } else if (error.code == ApiCode::kUnavailable) {
    Unavailable(error);
  } else if (error.code == ApiCode::kConflict && resumes && !fleet_.MayBeServed(needed)) {
    LeftBehind("told that its model is gone");
  } else if (error.code == ApiCode::kInvalidArgument && !started_ &&
             fleet_.MayLackFeatures(router_, needed)) {
    LeftBehind("told that a feature is not served");
  } else {
    over = true;
    Violate("ends in an error: " + error.message);
  }
}

}  // namespace quire::sim

// What a router hears, held against what it must be.
#include <algorithm>
#include <bit>

#include "tests/support/engine_sim/sim_router.h"

namespace quire::sim {
namespace {

constexpr Micros kRetry = 30 * kMicrosPerMilli;
constexpr Micros kSlack = 10 * kMicrosPerMilli;  // both ways on the link, and a rounded millisecond
constexpr uint64_t kMaxLength = 256;
constexpr std::string_view kDeviceLost = "this worker's device was lost";

}  // namespace

void SimRouter::OnFrame(Attachment& from, std::string_view frame) {
  shared_.Trace(frame);
  if (silent_) return;
  absl::StatusOr<WorkerMessage> message = DecodeWorkerFrame(frame);
  if (!message.ok()) return shared_.Violate("a frame of the worker is broken");
  if (const auto* refused = std::get_if<AttachRefused>(&*message)) return Hear(from, *refused);
  if (from.old_hello) {  // a worker that has started again cannot know the number
    const auto* hello = std::get_if<WorkerHello>(&*message);
    if (hello == nullptr || hello->epoch != greeted_epoch_) return;
    return shared_.Violate("an Attach number was taken twice");
  }
  if (attachments_.back().get() != &from) return;  // fenced: its words are under way
  if (const auto* hello = std::get_if<WorkerHello>(&*message)) return Hear(from, *hello);
  if (const auto* step = std::get_if<StepFrame>(&*message)) return Hear(from, *step);
  if (const auto* chunk = std::get_if<SnapshotChunk>(&*message)) return cache_.Hear(*chunk);
  if (std::holds_alternative<DrainingNotice>(*message) && !shared_.draining) {
    shared_.Violate("draining is told though nobody asked for it");
  }
}

void SimRouter::Hear(Attachment& from, const AttachRefused& refused) {
  const bool current = attachments_.back().get() == &from;
  if (shared_.device_lost_at >= 0 && !refused.fenced && refused.message.starts_with(kDeviceLost)) {
    return shared_.coverage.Add("attaches ended with the device");
  }
  if (from.old_hello ? !refused.fenced : current) {
    shared_.Violate("the Attach was ended: " + refused.message);
  }
}

// Whether what was greeted before the device was lost should have ended by now.
bool SimRouter::OutlivesTheDevice() const {
  return greeted_at_ + kSlack < shared_.device_lost_at &&
         shared_.device_lost_at + kSlack < shared_.Now();
}

void SimRouter::Hear(Attachment& from, const WorkerHello& hello) {
  if (hello.epoch == greeted_epoch_ && OutlivesTheDevice()) {
    shared_.Violate("an epoch outlives the device that was lost in it");
  }
  from.greeted = true;
  greeted_epoch_ = hello.epoch;
  greeted_number_ = from.number;
  greeted_at_ = shared_.Now();
  cache_.Greeted(hello);
  AskIfLost();
  for (auto& [number, client] : clients_) {
    if (!client.waits_for_attach) continue;
    client.waits_for_attach = false;
    shared_.coverage.Add("resumes");
    SendSubmit(client);
  }
}

void SimRouter::Hear(Attachment& from, const StepFrame& step) {
  if (step.frame_seq != from.next_frame_seq++) shared_.Violate("a frame number is left out");
  if (OutlivesTheDevice()) shared_.Violate("an Attach outlives the device that was lost in it");
  cache_.Hear(step);
  AskIfLost();
  const Load& load = step.load;
  const uint64_t pages = load.free_blocks + load.evictable_blocks + load.held_blocks;
  const bool told = pages + load.steps_total > 0;  // nothing is known before the first output
  if (told && pages != static_cast<uint64_t>(shared_.scenario.engine.page_count)) {
    shared_.Violate("free, evictable and held pages are " + std::to_string(pages));
  }
  if (step.last_admitted_submit >= next_submit_number_) {
    shared_.Violate("a Submit is said to be seen that was not sent");
  }
  if (step.state == WorkerState::kStuck) shared_.coverage.Add("stuck frames");
  for (const Admitted& admitted : step.admitted) {
    Client* client = CurrentAttempt(admitted.key);
    if (client == nullptr) continue;
    if (client->plan->bad) shared_.Violate("a bad Submit was admitted");
    if (client->plan->submit.sampling.prompt_logprobs > 0 && admitted.cached_tokens > 0) {
      shared_.Violate(Name(*client) + " has its prompt scored, and found some of it in the cache");
    }
  }
  for (const PromptLogprobs& part : step.prompt_logprobs) Take(part);
  for (const Output& output : step.outputs) Take(output);
  for (const Ended& ended : step.ended) Take(ended);
  for (const Refused& refused : step.refused) Take(refused);
}

SimRouter::Client* SimRouter::CurrentAttempt(const AttemptKey& key) {
  const auto found = clients_.find(key.request.value());
  if (found == clients_.end()) {
    shared_.Violate("a word about a request that nobody made");
    return nullptr;
  }
  return found->second.attempt == key.attempt.value() ? &found->second : nullptr;
}

void SimRouter::Take(const Output& output) {
  Client* client = CurrentAttempt(output.key);
  if (client == nullptr) return;  // of an attempt that was given up
  const std::string name = Name(*client);
  if (!client->attempt_live) return shared_.Violate(name + " gets tokens after its end");
  if (output.choice >= client->choices.size()) {
    return shared_.Violate(name + " gets tokens of a choice that is none");
  }
  Choice& choice = client->choices[output.choice];
  if (choice.ended) return shared_.Violate(name + " gets tokens after its choice's end");
  if (output.first_index != choice.tokens.size()) {
    return shared_.Violate(name + " gets index " + std::to_string(output.first_index) + " after " +
                           std::to_string(choice.tokens.size()));
  }
  if (client->cancelled_at >= 0 &&
      shared_.Now() > client->cancelled_at + kSlack + shared_.excuse_us) {
    shared_.Violate(name + " gets tokens long after its Cancel");
  }
  if (client->plan->nan) shared_.Violate(name + " gets tokens out of what are no numbers");
  CheckScored(*client);
  if (client->deadline >= 0 && shared_.Now() > client->deadline + kSlack + shared_.excuse_us) {
    shared_.Violate(name + " gets tokens after its deadline");
  }
  const Submit& submit = client->plan->submit;
  if (submit.initial_window > 0 && submit.sampling.beam_width == 0 &&
      output.first_index + output.ids.size() > choice.granted) {
    shared_.Violate(name + " gets tokens beyond its window");
  }
  if (output.accepted_prediction_tokens + output.rejected_prediction_tokens > 0) {
    if (client->prediction.empty()) shared_.Violate(name + " hears of a prediction it has not");
    shared_.coverage.Add("accepted of predictions", output.accepted_prediction_tokens);
    shared_.coverage.Add("rejected of predictions", output.rejected_prediction_tokens);
  }
  for (size_t i = 0; i < output.ids.size(); ++i) {
    choice.tokens.push_back(output.ids[i]);
    Check(choice, output, i);
  }
  GrantAfter(*client, output.choice);
  const int64_t finish = client->plan->finishes_at;
  const int64_t count = static_cast<int64_t>(choice.tokens.size());
  if (output.choice == 0 && finish >= 0 && count >= finish && choice.finish_count < 0) {
    choice.finish_count = std::max(finish, static_cast<int64_t>(choice.resumed));
    Send(EncodeFinish({output.key, 0, EndReason::kStop, static_cast<uint32_t>(finish)}));
    shared_.coverage.Add("finishes");
  }
}

// The token just taken, and its logprobs, against the reference.
void SimRouter::Check(const Choice& choice, const Output& output, size_t at) {
  const size_t index = choice.tokens.size() - 1;
  const test::ReferenceAnswer& expected = choice.expected;
  shared_.coverage.Add("tokens");
  if (index >= expected.tokens.size() || expected.tokens[index] != choice.tokens[index]) {
    return shared_.Violate("token " + std::to_string(index) + " differs from the reference");
  }
  if (!expected.logprob_bits.empty() &&
      (at >= output.logprobs.size() ||
       std::bit_cast<uint32_t>(output.logprobs[at]) != expected.logprob_bits[index])) {
    return shared_.Violate("a logprob differs from the reference");
  }
  if (expected.top.empty()) return;
  if (at >= output.top.size() || output.top[at].ids != expected.top[index].ids ||
      output.top[at].logprobs != expected.top[index].logprobs) {
    shared_.Violate("the best candidates differ from the reference");
  }
}

// Each position once, in order, as the reference has it.
void SimRouter::Take(const PromptLogprobs& part) {
  Client* client = CurrentAttempt(part.key);
  if (client == nullptr) return;
  const std::string name = Name(*client);
  if (!client->attempt_live || !client->scores) {
    return shared_.Violate(name + " gets logprobs of its prompt that are not due");
  }
  if (client->plan->nan) shared_.Violate(name + " gets logprobs out of what are no numbers");
  const PromptLogprobs& expected = client->scored;
  const size_t first = client->scored_count;
  const size_t count = part.logprobs.size();
  if (part.first_position != first + 1 || count == 0 || part.ranks.size() != count ||
      part.top.size() != (expected.top.empty() ? 0 : count) ||
      first + count > expected.logprobs.size()) {
    return shared_.Violate(name + " gets logprobs of its prompt from position " +
                           std::to_string(part.first_position) + " on after " +
                           std::to_string(first));
  }
  client->scored_count += count;
  shared_.coverage.Add("scored positions", count);
  shared_.coverage.Add(first > 0 ? "scored in parts" : "scored prompts");
  for (size_t i = 0; i < count; ++i) {
    const bool same =
        std::bit_cast<uint32_t>(part.logprobs[i]) ==
            std::bit_cast<uint32_t>(expected.logprobs[first + i]) &&
        part.ranks[i] == expected.ranks[first + i] &&
        (part.top.empty() || (part.top[i].ids == expected.top[first + i].ids &&
                              part.top[i].logprobs == expected.top[first + i].logprobs));
    if (!same) return shared_.Violate(name + ": its prompt's logprobs differ from the reference");
  }
}

// An answer does not begin before its prompt has been told.
void SimRouter::CheckScored(const Client& client) const {
  if (client.scores && client.scored_count < client.scored.logprobs.size()) {
    shared_.Violate(Name(client) + " goes on with " + std::to_string(client.scored_count) +
                    " positions of its prompt scored");
  }
}

void SimRouter::Take(const Ended& ended) {
  Client* client = CurrentAttempt(ended.key);
  if (client == nullptr) return;
  const std::string name = Name(*client);
  if (!client->attempt_live || ended.choice >= client->choices.size()) {
    return shared_.Violate(name + " hears of an end that cannot be");
  }
  Choice& choice = client->choices[ended.choice];
  if (choice.ended) return shared_.Violate(name + " hears of the same end twice");
  choice.ended = choice.ended_here = true;
  shared_.coverage.Add("ends " + std::to_string(static_cast<int>(ended.reason)));
  if (client->plan->submit.sampling.beam_width > 0 && choice.tokens == choice.expected.tokens) {
    shared_.coverage.Add("beam searches");
  }
  CheckEnd(*client, choice, ended);
  const bool all = std::all_of(client->choices.begin(), client->choices.end(),
                               [](const Choice& c) { return c.ended; });
  if (ended.last_choice != all) shared_.Violate(name + ": last_choice is not what it says");
  if (!ended.last_choice) return;
  CheckUsage(*client, ended.usage);
  told_usage_[ended.key] = ended.usage;
  client->attempt_live = false;
  if (client->plan->repeats_ended && !shared_.draining) {
    shared_.coverage.Add("repeats of ended");
    ++client->repeats;
    for (std::string& frame : EncodeSubmit(MakeSubmit(*client))) Send(std::move(frame));
  }
  Over(*client);
}

void SimRouter::CheckEnd(const Client& client, Choice& choice, const Ended& ended) {
  const RequestPlan& plan = *client.plan;
  const test::ReferenceAnswer& expected = choice.expected;
  const bool whole = choice.tokens == expected.tokens && expected.reason == ended.reason;
  bool may = false;
  switch (ended.reason) {
    case EndReason::kStop:
      may = whole && expected.by_stop_token == ended.by_stop_token &&
            expected.stop_token_id == ended.stop_token_id;
      if (!may && choice.finish_count >= 0) may = choice.counted_by_finish = true;
      break;
    case EndReason::kLength:
      may = whole;
      CheckScored(client);
      break;
    case EndReason::kCancelled:
      may = client.cancelled || (client.cancelled_one && &choice == &client.choices.front());
      break;
    case EndReason::kFailed:
      may = plan.nan || shared_.failed_seeds.contains(plan.submit.sampling.seed) ||
            std::any_of(client.choices.begin(), client.choices.end(),
                        [](auto& c) { return c.expected.reason == EndReason::kFailed; });
      break;
    case EndReason::kDeadline:
      may = client.deadline >= 0 && shared_.Now() + 2 * kMicrosPerMilli >= client.deadline;
      break;
    case EndReason::kSlowClient:
      may = plan.stalls_at >= 0 || shared_.excuse_us > 0;
      break;
    case EndReason::kDrained:
      may = shared_.draining && ended.retryable;
      break;
    default:
      break;
  }
  if (!may) {
    shared_.Violate(Name(client) + " ended with reason " +
                    std::to_string(static_cast<int>(ended.reason)) + " after " +
                    std::to_string(choice.tokens.size()) + " tokens");
  }
  if (client.deadline >= 0 && shared_.Now() > client.deadline + kSlack + shared_.excuse_us) {
    shared_.Violate(Name(client) + " ended long after its deadline");
  }
}

void SimRouter::CheckUsage(const Client& client, const AttemptUsage& usage) {
  uint64_t counted = 0;
  uint64_t least = 0;
  for (const Choice& choice : client.choices) {
    if (!choice.ended_here) continue;
    const uint64_t taken = choice.counted_by_finish ? static_cast<uint64_t>(choice.finish_count)
                                                    : choice.tokens.size();
    counted += taken - choice.resumed;
    // A text that is complete ends without a token that would say so: a Finish may have come first.
    const bool either = choice.finish_count >= 0 && choice.expected.reason == EndReason::kStop &&
                        !choice.expected.by_stop_token;
    least += (either ? static_cast<uint64_t>(choice.finish_count) : taken) - choice.resumed;
  }
  const std::string name = Name(client);
  const uint64_t billed = usage.generated_tokens - usage.discarded_tokens;
  if (billed < least || billed > counted) {
    shared_.Violate(name + " is billed " + std::to_string(usage.generated_tokens) + " less " +
                    std::to_string(usage.discarded_tokens) + " tokens for " +
                    std::to_string(counted));
  }
  if (usage.prompt_tokens != client.plan->submit.prompt_ids.size()) {
    shared_.Violate(name + " is billed another prompt");
  }
  if (client.plan->submit.sampling.prompt_logprobs > 0 && usage.cached_tokens > 0) {
    shared_.Violate(name + " has its prompt scored, and is billed less for it");
  }
  if (usage.recomputed_tokens > usage.computed_tokens ||
      usage.cached_tokens > client.choices.size() * kMaxLength) {
    shared_.Violate(name + " is billed work that cannot be");
  }
}

void SimRouter::Take(const Refused& refused) {
  Client* client = CurrentAttempt(refused.key);
  if (client == nullptr) return;
  shared_.coverage.Add("refused " + std::to_string(static_cast<int>(refused.code)));
  if (client->repeats > 0) {  // one of the two that were sent
    --client->repeats;
    const RefusalCode code = refused.code;
    if (code != RefusalCode::kDuplicate && code != RefusalCode::kQueueFull &&
        code != RefusalCode::kDraining && code != RefusalCode::kDeadlinePassed &&
        !client->plan->bad) {
      shared_.Violate(Name(*client) + " is refused: " + refused.message);
    }
    return;
  }
  if (!client->attempt_live) {
    return shared_.Violate(Name(*client) + " is refused though it is not waiting for that");
  }
  client->attempt_live = false;
  switch (refused.code) {
    case RefusalCode::kQueueFull:
      SendSoon(kRetry, [this, client] {
        if (!client->over && !client->attempt_live && !client->waits_for_attach) {
          SendSubmit(*client);
        }
      });
      return;
    case RefusalCode::kDraining:
      if (!shared_.draining) shared_.Violate("a worker refuses as draining that is not");
      return Over(*client);
    case RefusalCode::kDeadlinePassed:
      if (client->deadline < 0 || shared_.Now() + 2 * kMicrosPerMilli < client->deadline) {
        shared_.Violate(Name(*client) + " is refused before its deadline");
      }
      return Over(*client);
    default:
      if (!client->plan->bad) {
        shared_.Violate(Name(*client) + " is refused: " + refused.message);
      }
      return Over(*client);
  }
}

void SimRouter::OnRecord(const AttemptRecord& record) {
  const auto told = told_usage_.find(record.key);
  if (told != told_usage_.end() && told->second.generated_tokens != record.usage.generated_tokens) {
    shared_.Violate("a record says another thing than the end did");
  }
  const auto found = attach_of_.find(record.key);
  if (found == attach_of_.end()) return shared_.Violate("a record of an attempt that nobody made");
  const Client& client = clients_.at(record.key.request.value());
  if (record.adapter != client.plan->submit.adapter) {
    shared_.Violate(Name(client) + " is recorded with another adapter");
  }
  if (found->second < greeted_number_) {
    // The router is lost before its next Attach is served.
    const auto next =
        attach_of_.find({record.key.request, Attempt(record.key.attempt.value() + 1)});
    const bool replaced = next != attach_of_.end() && next->second == found->second;
    const bool cancelled = client.cancelled || client.cancelled_one || replaced;
    const bool late = shared_.Now() > greeted_at_ + kSlack + shared_.excuse_us;
    if (late || (record.reason == EndReason::kCancelled && !cancelled)) {
      shared_.Violate(Name(client) + ": an attempt outlives its Attach");
    }
  } else if (record.reason == EndReason::kRouterLost && !silent_ &&
             found->second == attach_number_ && !attachments_.back()->closed) {
    shared_.Violate(Name(client) + " is lost though its router is there");
  }
}

}  // namespace quire::sim

// How a session handles each kind of frame of its router.
#include <algorithm>
#include <utility>

#include "common/wire/features.h"
#include "worker/rpc/attach_session.h"

namespace quire {
namespace {

constexpr int64_t kMaxRemainingMs = int64_t{1} << 40;  // 34 years: beyond it there is no deadline

// The trace and the request that the refusal belongs to.
void RememberTrace(const Submit& submit, Refused& refused) {
  refused.traceparent = submit.traceparent;
  refused.tracestate = submit.tracestate;
  refused.request_id = submit.request_id;
}

std::vector<std::string> NeededFeatures(const Submit& submit) {
  std::vector<std::string> needed = RequiredFeatures(submit.sampling, submit.choices.size());
  for (const ResumedChoice& choice : submit.choices) {
    if (choice.outputs.empty() && !choice.ended) continue;
    needed.emplace_back(kFeatureResume);
    break;
  }
  if (submit.constraint.kind != ConstraintKind::kNone) needed.emplace_back(kFeatureConstraint);
  if (submit.thought_budget != nullptr) needed.emplace_back(kFeatureThoughtBudget);
  if (!submit.adapter.empty()) needed.emplace_back(kFeatureAdapter);
  needed.insert(needed.end(), submit.required_features.begin(), submit.required_features.end());
  return needed;
}

int64_t DeadlineOf(const Submit& submit, Micros now) {
  if (submit.remaining_ms == 0 || submit.remaining_ms > kMaxRemainingMs) return kNeverMicros;
  return now + static_cast<int64_t>(submit.remaining_ms) * kMicrosPerMilli;
}

}  // namespace

void AttachSession::Handle(RouterMessage message) {
  std::visit([this](auto& body) { Handle(std::move(body)); }, message);
}

void AttachSession::Handle(RouterHello hello) {
  router_ = std::move(hello);
  AttachVerdict verdict;
  if (router_.protocol_max < kProtocolMin || router_.protocol_min > kProtocolMax) {
    verdict.message = "protocol " + std::to_string(router_.protocol_min) + " to " +
                      std::to_string(router_.protocol_max) +
                      " is not spoken here; this worker speaks " + std::to_string(kProtocolMin) +
                      " to " + std::to_string(kProtocolMax);
  } else {
    verdict = host_.OnHello(*this);
  }
  if (!verdict.message.empty()) {
    metrics_.attaches_refused.Add();
    End(absl::FailedPreconditionError(AbslView(verdict.message)), verdict.message, verdict.fenced);
    return;
  }
  metrics_.attaches.Add();
  state_ = State::kAttached;
  WorkerHello answer = worker_;
  answer.protocol = std::min(router_.protocol_max, kProtocolMax);
  stream_->Write(EncodeWorkerHello(answer));
  if (!host_.held_adapters().empty()) TellAdapters();
  if (host_.draining()) TellDraining();
  WriteStep();
}

bool AttachSession::TakeSubmitNumber(uint64_t number) {
  if (number > last_submit_number_) {
    last_submit_number_ = number;
    return true;
  }
  ProtocolError("submit.submit_number: " + std::to_string(number) + " does not follow " +
                std::to_string(last_submit_number_));
  return false;
}

Refused AttachSession::CheckSubmit(const Submit& submit) const {
  Refused refused{submit.key, RefusalCode::kUnspecified, "", "", 0};
  if (host_.draining()) {
    refused.code = RefusalCode::kDraining;
    refused.message = "this worker is draining";
  } else if (live_.contains(submit.key) || assembling_.contains(submit.key)) {
    refused.code = RefusalCode::kDuplicate;
    refused.field = "request_number";
    refused.message = "this attempt has been submitted before";
  } else if (!submit.model_id.empty() && submit.model_id != worker_.model_id) {
    refused.code = RefusalCode::kWrongModel;
    refused.field = "model_id";
    refused.message = "model_id: this worker serves " + worker_.model_id;
  } else if (live_.size() + assembling_.size() >= kMaxLiveAttempts) {
    refused.code = RefusalCode::kQueueFull;
    refused.message = "this router has 8192 requests here";
    refused.retry_after_ms = kQueueFullRetryMs;
  } else {
    const std::vector<std::string> needed = NeededFeatures(submit);
    const std::string_view missing = MissingFeature(needed, worker_.features);
    if (missing.empty()) return refused;
    refused.code = RefusalCode::kUnsupported;
    refused.field = missing;
    refused.message = std::string(missing) + ": is not served by this worker";
  }
  return refused;
}

void AttachSession::Handle(BadSubmit bad) {
  if (TakeSubmitNumber(bad.submit_number)) Refuse(std::move(bad.refused));
}

void AttachSession::Handle(SubmitFrame frame) {
  if (!TakeSubmitNumber(frame.submit.submit_number)) return;
  Refused refused = CheckSubmit(frame.submit);
  if (refused.code == RefusalCode::kUnspecified && frame.parts > 0 &&
      assembling_.size() >= kMaxAssembling) {
    refused.code = RefusalCode::kQueueFull;
    refused.field = "parts";
    refused.message = "16 prompts in parts are under way on this Attach";
    refused.retry_after_ms = kQueueFullRetryMs;
  }
  if (refused.code != RefusalCode::kUnspecified) {
    RememberTrace(frame.submit, refused);
    return Refuse(std::move(refused));
  }
  const AttemptKey key = frame.submit.key;
  const int64_t deadline = DeadlineOf(frame.submit, Now());
  SubmitCommand command{router_.instance, std::move(frame.submit), deadline};
  if (frame.parts == 0) return Submitted(std::move(command));
  const SharedTokens first = std::exchange(command.submit.prompt_ids, {});
  assembling_.emplace(
      key, Assembly{std::move(command), {first.begin(), first.end()}, frame.parts, 0, {}});
}

void AttachSession::Handle(SubmitPart part) {
  const auto it = assembling_.find(part.key);
  if (it == assembling_.end()) return;  // refused or cancelled meanwhile; its parts were under way
  Assembly& assembly = it->second;
  if (part.index != assembly.next_part) {
    return ProtocolError("submit_part.index: must be " + std::to_string(assembly.next_part) +
                         ", is " + std::to_string(part.index));
  }
  std::vector<TokenId>& ids = assembly.prompt_ids;
  Refused refused{part.key, RefusalCode::kInvalid, "prompt_ids", "", 0};
  if (ids.size() + part.prompt_ids.size() > worker_.limits.max_model_len) {
    refused.message = "prompt_ids: is longer than the context of " +
                      std::to_string(worker_.limits.max_model_len) + " tokens";
  } else {
    refused.message = StatusMessage(
        CheckTokenIds("prompt_ids", part.prompt_ids, static_cast<int32_t>(worker_.vocab_size)));
  }
  if (!refused.message.empty()) {
    RememberTrace(assembly.command.submit, refused);
    assembling_.erase(it);
    return Refuse(std::move(refused));
  }
  ids.insert(ids.end(), part.prompt_ids.begin(), part.prompt_ids.end());
  if (++assembly.next_part == assembly.parts) Assembled(part.key);
}

void AttachSession::Assembled(const AttemptKey& key) {
  Assembly assembly = std::move(assembling_.extract(key).mapped());
  assembly.command.submit.prompt_ids = std::move(assembly.prompt_ids);
  Submitted(std::move(assembly.command));
  for (const auto& [choice, up_to] : assembly.grants) {
    if (live_.contains(key)) PushOrEnd(GrantCommand{router_.instance, {key, choice, up_to}});
  }
}

void AttachSession::Submitted(SubmitCommand command) {
  const AttemptKey key = command.submit.key;
  if (command.submit.constraint.kind != ConstraintKind::kNone) {
    Refused refused = host_.Compile(command);
    if (refused.code != RefusalCode::kUnspecified) {
      refused.key = key;
      RememberTrace(command.submit, refused);
      return Refuse(std::move(refused));
    }
  }
  const Live live{static_cast<uint32_t>(command.submit.choices.size()), command.compiling};
  EngineCommand pushed(std::move(command));
  if (host_.Push(std::move(pushed))) {
    live_.emplace(key, live);
    return;
  }
  Refused refused{key, RefusalCode::kQueueFull, "", "the worker's queue is full",
                  kQueueFullRetryMs};
  if (live.compiling != 0) host_.StopCompiling(live.compiling);
  RememberTrace(std::get<SubmitCommand>(pushed).submit, refused);
  Refuse(std::move(refused));
}

void AttachSession::EndAssembling(const AttemptKey& key, uint32_t choice, bool one_choice,
                                  EndReason reason) {
  std::vector<ResumedChoice>& choices = assembling_.at(key).command.submit.choices;
  if (one_choice && choice >= choices.size()) {
    return ProtocolError("choice: " + std::to_string(choice) + " does not exist");
  }
  RouterOutput output;
  for (uint32_t i = 0; i < choices.size(); ++i) {
    if (choices[i].ended || (one_choice && i != choice)) continue;
    choices[i].ended = true;
    Ended ended;
    ended.key = key;
    ended.choice = i;
    ended.reason = reason;
    output.ended.push_back(std::move(ended));
  }
  const bool all_ended =
      std::all_of(choices.begin(), choices.end(), [](const auto& c) { return c.ended; });
  if (all_ended) assembling_.erase(key);
  if (output.ended.empty()) return;
  output.ended.back().last_choice = all_ended;
  AddToBacklog(output);
}

// The attempt is over, or this Attach.
void AttachSession::Forget(const AttemptKey& key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return;
  if (found->second.compiling != 0) host_.StopCompiling(found->second.compiling);
  live_.erase(found);
}

bool AttachSession::FindLive(const AttemptKey& key, uint32_t choice, std::string_view what) {
  const auto it = live_.find(key);
  if (it == live_.end()) return false;  // it ended while the frame was under way
  if (choice < it->second.choices) return true;
  ProtocolError(std::string(what) + ".choice: " + std::to_string(choice) + " does not exist");
  return false;
}

void AttachSession::PushOrEnd(EngineCommand command) {
  if (host_.Push(std::move(command))) return;
  // A lost Grant or Cancel would leave a stream hanging; the router recovers from a lost Attach.
  End(absl::ResourceExhaustedError("the engine's queue is full"), "the engine's queue is full",
      false);
}

void AttachSession::Handle(const Cancel& cancel) {
  if (assembling_.contains(cancel.key)) {
    return EndAssembling(cancel.key, cancel.choice, cancel.one_choice, EndReason::kCancelled);
  }
  if (FindLive(cancel.key, cancel.one_choice ? cancel.choice : 0, "cancel")) {
    PushOrEnd(CancelCommand{router_.instance, cancel});
  }
}

void AttachSession::Handle(const Finish& finish) {
  if (assembling_.contains(finish.key)) {
    return EndAssembling(finish.key, finish.choice, true, finish.reason);
  }
  if (FindLive(finish.key, finish.choice, "finish")) {
    PushOrEnd(FinishCommand{router_.instance, finish});
  }
}

void AttachSession::Handle(const Grant& grant) {
  const auto it = assembling_.find(grant.key);
  if (it != assembling_.end()) {
    if (grant.choice >= it->second.command.submit.choices.size()) {
      return ProtocolError("grant.choice: " + std::to_string(grant.choice) + " does not exist");
    }
    uint64_t& up_to = it->second.grants[grant.choice];
    up_to = std::max(up_to, grant.up_to_index);
    return;
  }
  if (FindLive(grant.key, grant.choice, "grant")) {
    PushOrEnd(GrantCommand{router_.instance, grant});
  }
}

void AttachSession::Handle(const SnapshotRequest& request) {
  if (MissingFeature({std::string(kFeatureSnapshot)}, worker_.features).empty()) {
    return PushOrEnd(SnapshotCommand{router_.instance, request.snapshot_number});
  }
  ProtocolError("snapshot_request: this worker's hello does not list the feature snapshot");
}

void AttachSession::Handle(const Heartbeat& heartbeat) {
  heartbeat_echo_ms_ = heartbeat.sent_at_ms;
  has_news_ = true;
}

void AttachSession::Handle(const AdapterOrder& order) {
  if (MissingFeature({std::string(kFeatureAdapterOrders)}, worker_.features).empty()) {
    return host_.OnAdapterOrder(*this, order);
  }
  ProtocolError("adapter_order: this worker's hello does not list the feature adapter_orders");
}

}  // namespace quire

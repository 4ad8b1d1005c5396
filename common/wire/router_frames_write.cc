#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/wire/router_frames.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

std::string Bytes(const pb::RouterFrame& frame) {
  std::string bytes = frame.SerializeAsString();
  QUIRE_CHECK_MSG(bytes.size() <= kMaxFrameBytes, "a frame of ours fits the wire's limit");
  return bytes;
}

void FillSampling(const SamplingParams& from, pb::SamplingParams* to) {
#define QUIRE_WRITE_NUMBER(name, range, feature) to->set_##name(from.name);
  QUIRE_SAMPLING_NUMBERS(QUIRE_WRITE_NUMBER)
#undef QUIRE_WRITE_NUMBER
#define QUIRE_WRITE_LIST(name, most, feature) \
  to->mutable_##name()->Add(from.name.begin(), from.name.end());
  QUIRE_SAMPLING_LISTS(QUIRE_WRITE_LIST)
#undef QUIRE_WRITE_LIST
  to->set_seed(from.seed);
  to->set_ignore_eos(from.ignore_eos);
  for (const auto& [id, bias] : from.logit_bias) (*to->mutable_logit_bias())[id] = bias;
  for (const std::vector<TokenId>& word : from.bad_words) {
    to->add_bad_words()->mutable_ids()->Add(word.begin(), word.end());
  }
  to->set_logprobs(static_cast<uint32_t>(from.logprobs));
  to->set_prompt_logprobs(static_cast<uint32_t>(from.prompt_logprobs));
  to->set_beam_width(static_cast<uint32_t>(from.beam_width));
  to->set_early_stopping(static_cast<uint32_t>(from.early_stopping));
}

// Resumed outputs and the prediction share the first frame with the prompt's start. What remains
// of the frame after the outputs is the prediction's, which is cut, then the prompt's.
struct FirstFrame {
  std::span<const TokenId> prediction, prompt;
};
FirstFrame FirstFrameOf(const Submit& submit) {
  size_t resumed = 0;
  for (const ResumedChoice& choice : submit.choices) resumed += choice.outputs.size();
  size_t left = resumed >= kMaxPromptIdsPerFrame ? 0 : kMaxPromptIdsPerFrame - resumed;
  const std::span<const TokenId> prediction = submit.prediction_ids, prompt = submit.prompt_ids;
  FirstFrame frame;
  frame.prediction = prediction.first(std::min({prediction.size(), left, kMaxPredictionIds}));
  left -= frame.prediction.size();
  frame.prompt = prompt.first(std::min(prompt.size(), left));
  return frame;
}

void FillConstraint(const Constraint& constraint, pb::Submit& to) {
  if (constraint.kind == ConstraintKind::kNone) return;
  pb::Constraint& field = *to.mutable_constraint();
  field.set_kind(static_cast<pb::Constraint::Kind>(constraint.kind));
  field.set_source(constraint.source);
  field.set_whitespace_pattern(constraint.whitespace_pattern);
  field.set_compact(constraint.compact);
  field.set_closed(constraint.closed);
}

void FillMarks(const std::vector<ThoughtBudget::Mark>& marks,
               google::protobuf::RepeatedPtrField<pb::TokenSequence>& to) {
  for (const ThoughtBudget::Mark& mark : marks) {
    to.Add()->mutable_ids()->Add(mark.begin(), mark.end());
  }
}

void FillThoughtBudget(const ThoughtBudget& budget, pb::ThoughtBudget& to) {
  to.set_tokens(budget.tokens);
  to.set_opened(budget.opened);
  to.set_repeats(budget.repeats);
  FillMarks(budget.opens, *to.mutable_opens());
  FillMarks(budget.closes, *to.mutable_closes());
  to.mutable_end()->Add(budget.end.begin(), budget.end.end());
}

void FillSubmit(const Submit& submit, pb::Submit* to) {
  to->set_request_number(submit.key.request.value());
  to->set_attempt(submit.key.attempt.value());
  to->set_submit_number(submit.submit_number);
  for (const ResumedChoice& choice : submit.choices) {
    pb::ResumedChoice* resumed = to->add_choices();
    resumed->mutable_outputs()->Add(choice.outputs.begin(), choice.outputs.end());
    resumed->set_ended(choice.ended);
  }
  FillSampling(submit.sampling, to->mutable_sampling());
  to->set_remaining_ms(submit.remaining_ms);
  to->set_priority(submit.priority);
  to->set_tenant(submit.tenant);
  to->set_salt(submit.salt);
  to->set_adapter(submit.adapter);
  FillConstraint(submit.constraint, *to);
  if (submit.thought_budget != nullptr) {
    FillThoughtBudget(*submit.thought_budget, *to->mutable_thought_budget());
  }
  to->set_initial_window(submit.initial_window);
  for (const std::string& feature : submit.required_features) to->add_required_features(feature);
  to->set_traceparent(submit.traceparent);
  to->set_tracestate(submit.tracestate);
  to->set_request_id(submit.request_id);
  to->set_model_id(submit.model_id);
}

}  // namespace

std::string EncodeHello(const RouterHello& hello) {
  pb::RouterFrame frame;
  pb::RouterHello* to = frame.mutable_hello();
  to->set_router_instance(hello.instance.value());
  to->set_attach_number(hello.attach_number);
  to->set_protocol_min(hello.protocol_min);
  to->set_protocol_max(hello.protocol_max);
  for (const std::string& feature : hello.features) to->add_features(feature);
  to->set_wants_events(hello.wants_events);
  return Bytes(frame);
}

std::vector<std::string> EncodeSubmit(const Submit& submit) {
  QUIRE_CHECK_MSG(!submit.choices.empty(), "a submit has at least one choice");
  const std::span<const TokenId> ids = submit.prompt_ids;
  const FirstFrame first_frame = FirstFrameOf(submit);
  const size_t first = first_frame.prompt.size();
  const size_t parts = (ids.size() - first + kMaxPromptIdsPerFrame - 1) / kMaxPromptIdsPerFrame;
  std::vector<std::string> frames;
  frames.reserve(1 + parts);
  // Every request has one: its parts share a piece of memory that is freed as a whole.
  alignas(8) std::array<char, 4096> first_block;
  google::protobuf::ArenaOptions options;
  options.initial_block = first_block.data();
  options.initial_block_size = first_block.size();
  google::protobuf::Arena arena(options);
  auto* frame = google::protobuf::Arena::CreateMessage<pb::RouterFrame>(&arena);
  FillSubmit(submit, frame->mutable_submit());
  frame->mutable_submit()->set_parts(static_cast<uint32_t>(parts));
  frame->mutable_submit()->mutable_prompt_ids()->Add(first_frame.prompt.begin(),
                                                     first_frame.prompt.end());
  frame->mutable_submit()->mutable_prediction_ids()->Add(first_frame.prediction.begin(),
                                                         first_frame.prediction.end());
  frames.push_back(Bytes(*frame));
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = first + part * kMaxPromptIdsPerFrame;
    const size_t end = std::min(ids.size(), begin + kMaxPromptIdsPerFrame);
    pb::RouterFrame part_frame;
    pb::SubmitPart* to = part_frame.mutable_submit_part();
    to->set_request_number(submit.key.request.value());
    to->set_attempt(submit.key.attempt.value());
    to->set_index(static_cast<uint32_t>(part));
    to->mutable_prompt_ids()->Add(ids.begin() + begin, ids.begin() + end);
    frames.push_back(Bytes(part_frame));
  }
  return frames;
}

std::string EncodeCancel(const Cancel& cancel) {
  pb::RouterFrame frame;
  pb::Cancel* to = frame.mutable_cancel();
  to->set_request_number(cancel.key.request.value());
  to->set_attempt(cancel.key.attempt.value());
  to->set_one_choice(cancel.one_choice);
  to->set_choice(cancel.choice);
  return Bytes(frame);
}

std::string EncodeFinish(const Finish& finish) {
  QUIRE_CHECK_MSG(finish.reason == EndReason::kStop || finish.reason == EndReason::kLength,
                  "a router ends a choice by a stop string or a length");
  pb::RouterFrame frame;
  pb::Finish* to = frame.mutable_finish();
  to->set_request_number(finish.key.request.value());
  to->set_attempt(finish.key.attempt.value());
  to->set_choice(finish.choice);
  to->set_reason(finish.reason == EndReason::kStop ? pb::STOP : pb::LENGTH);
  to->set_output_count(finish.output_count);
  return Bytes(frame);
}

std::string EncodeGrant(const Grant& grant) {
  pb::RouterFrame frame;
  pb::Grant* to = frame.mutable_grant();
  to->set_request_number(grant.key.request.value());
  to->set_attempt(grant.key.attempt.value());
  to->set_choice(grant.choice);
  to->set_up_to_index(grant.up_to_index);
  return Bytes(frame);
}

std::string EncodeSnapshotRequest(uint64_t snapshot_number) {
  pb::RouterFrame frame;
  frame.mutable_snapshot_request()->set_snapshot_number(snapshot_number);
  return Bytes(frame);
}

std::string EncodeAdapterOrder(const AdapterOrder& order) {
  QUIRE_CHECK(order.name.size() <= kMaxAdapterBytes && order.path.size() <= kMaxAdapterPathBytes);
  pb::RouterFrame frame;
  pb::AdapterOrder* to = frame.mutable_adapter_order();
  to->set_number(order.number);
  to->set_kind(static_cast<pb::AdapterOrder::Kind>(order.kind));
  to->set_name(order.name);
  to->set_path(order.path);
  to->set_replace(order.replace);
  to->set_any_path(order.any_path);
  return Bytes(frame);
}

std::string EncodeHeartbeat(uint64_t sent_at_ms) {
  pb::RouterFrame frame;
  frame.mutable_heartbeat()->set_sent_at_ms(sent_at_ms);
  return Bytes(frame);
}

}  // namespace quire

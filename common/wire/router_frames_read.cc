// From bytes of a router to plain values.
#include <algorithm>
#include <memory>
#include <string>

#include "common/wire/router_frames.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

template <class Message>
AttemptKey KeyOf(const Message& message) {
  return {RequestNumber(message.request_number()), Attempt(message.attempt())};
}

absl::Status CheckBytes(std::string_view field, size_t size, size_t limit) {
  if (size <= limit) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": has " + std::to_string(size) + " bytes; at most " +
                         std::to_string(limit) + " are served");
}

absl::Status CheckCount(std::string_view field, int count, size_t limit) {
  if (static_cast<size_t>(count) <= limit) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": has " + std::to_string(count) +
                         " entries; at most " + std::to_string(limit) + " are served");
}

absl::Status CheckNoUnknownFields(std::string_view name, const google::protobuf::Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  if (unknown.field_count() == 0) return absl::OkStatus();
  return absl::UnimplementedError(AbslView(std::string(name) + ": field number " +
                                           std::to_string(unknown.field(0).number()) +
                                           " is unknown to this worker"));
}

absl::StatusOr<std::vector<std::string>> ReadFeatures(
    std::string_view field, const google::protobuf::RepeatedPtrField<std::string>& from) {
  QUIRE_RETURN_IF_ERROR(CheckCount(field, from.size(), kMaxFeatures));
  for (const std::string& feature : from) {
    QUIRE_RETURN_IF_ERROR(CheckBytes(field, feature.size(), kMaxFeatureBytes));
  }
  return std::vector<std::string>(from.begin(), from.end());
}

template <class Ids>
std::vector<TokenId> Copy(const Ids& ids) {
  return {ids.begin(), ids.end()};
}

// Zero is "not set" where it is outside the field's range.
template <class Number>
Number OrNeutral(Number value, Number neutral, const NumberRange& range) {
  return value == 0 && !range.Holds(0) ? neutral : value;
}

absl::StatusOr<SamplingParams> ReadSampling(const pb::SamplingParams& from, int32_t vocab_size) {
  QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("sampling", from));
  QUIRE_RETURN_IF_ERROR(
      CheckCount("logit_bias", static_cast<int>(from.logit_bias().size()), kMaxLogitBias));
  QUIRE_RETURN_IF_ERROR(CheckCount("bad_words", from.bad_words_size(), kMaxBadWords));
  if (from.logprobs() > kMaxLogprobs + 1 || from.prompt_logprobs() > kMaxLogprobs + 1) {
    return InvalidArgument("logprobs: must be in [0, 20]");
  }
  if (from.beam_width() > kMaxBeamWidth) return InvalidArgument("beam_width: must be in [0, 16]");
  if (from.early_stopping() > static_cast<uint32_t>(EarlyStopping::kNever)) {
    return InvalidArgument("early_stopping: must be in [0, 2]");
  }
  SamplingParams to;
#define QUIRE_READ_NUMBER(name, range, feature) \
  to.name = OrNeutral(from.name(), to.name, NumberRange(range));
  QUIRE_SAMPLING_NUMBERS(QUIRE_READ_NUMBER)
#undef QUIRE_READ_NUMBER
#define QUIRE_READ_LIST(name, most, feature)                          \
  QUIRE_RETURN_IF_ERROR(CheckCount(#name, from.name##_size(), most)); \
  to.name = Copy(from.name());
  QUIRE_SAMPLING_LISTS(QUIRE_READ_LIST)
#undef QUIRE_READ_LIST
  to.seed = from.seed();
  to.ignore_eos = from.ignore_eos();
  to.logit_bias.assign(from.logit_bias().begin(), from.logit_bias().end());
  std::sort(to.logit_bias.begin(), to.logit_bias.end());  // a map has no order of its own
  for (const pb::TokenSequence& word : from.bad_words()) to.bad_words.push_back(Copy(word.ids()));
  to.logprobs = static_cast<int32_t>(from.logprobs());
  to.prompt_logprobs = static_cast<int32_t>(from.prompt_logprobs());
  to.beam_width = static_cast<int32_t>(from.beam_width());
  // Zero is a length penalty of its own, but only a beam search has one.
  if (from.beam_width() == 0 && to.length_penalty == 0.0f) to.length_penalty = 1.0f;
  to.early_stopping = static_cast<EarlyStopping>(from.early_stopping());
  QUIRE_RETURN_IF_ERROR(ValidateSamplingParams(to, vocab_size));
  return to;
}

absl::Status ReadChoices(const pb::Submit& from, const DecodeLimits& limits, Submit& to) {
  if (from.choices_size() == 0) return InvalidArgument("choices: must hold at least one");
  const size_t max_choices = std::min<size_t>(limits.max_choices, kMaxChoices);
  QUIRE_RETURN_IF_ERROR(CheckCount("choices", from.choices_size(), max_choices));
  for (const pb::ResumedChoice& choice : from.choices()) {
    QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("choices", choice));
    to.choices.push_back({Copy(choice.outputs()), choice.ended()});
    QUIRE_RETURN_IF_ERROR(
        CheckTokenIds("choices.outputs", to.choices.back().outputs, limits.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status ReadConstraint(const pb::Constraint& from, Submit& to) {
  QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("constraint", from));
  QUIRE_RETURN_IF_ERROR(CheckBytes("constraint", from.source().size(), kMaxConstraintBytes));
  if (!pb::Constraint::Kind_IsValid(from.kind())) {
    return InvalidArgument("constraint: kind " + std::to_string(from.kind()) +
                           " is unknown to this worker");
  }
  const bool needs_source =
      from.kind() != pb::Constraint::NONE && from.kind() != pb::Constraint::JSON_OBJECT;
  if (needs_source == from.source().empty()) {
    return InvalidArgument(needs_source ? "constraint: its kind needs a source"
                                        : "constraint: has a source but no kind that reads it");
  }
  QUIRE_RETURN_IF_ERROR(CheckBytes("constraint.whitespace_pattern",
                                   from.whitespace_pattern().size(), kMaxWhitespacePatternBytes));
  to.constraint = {.kind = static_cast<ConstraintKind>(from.kind()),
                   .source = from.source(),
                   .whitespace_pattern = from.whitespace_pattern(),
                   .compact = from.compact(),
                   .closed = from.closed()};
  return absl::OkStatus();
}

absl::Status ReadMarks(const char* field,
                       const google::protobuf::RepeatedPtrField<pb::TokenSequence>& from,
                       int32_t vocab_size, std::vector<ThoughtBudget::Mark>& to) {
  QUIRE_RETURN_IF_ERROR(CheckCount(field, from.size(), kMaxThoughtMarks));
  for (const pb::TokenSequence& mark : from) {
    QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields(field, mark));
    if (mark.ids().empty()) return InvalidArgument(std::string(field) + ": a mark has no token");
    QUIRE_RETURN_IF_ERROR(CheckCount(field, mark.ids_size(), kMaxThoughtMarkIds));
    to.push_back(Copy(mark.ids()));
    QUIRE_RETURN_IF_ERROR(CheckTokenIds(field, to.back(), vocab_size));
  }
  return absl::OkStatus();
}

absl::Status ReadThoughtBudget(const pb::ThoughtBudget& from, int32_t vocab_size, Submit& to) {
  QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("thought_budget", from));
  auto budget = std::make_shared<ThoughtBudget>();
  budget->tokens = from.tokens();
  budget->opened = from.opened();
  budget->repeats = from.repeats();
  QUIRE_RETURN_IF_ERROR(ReadMarks("thought_budget.opens", from.opens(), vocab_size, budget->opens));
  QUIRE_RETURN_IF_ERROR(
      ReadMarks("thought_budget.closes", from.closes(), vocab_size, budget->closes));
  if (from.end().empty()) return InvalidArgument("thought_budget.end: has no token");
  QUIRE_RETURN_IF_ERROR(CheckCount("thought_budget.end", from.end_size(), kMaxThoughtEndIds));
  budget->end = Copy(from.end());
  QUIRE_RETURN_IF_ERROR(CheckTokenIds("thought_budget.end", budget->end, vocab_size));
  to.thought_budget = std::move(budget);
  return absl::OkStatus();
}

absl::Status ReadSubmitStrings(const pb::Submit& from, Submit& to) {
  QUIRE_RETURN_IF_ERROR(CheckBytes("tenant", from.tenant().size(), kMaxTenantBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("salt", from.salt().size(), kMaxSaltBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("adapter", from.adapter().size(), kMaxAdapterBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("traceparent", from.traceparent().size(), kMaxTraceparentBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("tracestate", from.tracestate().size(), kMaxTracestateBytes));
  QUIRE_RETURN_IF_ERROR(
      CheckBytes("request_id", from.request_id().size(), kMaxFrameRequestIdBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("model_id", from.model_id().size(), kMaxModelIdBytes));
  QUIRE_ASSIGN_OR_RETURN(to.required_features,
                         ReadFeatures("required_features", from.required_features()));
  to.tenant = from.tenant();
  to.salt = from.salt();
  to.adapter = from.adapter();
  to.traceparent = from.traceparent();
  to.tracestate = from.tracestate();
  to.request_id = from.request_id();
  to.model_id = from.model_id();
  return absl::OkStatus();
}

absl::StatusOr<SubmitFrame> ReadSubmit(const pb::Submit& from, const DecodeLimits& limits) {
  QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("submit", from));
  SubmitFrame to;
  QUIRE_RETURN_IF_ERROR(
      CheckCount("parts", static_cast<int>(std::min(from.parts(), 1u << 30)), kMaxSubmitParts));
  to.parts = from.parts();
  QUIRE_RETURN_IF_ERROR(CheckCount("prompt_ids", from.prompt_ids_size(), kMaxPromptIdsPerFrame));
  to.submit.key = KeyOf(from);
  to.submit.submit_number = from.submit_number();
  to.submit.prompt_ids = Copy(from.prompt_ids());
  QUIRE_RETURN_IF_ERROR(CheckTokenIds("prompt_ids", to.submit.prompt_ids, limits.vocab_size));
  if (to.parts == 0 && to.submit.prompt_ids.empty()) {
    return InvalidArgument("prompt_ids: is empty; at least one token is needed");
  }
  QUIRE_RETURN_IF_ERROR(
      CheckCount("prediction_ids", from.prediction_ids_size(), kMaxPredictionIds));
  if (!from.prediction_ids().empty()) to.submit.prediction_ids = Copy(from.prediction_ids());
  QUIRE_RETURN_IF_ERROR(
      CheckTokenIds("prediction_ids", to.submit.prediction_ids, limits.vocab_size));
  QUIRE_RETURN_IF_ERROR(ReadChoices(from, limits, to.submit));
  QUIRE_ASSIGN_OR_RETURN(to.submit.sampling, ReadSampling(from.sampling(), limits.vocab_size));
  QUIRE_RETURN_IF_ERROR(ReadConstraint(from.constraint(), to.submit));
  if (from.has_thought_budget()) {
    QUIRE_RETURN_IF_ERROR(ReadThoughtBudget(from.thought_budget(), limits.vocab_size, to.submit));
  }
  QUIRE_RETURN_IF_ERROR(ReadSubmitStrings(from, to.submit));
  to.submit.remaining_ms = from.remaining_ms();
  to.submit.priority = from.priority();
  to.submit.initial_window = from.initial_window();
  return to;
}

// The field is the text before the first colon of the message.
BadSubmit Refuse(const pb::Submit& from, const absl::Status& status) {
  BadSubmit bad;
  bad.submit_number = from.submit_number();
  bad.refused.key = KeyOf(from);
  bad.refused.code = status.code() == absl::StatusCode::kUnimplemented ? RefusalCode::kUnsupported
                                                                       : RefusalCode::kInvalid;
  bad.refused.message = StatusMessage(status);
  const auto unless_longer = [](const std::string& text, size_t limit) {
    return text.size() <= limit ? text : std::string();  // a part of it may be no text
  };
  bad.refused.traceparent = unless_longer(from.traceparent(), kMaxTraceparentBytes);
  bad.refused.tracestate = unless_longer(from.tracestate(), kMaxTracestateBytes);
  bad.refused.request_id = unless_longer(from.request_id(), kMaxFrameRequestIdBytes);
  const size_t colon = bad.refused.message.find(':');
  if (colon != std::string::npos) bad.refused.field = bad.refused.message.substr(0, colon);
  return bad;
}

absl::StatusOr<RouterMessage> ReadHello(const pb::RouterHello& from) {
  RouterHello to;
  to.instance = RouterInstance(from.router_instance());
  to.attach_number = from.attach_number();
  to.protocol_min = from.protocol_min();
  to.protocol_max = from.protocol_max();
  if (to.protocol_min > to.protocol_max) {
    return InvalidArgument("hello.protocol_min: is above protocol_max");
  }
  QUIRE_ASSIGN_OR_RETURN(to.features, ReadFeatures("hello.features", from.features()));
  to.wants_events = from.wants_events();
  return RouterMessage(std::move(to));
}

absl::StatusOr<RouterMessage> ReadPart(const pb::SubmitPart& from) {
  SubmitPart to{KeyOf(from), from.index(), {}};
  QUIRE_RETURN_IF_ERROR(
      CheckCount("submit_part.prompt_ids", from.prompt_ids_size(), kMaxPromptIdsPerFrame));
  if (from.prompt_ids().empty()) return InvalidArgument("submit_part.prompt_ids: is empty");
  to.prompt_ids = Copy(from.prompt_ids());
  return RouterMessage(std::move(to));
}

absl::StatusOr<RouterMessage> ReadFinish(const pb::Finish& from) {
  Finish to{KeyOf(from), from.choice(), EndReason::kStop, from.output_count()};
  // A router ends a choice by a stop string or by a limit of the response; only workers decide
  // other ends.
  switch (from.reason()) {
    case pb::STOP:
      to.reason = EndReason::kStop;
      break;
    case pb::LENGTH:
      to.reason = EndReason::kLength;
      break;
    default:
      return InvalidArgument("finish.reason: must be STOP or LENGTH, is " +
                             std::to_string(from.reason()));
  }
  return RouterMessage(to);
}

absl::StatusOr<RouterMessage> ReadAdapterOrder(const pb::AdapterOrder& from) {
  QUIRE_RETURN_IF_ERROR(CheckNoUnknownFields("adapter_order", from));
  if (!pb::AdapterOrder::Kind_IsValid(from.kind())) {
    return InvalidArgument("adapter_order.kind: is unknown to this worker");
  }
  QUIRE_RETURN_IF_ERROR(CheckBytes("adapter_order.name", from.name().size(), kMaxAdapterBytes));
  QUIRE_RETURN_IF_ERROR(CheckBytes("adapter_order.path", from.path().size(), kMaxAdapterPathBytes));
  AdapterOrder to;
  to.number = from.number();
  to.kind = static_cast<AdapterOrder::Kind>(from.kind());
  to.name = from.name();
  to.path = from.path();
  to.replace = from.replace();
  to.any_path = from.any_path();
  return RouterMessage(std::move(to));
}

}  // namespace

absl::Status CheckTokenIds(std::string_view field, std::span<const TokenId> ids,
                           int32_t vocab_size) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return InvalidArgument(std::string(field) + ": token id " + std::to_string(id) +
                           " is outside the vocabulary [0, " + std::to_string(vocab_size) + ")");
  }
  return absl::OkStatus();
}

absl::StatusOr<RouterMessage> DecodeRouterFrame(std::string_view bytes,
                                                const DecodeLimits& limits) {
  QUIRE_RETURN_IF_ERROR(CheckBytes("frame", bytes.size(), kMaxFrameBytes));
  pb::RouterFrame frame;
  if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("frame: is no RouterFrame (cut short, or text that is not UTF-8)");
  }
  switch (frame.frame_case()) {
    case pb::RouterFrame::kHello:
      return ReadHello(frame.hello());
    case pb::RouterFrame::kSubmit: {
      absl::StatusOr<SubmitFrame> submit = ReadSubmit(frame.submit(), limits);
      if (!submit.ok()) return RouterMessage(Refuse(frame.submit(), submit.status()));
      return RouterMessage(*std::move(submit));
    }
    case pb::RouterFrame::kSubmitPart:
      return ReadPart(frame.submit_part());
    case pb::RouterFrame::kCancel: {
      const pb::Cancel& from = frame.cancel();
      return RouterMessage(Cancel{KeyOf(from), from.one_choice(), from.choice()});
    }
    case pb::RouterFrame::kFinish:
      return ReadFinish(frame.finish());
    case pb::RouterFrame::kGrant: {
      const pb::Grant& from = frame.grant();
      return RouterMessage(Grant{KeyOf(from), from.choice(), from.up_to_index()});
    }
    case pb::RouterFrame::kSnapshotRequest:
      return RouterMessage(SnapshotRequest{frame.snapshot_request().snapshot_number()});
    case pb::RouterFrame::kHeartbeat:
      return RouterMessage(Heartbeat{frame.heartbeat().sent_at_ms()});
    case pb::RouterFrame::kAdapterOrder:
      return ReadAdapterOrder(frame.adapter_order());
    case pb::RouterFrame::FRAME_NOT_SET:
      break;
  }
  return InvalidArgument("frame: is of a kind unknown to this worker");
}

}  // namespace quire

// Frames: every field survives, every limit holds, big steps are split.
#include "worker/rpc/codec.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr DecodeLimits kLimits{1000, 4};

absl::StatusOr<RouterMessage> Decode(const pb::RouterFrame& frame) {
  return DecodeRouterFrame(frame.SerializeAsString(), kLimits);
}

pb::RouterFrame FullSubmit() {
  pb::RouterFrame frame;
  pb::Submit* s = frame.mutable_submit();
  s->set_request_number(11);
  s->set_attempt(2);
  s->set_submit_number(3);
  for (const int id : {1, 2, 999}) s->add_prompt_ids(id);
  s->add_choices()->add_outputs(7);
  s->add_choices()->set_ended(true);
  pb::SamplingParams* p = s->mutable_sampling();
  p->set_temperature(0.5f);
  p->set_top_p(0.9f);
  p->set_top_k(40);
  p->set_min_p(0.1f);
  p->set_typical_p(0.8f);
  p->set_repetition_penalty(1.1f);
  p->set_frequency_penalty(0.2f);
  p->set_presence_penalty(-0.3f);
  p->set_seed(0xFFFFFFFFFFFFFFFFull);
  p->set_max_tokens(64);
  p->set_min_tokens(4);
  p->add_stop_token_ids(9);
  p->set_ignore_eos(true);
  (*p->mutable_logit_bias())[5] = 1.5f;
  (*p->mutable_logit_bias())[3] = -2.0f;
  p->add_allowed_token_ids(8);
  p->add_bad_words()->add_ids(4);
  p->set_logprobs(21);
  p->set_prompt_logprobs(1);
  p->set_beam_width(2);
  p->set_length_penalty(0.0f);
  s->set_remaining_ms(1234);
  s->set_priority(-5);
  s->set_tenant("tenant");
  s->set_salt(std::string("\0\xff", 2));
  s->set_adapter("adapter");
  s->mutable_constraint()->set_kind(pb::Constraint::GRAMMAR);
  s->mutable_constraint()->set_source("root ::= \"a\"");
  s->set_initial_window(256);
  s->add_required_features("f");
  s->set_traceparent("00-1-2-03");
  s->set_request_id("id");
  s->set_parts(2);
  s->set_model_id("model");
  return frame;
}

TEST(DecodeSubmit, EveryFieldIsHandedOn) {
  const auto message = Decode(FullSubmit());
  ASSERT_TRUE(message.ok()) << message.status();
  ASSERT_TRUE(std::holds_alternative<SubmitFrame>(*message))
      << std::get<BadSubmit>(*message).refused.message;
  const auto& [s, parts] = std::get<SubmitFrame>(*message);
  EXPECT_EQ(s.key, (AttemptKey{RequestNumber(11), Attempt(2)}));
  EXPECT_EQ(s.submit_number, 3u);
  EXPECT_EQ(s.prompt_ids, (std::vector<TokenId>{1, 2, 999}));
  ASSERT_EQ(s.choices.size(), 2u);
  EXPECT_EQ(s.choices[0].outputs, std::vector<TokenId>{7});
  EXPECT_TRUE(s.choices[1].ended);
  EXPECT_EQ(s.sampling.temperature, 0.5f);
  EXPECT_EQ(s.sampling.top_p, 0.9f);
  EXPECT_EQ(s.sampling.top_k, 40);
  EXPECT_EQ(s.sampling.min_p, 0.1f);
  EXPECT_EQ(s.sampling.typical_p, 0.8f);
  EXPECT_EQ(s.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(s.sampling.frequency_penalty, 0.2f);
  EXPECT_EQ(s.sampling.presence_penalty, -0.3f);
  EXPECT_EQ(s.sampling.seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_EQ(s.sampling.max_tokens, 64);
  EXPECT_EQ(s.sampling.min_tokens, 4);
  EXPECT_EQ(s.sampling.stop_token_ids, std::vector<TokenId>{9});
  EXPECT_TRUE(s.sampling.ignore_eos);
  EXPECT_EQ(s.sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{3, -2.0f}, {5, 1.5f}}));
  EXPECT_EQ(s.sampling.allowed_token_ids, std::vector<TokenId>{8});
  EXPECT_EQ(s.sampling.bad_words, std::vector<std::vector<TokenId>>{{4}});
  EXPECT_EQ(s.sampling.logprobs, 21);
  EXPECT_EQ(s.sampling.prompt_logprobs, 1);
  EXPECT_EQ(s.sampling.beam_width, 2);
  EXPECT_EQ(s.sampling.length_penalty, 0.0f);
  EXPECT_EQ(s.remaining_ms, 1234u);
  EXPECT_EQ(s.priority, -5);
  EXPECT_EQ(s.tenant, "tenant");
  EXPECT_EQ(s.salt, std::string("\0\xff", 2));
  EXPECT_EQ(s.adapter, "adapter");
  EXPECT_TRUE(s.constrained);
  EXPECT_EQ(s.initial_window, 256u);
  EXPECT_EQ(s.required_features, std::vector<std::string>{"f"});
  EXPECT_EQ(s.traceparent, "00-1-2-03");
  EXPECT_EQ(s.request_id, "id");
  EXPECT_EQ(s.model_id, "model");
  EXPECT_EQ(parts, 2u);
}

TEST(DecodeSubmit, UnsetSamplingIsNeutral) {
  pb::RouterFrame frame;
  frame.mutable_submit()->add_prompt_ids(1);
  frame.mutable_submit()->add_choices();
  frame.mutable_submit()->mutable_sampling()->set_max_tokens(1);
  const auto message = Decode(frame);
  ASSERT_TRUE(message.ok() && std::holds_alternative<SubmitFrame>(*message));
  const SamplingParams& p = std::get<SubmitFrame>(*message).submit.sampling;
  EXPECT_EQ(p.top_p, 1.0f);
  EXPECT_EQ(p.typical_p, 1.0f);
  EXPECT_EQ(p.repetition_penalty, 1.0f);
  EXPECT_EQ(p.length_penalty, 1.0f);
  EXPECT_EQ(p.temperature, 0.0f);
}

Refused RefusedOf(const std::function<void(pb::Submit&)>& change) {
  pb::RouterFrame frame = FullSubmit();
  change(*frame.mutable_submit());
  const auto message = Decode(frame);
  if (!message.ok() || !std::holds_alternative<BadSubmit>(*message)) return {};
  EXPECT_EQ(std::get<BadSubmit>(*message).submit_number, 3u);
  return std::get<BadSubmit>(*message).refused;
}

TEST(DecodeSubmit, EveryLimitHoldsAtLimitPlusOne) {
  struct Case {
    std::string field;
    std::function<void(pb::Submit&)> at_limit;
    std::function<void(pb::Submit&)> above;
  };
  const auto strings = [](std::string field, size_t limit, auto set) {
    return Case{field, [=](pb::Submit& s) { set(s, std::string(limit, 'x')); },
                [=](pb::Submit& s) { set(s, std::string(limit + 1, 'x')); }};
  };
  const auto counts = [](std::string field, int limit, auto add) {
    return Case{field,
                [=](pb::Submit& s) {
                  for (int i = 1; i < limit; ++i) add(s, i);  // one is there already
                },
                [=](pb::Submit& s) {
                  for (int i = 0; i < limit; ++i) add(s, i);
                }};
  };
  using S = pb::Submit;
  const std::vector<Case> cases = {
      strings("tenant", kMaxTenantBytes, [](S& s, auto v) { s.set_tenant(v); }),
      strings("salt", kMaxSaltBytes, [](S& s, auto v) { s.set_salt(v); }),
      strings("adapter", kMaxAdapterBytes, [](S& s, auto v) { s.set_adapter(v); }),
      strings("traceparent", kMaxTraceparentBytes, [](S& s, auto v) { s.set_traceparent(v); }),
      strings("tracestate", kMaxTracestateBytes, [](S& s, auto v) { s.set_tracestate(v); }),
      strings("request_id", kMaxRequestIdBytes, [](S& s, auto v) { s.set_request_id(v); }),
      strings("model_id", kMaxModelIdBytes, [](S& s, auto v) { s.set_model_id(v); }),
      strings("constraint", kMaxConstraintBytes,
              [](S& s, auto v) { s.mutable_constraint()->set_source(v); }),
      strings("required_features", kMaxFeatureBytes,
              [](S& s, auto v) { s.add_required_features(v); }),
      counts("required_features", kMaxFeatures, [](S& s, int) { s.add_required_features("f"); }),
      counts("stop_token_ids", kMaxStopTokenIds,
             [](S& s, int) { s.mutable_sampling()->add_stop_token_ids(1); }),
      counts("allowed_token_ids", kMaxAllowedTokenIds,
             [](S& s, int) { s.mutable_sampling()->add_allowed_token_ids(1); }),
      counts("bad_words", kMaxBadWords,
             [](S& s, int) { s.mutable_sampling()->add_bad_words()->add_ids(1); }),
      counts("bad_words", kMaxBadWordTokens,
             [](S& s, int) { s.mutable_sampling()->mutable_bad_words(0)->add_ids(1); }),
  };
  for (const Case& c : cases) {
    EXPECT_EQ(RefusedOf(c.at_limit).message, "") << c.field;
    EXPECT_EQ(RefusedOf(c.above).field, c.field);
    EXPECT_EQ(RefusedOf(c.above).code, RefusalCode::kInvalid) << c.field;
  }
}

TEST(DecodeSubmit, BadValuesNameTheirField) {
  using S = pb::Submit;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(RefusedOf([=](S& s) { s.mutable_sampling()->set_top_p(nan); }).field, "top_p");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_sampling()->set_logprobs(22); }).field, "logprobs");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_sampling()->set_logprobs(1u << 31); }).field,
            "logprobs");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_sampling()->set_beam_width(17); }).field, "beam_width");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_sampling()->set_seed(1); }).field, "");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_sampling()->add_stop_token_ids(1000); }).field,
            "stop_token_ids");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_choices(0)->add_outputs(-1); }).field,
            "choices.outputs");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_constraint()->set_kind(pb::Constraint::NONE); }).field,
            "constraint");
  EXPECT_EQ(RefusedOf([](S& s) {
              s.mutable_constraint()->set_kind(static_cast<pb::Constraint::Kind>(9));
            }).field,
            "constraint");
  EXPECT_EQ(RefusedOf([](S& s) { s.set_parts(~0u); }).field, "parts");
  EXPECT_EQ(RefusedOf([](S& s) {
              for (int i = 0; i < 3; ++i) s.add_choices();
            }).field,
            "choices");
}

TEST(DecodeSubmit, AFieldOfALaterVersionIsRefusedAndNotIgnored) {
  pb::RouterFrame frame = FullSubmit();
  std::string submit = frame.submit().SerializeAsString();
  submit += std::string("\x98\x06\x01", 3);  // field 99, varint 1
  std::string bytes = "\x12";
  bytes += static_cast<char>((submit.size() & 0x7F) | 0x80);
  bytes += static_cast<char>(submit.size() >> 7);
  const auto message = DecodeRouterFrame(bytes + submit, kLimits);
  ASSERT_TRUE(message.ok()) << message.status();
  const Refused& refused = std::get<BadSubmit>(*message).refused;
  EXPECT_EQ(refused.code, RefusalCode::kUnsupported);
  EXPECT_EQ(refused.message, "submit: field number 99 is unknown to this worker");
  EXPECT_EQ(refused.key.request, RequestNumber(11));
}

TEST(DecodeFrame, BrokenFramesAreErrors) {
  EXPECT_FALSE(DecodeRouterFrame("", kLimits).ok());
  EXPECT_FALSE(DecodeRouterFrame("\x0a\xff", kLimits).ok());
  EXPECT_FALSE(DecodeRouterFrame(std::string("\x7a\x00", 2), kLimits).ok());  // an unknown kind
  EXPECT_FALSE(DecodeRouterFrame(std::string(kMaxFrameBytes + 1, '\0'), kLimits).ok());
  pb::RouterFrame frame;
  frame.mutable_finish()->set_reason(pb::CANCELLED);
  EXPECT_FALSE(Decode(frame).ok());
  frame.mutable_finish()->set_reason(static_cast<pb::EndReason>(77));
  EXPECT_FALSE(Decode(frame).ok());
  frame.mutable_submit_part();
  EXPECT_FALSE(Decode(frame).ok());
  frame.mutable_hello()->set_protocol_min(2);
  EXPECT_FALSE(Decode(frame).ok());
  frame.mutable_hello()->set_protocol_max(2);
  EXPECT_TRUE(Decode(frame).ok());
  for (size_t i = 0; i <= kMaxFeatures; ++i) frame.mutable_hello()->add_features("f");
  EXPECT_FALSE(Decode(frame).ok());
  // A tenant that is no UTF-8, which protobuf would not write.
  const std::string bytes = std::string("\x12\x03\x4a\x01\xff", 5);
  EXPECT_FALSE(DecodeRouterFrame(bytes, kLimits).ok());
}

TEST(DecodeFrame, SmallFramesKeepTheirFields) {
  pb::RouterFrame frame;
  frame.mutable_cancel()->set_request_number(1);
  frame.mutable_cancel()->set_attempt(2);
  frame.mutable_cancel()->set_one_choice(true);
  frame.mutable_cancel()->set_choice(3);
  const auto cancel = std::get<Cancel>(*Decode(frame));
  EXPECT_TRUE(cancel.one_choice);
  EXPECT_EQ(cancel.choice, 3u);
  frame.mutable_grant()->set_up_to_index(1ull << 40);
  EXPECT_EQ(std::get<Grant>(*Decode(frame)).up_to_index, 1ull << 40);
  frame.mutable_snapshot_request()->set_snapshot_number(8);
  EXPECT_EQ(std::get<SnapshotRequest>(*Decode(frame)).snapshot_number, 8u);
  frame.mutable_heartbeat()->set_sent_at_ms(9);
  EXPECT_EQ(std::get<Heartbeat>(*Decode(frame)).sent_at_ms, 9u);
  frame.mutable_hello()->set_router_instance(4);
  frame.mutable_hello()->set_attach_number(5);
  frame.mutable_hello()->set_wants_events(true);
  frame.mutable_hello()->add_features("x");
  const auto hello = std::get<RouterHello>(*Decode(frame));
  EXPECT_EQ(hello.instance, RouterInstance(4));
  EXPECT_EQ(hello.attach_number, 5u);
  EXPECT_TRUE(hello.wants_events);
  EXPECT_EQ(hello.features, std::vector<std::string>{"x"});
}

pb::WorkerFrame Parsed(const std::string& bytes) {
  pb::WorkerFrame frame;
  EXPECT_LE(bytes.size(), kMaxFrameBytes);
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

TEST(EncodeStep, EveryFieldIsWritten) {
  StepFrame step;
  step.frame_seq = 4;
  step.event_seq = 9;
  step.first_event_seq = 8;
  const AttemptKey key{RequestNumber(1), Attempt(2)};
  step.admitted.push_back({key, 32, 7});
  step.outputs.push_back({key, 1, 5, {10, 11}, {-0.5f, -1.5f}, {{{1}, {-1.f}}, {{2}, {-2.f}}}});
  step.prompt_logprobs.push_back({key, 3, {-3.f}, {{{4}, {-4.f}}}, {6}});
  step.ended.push_back(
      {key, 1, EndReason::kFailed, "why", true, {1, 2, 3, 4, 5, 6}, true, 99, true});
  step.refused.push_back({key, RefusalCode::kTooLarge, "prompt_ids", "no", 250});
  step.events.push_back({CacheEvents::Kind::kStored, 1, 77, {78, 79}});
  step.events.push_back({CacheEvents::Kind::kCleared, 0, 0, {}});
  step.load = {1, 2, 3, 4, 5, 6, 7, 8};
  step.last_admitted_submit = 12;
  step.routers_attached = 13;
  step.state = WorkerState::kDraining;
  step.step_age_ms = 14;
  step.step_limit_ms = 15;
  step.events_dropped = true;
  step.heartbeat_echo_ms = 16;
  const auto frames = EncodeStep(step);
  ASSERT_EQ(frames.size(), 1u);
  const pb::WorkerFrame frame = Parsed(frames[0]);
  const pb::Step& s = frame.step();
  EXPECT_EQ(s.frame_seq(), 4u);
  EXPECT_EQ(s.event_seq(), 9u);
  EXPECT_EQ(s.first_event_seq(), 8u);
  EXPECT_EQ(s.admitted(0).cached_tokens(), 32u);
  EXPECT_EQ(s.admitted(0).event_seq(), 7u);
  EXPECT_EQ(s.outputs(0).choice(), 1u);
  EXPECT_EQ(s.outputs(0).first_index(), 5u);
  EXPECT_EQ(s.outputs(0).ids(1), 11);
  EXPECT_EQ(s.outputs(0).logprobs(1), -1.5f);
  EXPECT_EQ(s.outputs(0).top(1).ids(0), 2);
  EXPECT_EQ(s.prompt_logprobs(0).first_position(), 3u);
  EXPECT_EQ(s.prompt_logprobs(0).ranks(0), 6u);
  EXPECT_EQ(s.prompt_logprobs(0).top(0).logprobs(0), -4.f);
  EXPECT_EQ(s.ended(0).reason(), pb::FAILED);
  EXPECT_EQ(s.ended(0).message(), "why");
  EXPECT_EQ(s.ended(0).usage().discarded_tokens(), 6u);
  EXPECT_EQ(s.ended(0).stop_token_id(), 99);
  EXPECT_TRUE(s.ended(0).by_stop_token() && s.ended(0).retryable() && s.ended(0).last_choice());
  EXPECT_EQ(s.refused(0).code(), pb::TOO_LARGE);
  EXPECT_EQ(s.refused(0).field(), "prompt_ids");
  EXPECT_EQ(s.refused(0).retry_after_ms(), 250u);
  EXPECT_EQ(s.events(0).parent(), 77u);
  EXPECT_EQ(s.events(0).hashes(1), 79u);
  EXPECT_EQ(s.events(1).kind(), pb::CacheEvents::CLEARED);
  EXPECT_EQ(s.load().steps_total(), 8u);
  EXPECT_EQ(s.load().waiting_prefill_tokens(), 3u);
  EXPECT_EQ(s.last_admitted_submit(), 12u);
  EXPECT_EQ(s.routers_attached(), 13u);
  EXPECT_EQ(s.state(), pb::DRAIN);
  EXPECT_EQ(s.step_age_ms(), 14u);
  EXPECT_EQ(s.step_limit_ms(), 15u);
  EXPECT_TRUE(s.events_dropped());
  EXPECT_EQ(s.heartbeat_echo_ms(), 16u);
}

TEST(EncodeStep, ABigStepIsSplitAndNothingIsLost) {
  StepFrame step;
  step.frame_seq = 10;
  step.first_event_seq = 101;
  step.event_seq = 140;
  const AttemptKey key{RequestNumber(1), Attempt(1)};
  const TopLogprobs top{std::vector<TokenId>(20, 1 << 30), std::vector<float>(20, -1.f)};
  // One choice whose logprobs alone exceed a frame, then its end, then many events.
  step.outputs.push_back({key, 0, 100, {}, {}, {}});
  for (int i = 0; i < 9000; ++i) {
    step.outputs[0].ids.push_back(i);
    step.outputs[0].logprobs.push_back(-1.f);
    step.outputs[0].top.push_back(top);
  }
  step.ended.push_back({});
  step.ended[0].key = key;
  step.ended[0].message = std::string(100000, 'm');
  for (int i = 0; i < 40; ++i) {
    step.events.push_back({CacheEvents::Kind::kStored, 0, 1, std::vector<uint64_t>(5000, 7)});
  }
  RouterOutput same;
  same.outputs = step.outputs;
  same.ended = step.ended;
  size_t bytes = 0;
  uint64_t next_index = 100, next_event = 101, last_event = 100, seq = 10;
  bool ended = false;
  for (const std::string& frame_bytes : EncodeStep(step)) {
    const pb::WorkerFrame frame = Parsed(frame_bytes);
    const pb::Step& s = frame.step();
    EXPECT_EQ(s.frame_seq(), seq++);
    for (const pb::Output& output : s.outputs()) {
      EXPECT_FALSE(ended);
      EXPECT_EQ(output.first_index(), next_index);
      EXPECT_EQ(output.ids(0), static_cast<int>(next_index - 100));
      EXPECT_EQ(output.logprobs_size(), output.ids_size());
      EXPECT_EQ(output.top_size(), output.ids_size());
      next_index += static_cast<uint64_t>(output.ids_size());
    }
    for (const pb::Ended& end : s.ended()) {
      ended = true;
      EXPECT_EQ(end.message().size(), kMaxWireMessageBytes);
    }
    if (s.events_size() > 0) {
      EXPECT_EQ(s.first_event_seq(), next_event);
      next_event += static_cast<uint64_t>(s.events_size());
    }
    EXPECT_GE(s.event_seq(), last_event);
    EXPECT_EQ(s.event_seq(), next_event - 1);
    last_event = s.event_seq();
    if (s.events_size() == 0) bytes += frame_bytes.size();
  }
  EXPECT_EQ(next_index, 9100u);
  EXPECT_EQ(next_event, 141u);
  EXPECT_TRUE(ended);
  EXPECT_GT(seq, 13u);
  EXPECT_GE(EncodedBytesBound(same), bytes);
}

TEST(EncodeStep, AnEventThatFitsNoFrameIsDroppedAndSaid) {
  StepFrame step;
  step.first_event_seq = 1;
  step.event_seq = 1;
  step.events.push_back({CacheEvents::Kind::kRemoved, 0, 0, std::vector<uint64_t>(200000, 7)});
  const auto frames = EncodeStep(step);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_TRUE(Parsed(frames[0]).step().events_dropped());
  EXPECT_EQ(Parsed(frames[0]).step().event_seq(), 1u);
}

TEST(Encode, HelloRefusedDrainingSnapshot) {
  WorkerHello hello;
  hello.worker_id = "w";
  hello.epoch = Epoch(1);
  hello.protocol = 1;
  hello.features = {"a"};
  hello.model_id = "m";
  hello.numerics_id = "n";
  hello.cache_groups = {{"sliding", 5, 512}};
  hello.block_size = 16;
  hello.hash_scheme = "h";
  hello.capacity_blocks = 99;
  hello.limits = {1, 2, 3, 4, 5, 6, 7, 8};
  hello.text_bundle_sha256 = std::string(32, '\xfe');
  hello.served_names = {"x", "y"};
  hello.vocab_size = 1000;
  hello.prefix_caching = true;
  const pb::WorkerFrame frame = Parsed(EncodeWorkerHello(hello));
  const pb::WorkerHello& h = frame.hello();
  EXPECT_EQ(h.cache_groups(0).window(), 512u);
  EXPECT_EQ(h.limits().max_frame_bytes(), 8u);
  EXPECT_EQ(h.limits().max_waiting_requests(), 3u);
  EXPECT_EQ(h.text_bundle_sha256(), std::string(32, '\xfe'));
  EXPECT_EQ(h.served_names(1), "y");
  EXPECT_EQ(h.capacity_blocks(), 99u);
  EXPECT_TRUE(h.prefix_caching());
  EXPECT_TRUE(Parsed(EncodeAttachRefused("no", true)).refused().fenced());
  EXPECT_EQ(Parsed(EncodeDraining(5)).draining().remaining_ms(), 5u);
  SnapshotPart part{RouterInstance(1), 2, 3, true, 4, {5}, {6}, 7};
  const pb::WorkerFrame chunk = Parsed(EncodeSnapshotPart(part));
  EXPECT_EQ(chunk.snapshot_chunk().snapshot_number(), 2u);
  EXPECT_EQ(chunk.snapshot_chunk().parents(0), 6u);
  EXPECT_EQ(chunk.snapshot_chunk().event_seq(), 7u);
}

TEST(Encode, LongMessagesAreCutAtWholeCharacters) {
  std::string text(kMaxWireMessageBytes - 1, 'a');
  text += "€";
  const pb::WorkerFrame frame = Parsed(EncodeAttachRefused(text, false));
  EXPECT_EQ(frame.refused().message(), std::string(kMaxWireMessageBytes - 1, 'a'));
}

}  // namespace
}  // namespace quire

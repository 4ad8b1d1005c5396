// Frames of routers: every field survives, every limit holds, long prompts are split.
#include "common/wire/router_frames.h"

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
  s->mutable_constraint()->set_whitespace_pattern(" ?");
  s->mutable_constraint()->set_compact(true);
  s->mutable_constraint()->set_closed(true);
  pb::ThoughtBudget* budget = s->mutable_thought_budget();
  budget->set_tokens(99);
  budget->set_opened(true);
  budget->set_repeats(true);
  budget->add_opens()->add_ids(1);
  budget->add_closes()->add_ids(2);
  budget->add_end(3);
  s->add_prediction_ids(5);
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
  EXPECT_EQ(s.constraint,
            (Constraint{ConstraintKind::kGrammar, "root ::= \"a\"", " ?", true, true}));
  ASSERT_NE(s.thought_budget, nullptr);
  EXPECT_EQ(*s.thought_budget, (ThoughtBudget{99, true, true, {{1}}, {{2}}, {3}}));
  EXPECT_EQ(s.prediction_ids, (std::vector<TokenId>{5}));
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
      strings("request_id", kMaxFrameRequestIdBytes, [](S& s, auto v) { s.set_request_id(v); }),
      strings("model_id", kMaxModelIdBytes, [](S& s, auto v) { s.set_model_id(v); }),
      strings("constraint", kMaxConstraintBytes,
              [](S& s, auto v) { s.mutable_constraint()->set_source(v); }),
      strings("constraint.whitespace_pattern", kMaxWhitespacePatternBytes,
              [](S& s, auto v) { s.mutable_constraint()->set_whitespace_pattern(v); }),
      counts("thought_budget.opens", kMaxThoughtMarks,
             [](S& s, int) { s.mutable_thought_budget()->add_opens()->add_ids(1); }),
      counts("thought_budget.closes", kMaxThoughtMarks,
             [](S& s, int) { s.mutable_thought_budget()->add_closes()->add_ids(1); }),
      counts("thought_budget.opens", kMaxThoughtMarkIds,
             [](S& s, int) { s.mutable_thought_budget()->mutable_opens(0)->add_ids(1); }),
      counts("thought_budget.end", kMaxThoughtEndIds,
             [](S& s, int) { s.mutable_thought_budget()->add_end(1); }),
      counts("prediction_ids", kMaxPredictionIds, [](S& s, int) { s.add_prediction_ids(1); }),
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
  EXPECT_EQ(RefusedOf([](S& s) { s.add_prediction_ids(1000); }).field, "prediction_ids");
  EXPECT_EQ(RefusedOf([](S& s) { s.add_prediction_ids(-1); }).field, "prediction_ids");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_constraint()->set_kind(pb::Constraint::NONE); }).field,
            "constraint");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_constraint()->clear_source(); }).field, "constraint");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_thought_budget()->clear_end(); }).field,
            "thought_budget.end");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_thought_budget()->add_opens(); }).field,
            "thought_budget.opens");
  EXPECT_EQ(RefusedOf([](S& s) { s.mutable_thought_budget()->set_end(0, 1 << 30); }).field,
            "thought_budget.end");
  EXPECT_EQ(
      RefusedOf([](S& s) { s.mutable_constraint()->set_kind(pb::Constraint::JSON_OBJECT); }).field,
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

pb::RouterFrame Read(const std::string& bytes) {
  EXPECT_LE(bytes.size(), kMaxFrameBytes);
  pb::RouterFrame frame;
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

Submit WholeSubmit() {
  Submit submit;
  submit.key = {RequestNumber(7), Attempt(2)};
  submit.submit_number = 3;
  submit.prompt_ids = {1, 2, 3};
  submit.choices = {{{4, 5}, false}, {{6}, true}};
  submit.sampling.temperature = 0.5f;
  submit.sampling.seed = ~uint64_t{0};
  submit.sampling.stop_token_ids = {9};
  submit.sampling.logit_bias = {{1, -2.0f}};
  submit.sampling.bad_words = {{1, 2}, {3}};
  submit.sampling.logprobs = 21;
  submit.remaining_ms = 1000;
  submit.priority = -4;
  submit.salt = "salt";
  submit.thought_budget = std::make_shared<const ThoughtBudget>(
      ThoughtBudget{5, true, false, {{1, 2}}, {{3}, {4}}, {6, 7}});
  submit.initial_window = 256;
  submit.required_features = {"resume"};
  submit.model_id = "m";
  return submit;
}

TEST(RouterFrames, ASubmitSaysEverything) {
  const std::vector<std::string> frames = EncodeSubmit(WholeSubmit());
  ASSERT_EQ(frames.size(), 1u);
  const pb::Submit submit = Read(frames[0]).submit();
  EXPECT_EQ(submit.request_number(), 7u);
  EXPECT_EQ(submit.attempt(), 2u);
  EXPECT_EQ(submit.submit_number(), 3u);
  EXPECT_EQ(submit.prompt_ids_size(), 3);
  EXPECT_EQ(submit.choices(0).outputs_size(), 2);
  EXPECT_TRUE(submit.choices(1).ended());
  EXPECT_EQ(submit.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(submit.sampling().bad_words_size(), 2);
  EXPECT_EQ(submit.sampling().logit_bias().at(1), -2.0f);
  EXPECT_EQ(submit.sampling().logprobs(), 21u);
  EXPECT_EQ(submit.thought_budget().tokens(), 5u);
  EXPECT_TRUE(submit.thought_budget().opened());
  EXPECT_FALSE(submit.thought_budget().repeats());
  EXPECT_EQ(submit.thought_budget().opens(0).ids_size(), 2);
  EXPECT_EQ(submit.thought_budget().closes(1).ids(0), 4);
  EXPECT_EQ(submit.thought_budget().end_size(), 2);
  EXPECT_EQ(submit.priority(), -4);
  EXPECT_EQ(submit.initial_window(), 256u);
  EXPECT_EQ(submit.parts(), 0u);
}

// The router ends on a frame of its own above the limit.
TEST(RouterFrames, ASubmitWithAllItsLimitsReachedAtOnceFitsOneFrame) {
  constexpr TokenId kLargest = (1 << 21) - 1;  // ids above take a fourth byte
  Submit submit = WholeSubmit();
  submit.prompt_ids = std::vector<TokenId>(1000, kLargest);
  submit.choices.assign(kMaxChoices, {});
  for (ResumedChoice& choice : submit.choices) {
    choice.outputs.assign(kMaxResumedIds / kMaxChoices, kLargest);
  }
  submit.constraint = {ConstraintKind::kRegex, std::string(kMaxConstraintBytes, 'a'),
                       std::string(kMaxWhitespacePatternBytes, 'a')};
  const std::vector<ThoughtBudget::Mark> marks(kMaxThoughtMarks,
                                               ThoughtBudget::Mark(kMaxThoughtMarkIds, kLargest));
  submit.thought_budget = std::make_shared<const ThoughtBudget>(ThoughtBudget{
      UINT32_MAX, true, true, marks, marks, std::vector<TokenId>(kMaxThoughtEndIds, kLargest)});
  submit.sampling.stop_token_ids.assign(kMaxStopTokenIds, kLargest);
  submit.sampling.allowed_token_ids.assign(kMaxAllowedTokenIds, kLargest);
  submit.sampling.bad_words.assign(kMaxBadWords, std::vector<TokenId>(kMaxBadWordTokens, kLargest));
  submit.sampling.logit_bias.clear();
  for (int i = 0; i < kMaxLogitBias; ++i)
    submit.sampling.logit_bias.emplace_back(kLargest - i, -99.5f);
  submit.required_features.assign(kMaxFeatures, std::string(kMaxFeatureBytes, 'f'));
  submit.tenant = std::string(kMaxTenantBytes, 't');
  submit.salt = std::string(kMaxSaltBytes, 's');
  submit.request_id = std::string(kMaxFrameRequestIdBytes, 'r');
  submit.tracestate = std::string(kMaxTracestateBytes, 'x');
  submit.model_id = std::string(kMaxModelIdBytes, 'm');
  const std::vector<std::string> frames = EncodeSubmit(submit);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_LE(frames[0].size(), kMaxFrameBytes);
}

// It has what the resumed outputs leave of the first frame; all of the prompt arrives.
TEST(RouterFrames, APredictionIsCutToTheFirstFrame) {
  struct Case {
    size_t resumed, predicted, told, parts;
  };
  constexpr size_t kFrame = kMaxPromptIdsPerFrame;
  for (const Case& c : {Case{2, 5, 5, 0}, Case{0, kMaxPredictionIds + 1, kMaxPredictionIds, 0},
                        Case{kFrame - 7, 10, 7, 1}, Case{kFrame, 10, 0, 1}}) {
    Submit submit = WholeSubmit();
    submit.choices = {{std::vector<TokenId>(c.resumed, 4), false}};
    submit.prediction_ids = std::vector<TokenId>(c.predicted, 1'999'999);
    const std::vector<std::string> frames = EncodeSubmit(submit);
    ASSERT_EQ(frames.size(), 1 + c.parts);
    const pb::Submit told = Read(frames[0]).submit();
    EXPECT_EQ(told.prediction_ids_size(), static_cast<int>(c.told));
    EXPECT_EQ(told.prompt_ids_size(), c.parts == 0 ? 3 : 0);
    EXPECT_EQ(told.parts(), c.parts);
    if (c.parts > 0) {
      EXPECT_EQ(Read(frames[1]).submit_part().prompt_ids_size(), 3);
    }
  }
}

TEST(RouterFrames, LongPromptsAreSplitAtTheLimit) {
  for (const size_t size : {kMaxPromptIdsPerFrame - 3, kMaxPromptIdsPerFrame - 2,
                            2 * kMaxPromptIdsPerFrame - 3, 3 * kMaxPromptIdsPerFrame + 5}) {
    Submit submit = WholeSubmit();  // three resumed outputs share the first frame
    std::vector<TokenId> prompt(size);
    for (size_t i = 0; i < size; ++i) prompt[i] = static_cast<TokenId>(1'999'999 - i);
    submit.prompt_ids = prompt;
    const std::vector<std::string> frames = EncodeSubmit(submit);
    std::vector<TokenId> ids;
    for (size_t i = 0; i < frames.size(); ++i) {
      const pb::RouterFrame frame = Read(frames[i]);
      const auto& part = i == 0 ? frame.submit().prompt_ids() : frame.submit_part().prompt_ids();
      ids.insert(ids.end(), part.begin(), part.end());
      const uint64_t number = i == 0 ? frame.submit().parts() : frame.submit_part().index();
      EXPECT_EQ(number, i == 0 ? frames.size() - 1 : i - 1);
    }
    EXPECT_EQ(ids, prompt) << size;
    EXPECT_EQ(frames.size(), size <= kMaxPromptIdsPerFrame - 3  ? 1u
                             : size < 2 * kMaxPromptIdsPerFrame ? 2u
                                                                : 4u);
  }
}

TEST(RouterFrames, AsManyResumedOutputsAsAllowedFitOneFrame) {
  Submit submit = WholeSubmit();
  submit.choices = {{std::vector<TokenId>(kMaxResumedIds, 1'999'999), false}};
  submit.prompt_ids = std::vector<TokenId>(10, 1'999'999);
  const std::vector<std::string> frames = EncodeSubmit(submit);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(Read(frames[0]).submit().prompt_ids_size(), 0);
}

TEST(RouterFrames, TheSmallOnes) {
  const AttemptKey key{RequestNumber(1), Attempt(2)};
  const pb::Cancel cancel = Read(EncodeCancel({key, true, 3})).cancel();
  EXPECT_TRUE(cancel.one_choice());
  EXPECT_EQ(cancel.choice(), 3u);
  const pb::Finish finish = Read(EncodeFinish({key, 1, EndReason::kLength, 9})).finish();
  EXPECT_EQ(finish.reason(), pb::LENGTH);
  EXPECT_EQ(finish.output_count(), 9u);
  EXPECT_EQ(Read(EncodeGrant({key, 0, 512})).grant().up_to_index(), 512u);
  EXPECT_EQ(Read(EncodeHeartbeat(5)).heartbeat().sent_at_ms(), 5u);
  EXPECT_EQ(Read(EncodeSnapshotRequest(6)).snapshot_request().snapshot_number(), 6u);
}

}  // namespace
}  // namespace quire

// Frames of workers: every field survives, every limit holds, big steps are split.
#include "common/wire/worker_frames.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

pb::WorkerFrame GoodHello() {
  pb::WorkerFrame frame;
  pb::WorkerHello* hello = frame.mutable_hello();
  hello->set_worker_id("w");
  hello->set_epoch(5);
  hello->set_protocol(1);
  hello->add_features("resume");
  hello->set_model_id("m");
  hello->set_numerics_id("n");
  pb::CacheGroupInfo* group = hello->add_cache_groups();
  group->set_kind("sliding");
  group->set_groups(5);
  group->set_window(512);
  hello->set_block_size(16);
  hello->set_capacity_blocks(1000);
  hello->mutable_limits()->set_max_model_len(2048);
  hello->mutable_limits()->set_max_logprobs(20);
  hello->set_text_bundle_sha256(std::string(32, 's'));
  hello->add_served_names("name");
  hello->set_vocab_size(1000);
  hello->set_prefix_caching(true);
  return frame;
}

absl::StatusOr<WorkerMessage> Decode(const pb::WorkerFrame& frame) {
  return DecodeWorkerFrame(frame.SerializeAsString());
}

TEST(WorkerFrames, AHelloComesThroughWhole) {
  const auto message = Decode(GoodHello());
  ASSERT_TRUE(message.ok()) << message.status();
  const auto& hello = std::get<WorkerHello>(*message);
  EXPECT_EQ(hello.epoch, Epoch(5));
  EXPECT_EQ(hello.features, std::vector<std::string>{"resume"});
  EXPECT_EQ(hello.cache_groups.at(0).window, 512u);
  EXPECT_EQ(hello.limits.max_model_len, 2048u);
  EXPECT_EQ(hello.limits.max_logprobs, 20u);
  EXPECT_EQ(hello.capacity_blocks, 1000u);
  EXPECT_EQ(hello.vocab_size, 1000u);
  EXPECT_TRUE(hello.prefix_caching);
}

TEST(WorkerFrames, HellosThatCannotBeUsedAreBroken) {
  using Change = std::function<void(pb::WorkerHello&)>;
  const std::vector<Change> changes = {
      [](auto& h) { h.clear_model_id(); },
      [](auto& h) { h.clear_served_names(); },
      [](auto& h) { h.set_served_names(0, ""); },
      [](auto& h) { h.set_text_bundle_sha256("short"); },
      [](auto& h) { h.mutable_limits()->set_max_model_len(0); },
      [](auto& h) { h.mutable_limits()->set_max_model_len(kMaxServedModelLen + 1); },
      [](auto& h) { h.set_vocab_size(0); },
      [](auto& h) { h.set_vocab_size(kMaxServedVocab + 1); },
      [](auto& h) { h.set_worker_id(std::string(kMaxHelloStringBytes + 1, 'x')); },
      [](auto& h) { h.add_features(std::string(kMaxHelloStringBytes + 1, 'x')); },
      [](auto& h) {
        for (int i = 0; i <= kMaxHelloStrings; ++i) h.add_features("f");
      },
      [](auto& h) {
        for (int i = 0; i <= kMaxHelloStrings; ++i) h.add_served_names("n");
      },
      [](auto& h) {
        for (int i = 0; i <= kMaxCacheGroupKinds; ++i) h.add_cache_groups();
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    pb::WorkerFrame frame = GoodHello();
    changes[i](*frame.mutable_hello());
    EXPECT_EQ(Decode(frame).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(WorkerFrames, AStepComesThroughWhole) {
  pb::WorkerFrame frame;
  pb::Step* step = frame.mutable_step();
  step->set_frame_seq(9);
  pb::Output* output = step->add_outputs();
  output->set_request_number(3);
  output->set_attempt(2);
  output->set_first_index(4);
  output->add_ids(11);
  output->add_logprobs(-0.5f);
  output->add_top()->add_ids(11);
  output->mutable_top(0)->add_logprobs(-0.5f);
  pb::Ended* ended = step->add_ended();
  ended->set_reason(pb::STOP);
  ended->set_by_stop_token(true);
  ended->set_stop_token_id(11);
  ended->mutable_usage()->set_cached_tokens(32);
  step->add_admitted()->set_cached_tokens(48);
  step->add_refused()->set_code(pb::QUEUE_FULL);
  pb::CacheEvents* events = step->add_events();
  events->set_kind(pb::CacheEvents::REMOVED);
  events->add_hashes(77);
  step->set_state(pb::READY);
  step->mutable_load()->set_held_blocks(6);
  const auto message = Decode(frame);
  ASSERT_TRUE(message.ok()) << message.status();
  const auto& read = std::get<StepFrame>(*message);
  EXPECT_EQ(read.frame_seq, 9u);
  EXPECT_EQ(read.outputs.at(0).key.attempt, Attempt(2));
  EXPECT_EQ(read.outputs.at(0).top.at(0).ids.at(0), 11);
  EXPECT_EQ(read.ended.at(0).usage.cached_tokens, 32u);
  EXPECT_TRUE(read.ended.at(0).by_stop_token);
  EXPECT_EQ(read.admitted.at(0).cached_tokens, 48u);
  EXPECT_EQ(read.refused.at(0).code, RefusalCode::kQueueFull);
  EXPECT_EQ(read.events.at(0).kind, CacheEvents::Kind::kRemoved);
  EXPECT_EQ(read.state, WorkerState::kReady);
  EXPECT_EQ(read.load.held_blocks, 6u);
}

// Steps of any shape, each read into what the one before left.
TEST(WorkerFrames, UsedStorageLeavesNoTrace) {
  uint32_t draw = 1;
  const auto below = [&draw](uint32_t bound) {
    draw = draw * 1664525u + 1013904223u;
    return static_cast<int>((draw >> 16) % bound);
  };
  StepFrame storage;
  for (int round = 0; round < 400; ++round) {
    pb::WorkerFrame frame;
    pb::Step* step = frame.mutable_step();
    for (int i = below(round % 50 == 0 ? 3000 : 12); i > 0; --i) {
      pb::Output* output = step->add_outputs();
      output->set_request_number(static_cast<uint64_t>(below(100)));
      output->set_choice(static_cast<uint32_t>(below(4)));
      output->set_first_index(static_cast<uint64_t>(below(1000)));
      const int ids = 1 + below(below(10) == 0 ? 200 : 3);
      const bool scored = below(3) == 0;
      for (int id = 0; id < ids; ++id) {
        output->add_ids(below(5000));
        if (!scored) continue;
        output->add_logprobs(-1.0f * static_cast<float>(id));
        output->add_top()->add_ids(id);
        output->mutable_top(id)->add_logprobs(-0.5f);
      }
    }
    const std::string bytes = frame.SerializeAsString();
    auto fresh = DecodeWorkerFrame(bytes);
    auto again = DecodeWorkerFrame(bytes, std::move(storage));
    ASSERT_TRUE(fresh.ok() && again.ok());
    const std::vector<Output>& wanted = std::get<StepFrame>(*fresh).outputs;
    const std::vector<Output>& got = std::get<StepFrame>(*again).outputs;
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].key, wanted[i].key);
      EXPECT_EQ(got[i].choice, wanted[i].choice);
      EXPECT_EQ(got[i].first_index, wanted[i].first_index);
      EXPECT_EQ(got[i].ids, wanted[i].ids);
      EXPECT_EQ(got[i].logprobs, wanted[i].logprobs);
      ASSERT_EQ(got[i].top.size(), wanted[i].top.size());
      for (size_t k = 0; k < got[i].top.size(); ++k)
        EXPECT_EQ(got[i].top[k].ids, wanted[i].top[k].ids);
    }
    storage = std::move(std::get<StepFrame>(*again));
  }
}

TEST(WorkerFrames, StepsThatLieAreBroken) {
  using Change = std::function<void(pb::Step&)>;
  const std::vector<Change> changes = {
      [](auto& s) { s.add_outputs(); },
      [](auto& s) { s.add_outputs()->add_ids(-1); },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->add_logprobs(0);
        s.mutable_outputs(0)->add_logprobs(0);
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->add_top();
        s.mutable_outputs(0)->add_top();
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->add_top()->add_ids(3);
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        auto* top = s.mutable_outputs(0)->add_top();
        for (int i = 0; i < kMaxLogprobs + 2; ++i) {
          top->add_ids(1);
          top->add_logprobs(0);
        }
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->set_choice(kMaxChoices);
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->set_accepted_prediction_tokens(1u << 16);
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->set_rejected_prediction_tokens(1u << 16);
      },
      [](auto& s) {
        s.add_outputs()->add_ids(1);
        s.mutable_outputs(0)->set_first_index(std::numeric_limits<uint64_t>::max());
      },
      [](auto& s) { s.add_ended()->set_choice(kMaxChoices); },
      [](auto& s) { s.add_events()->set_cache_kind(kMaxCacheGroupKinds); },
      [](auto& s) { s.add_events()->set_kind(static_cast<pb::CacheEvents::Kind>(9)); },
      [](auto& s) { s.add_prompt_logprobs()->add_ranks(1); },
      [](auto& s) {
        for (int i = 0; i <= kMaxFrameItems; ++i) s.add_admitted();
      },
      [](auto& s) {
        for (int i = 0; i <= kMaxFrameItems; ++i) s.add_refused();
      },
      [](auto& s) {
        for (int i = 0; i <= kMaxFrameItems; ++i) s.add_ended();
      },
      [](auto& s) {
        for (int i = 0; i <= kMaxFrameItems; ++i) s.add_events();
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    pb::WorkerFrame frame;
    changes[i](*frame.mutable_step());
    EXPECT_EQ(Decode(frame).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(WorkerFrames, UnknownEnumeratorsBecomeTheCautiousOne) {
  pb::WorkerFrame frame;
  pb::Step* step = frame.mutable_step();
  step->add_ended()->set_reason(static_cast<pb::EndReason>(99));
  step->add_ended();  // unspecified
  step->add_refused()->set_code(static_cast<pb::RefusalCode>(99));
  step->set_state(static_cast<pb::WorkerState>(99));
  const auto message = Decode(frame);
  ASSERT_TRUE(message.ok());
  const auto& read = std::get<StepFrame>(*message);
  EXPECT_EQ(read.ended.at(0).reason, EndReason::kFailed);
  EXPECT_EQ(read.ended.at(1).reason, EndReason::kFailed);
  EXPECT_EQ(read.refused.at(0).code, RefusalCode::kUnspecified);
  EXPECT_EQ(read.state, WorkerState::kStarting);
}

TEST(WorkerFrames, LongMessagesAreCut) {
  pb::WorkerFrame frame;
  frame.mutable_step()->add_refused()->set_message(std::string(100'000, 'm'));
  const auto message = Decode(frame);
  EXPECT_EQ(std::get<StepFrame>(*message).refused.at(0).message.size(), kMaxWireMessageBytes);
}

TEST(WorkerFrames, GarbageIsBroken) {
  EXPECT_FALSE(DecodeWorkerFrame("").ok());
  EXPECT_FALSE(DecodeWorkerFrame("\x0a\xff\xff\xff\xff\x0f").ok());
  EXPECT_FALSE(DecodeWorkerFrame(std::string(kMaxFrameBytes + 1, '\0')).ok());
  pb::WorkerFrame uneven;
  uneven.mutable_snapshot_chunk()->add_hashes(1);
  EXPECT_FALSE(Decode(uneven).ok());
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
  step.outputs.push_back(
      {key, 1, 3, 2, 5, {10, 11}, {-0.5f, -1.5f}, {{{1}, {-1.f}}, {{2}, {-2.f}}}});
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
  EXPECT_EQ(s.outputs(0).accepted_prediction_tokens(), 3u);
  EXPECT_EQ(s.outputs(0).rejected_prediction_tokens(), 2u);
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
  step.outputs.push_back({key, 0, 4, 1, 100, {}, {}, {}});
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
  StepLists same;
  same.outputs = step.outputs;
  same.ended = step.ended;
  size_t bytes = 0;
  uint64_t next_index = 100, next_event = 101, last_event = 100, seq = 10;
  uint64_t accepted = 0, rejected = 0;  // once, however it is split
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
      accepted += output.accepted_prediction_tokens();
      rejected += output.rejected_prediction_tokens();
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
  EXPECT_EQ(accepted, 4u);
  EXPECT_EQ(rejected, 1u);
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
  SnapshotChunk part{2, 3, true, 4, {5}, {6}, 7};
  const pb::WorkerFrame chunk = Parsed(EncodeSnapshotChunk(part));
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

// Frames to values and back; frames that no worker should send.
#include "router/link/codec.h"

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
  EXPECT_EQ(std::get<StepFrame>(*message).refused.at(0).message.size(), kMaxMessageBytes);
}

TEST(WorkerFrames, GarbageIsBroken) {
  EXPECT_FALSE(DecodeWorkerFrame("").ok());
  EXPECT_FALSE(DecodeWorkerFrame("\x0a\xff\xff\xff\xff\x0f").ok());
  EXPECT_FALSE(DecodeWorkerFrame(std::string(kMaxFrameBytes + 1, '\0')).ok());
  pb::WorkerFrame uneven;
  uneven.mutable_snapshot_chunk()->add_hashes(1);
  EXPECT_FALSE(Decode(uneven).ok());
}

pb::RouterFrame Read(const std::string& bytes) {
  EXPECT_LE(bytes.size(), kMaxFrameBytes);
  pb::RouterFrame frame;
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

Submit FullSubmit() {
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
  submit.initial_window = 256;
  submit.required_features = {"resume"};
  submit.model_id = "m";
  return submit;
}

TEST(RouterFrames, ASubmitSaysEverything) {
  const std::vector<std::string> frames = EncodeSubmit(FullSubmit());
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
  EXPECT_EQ(submit.priority(), -4);
  EXPECT_EQ(submit.initial_window(), 256u);
  EXPECT_EQ(submit.parts(), 0u);
}

TEST(RouterFrames, LongPromptsAreSplitAtTheLimit) {
  for (const size_t size : {kMaxPromptIdsPerFrame - 3, kMaxPromptIdsPerFrame - 2,
                            2 * kMaxPromptIdsPerFrame - 3, 3 * kMaxPromptIdsPerFrame + 5}) {
    Submit submit = FullSubmit();  // three resumed outputs share the first frame
    submit.prompt_ids.resize(size);
    for (size_t i = 0; i < size; ++i) submit.prompt_ids[i] = static_cast<TokenId>(1'999'999 - i);
    const std::vector<std::string> frames = EncodeSubmit(submit);
    std::vector<TokenId> ids;
    for (size_t i = 0; i < frames.size(); ++i) {
      const pb::RouterFrame frame = Read(frames[i]);
      const auto& part = i == 0 ? frame.submit().prompt_ids() : frame.submit_part().prompt_ids();
      ids.insert(ids.end(), part.begin(), part.end());
      const uint64_t number = i == 0 ? frame.submit().parts() : frame.submit_part().index();
      EXPECT_EQ(number, i == 0 ? frames.size() - 1 : i - 1);
    }
    EXPECT_EQ(ids, submit.prompt_ids) << size;
    EXPECT_EQ(frames.size(), size <= kMaxPromptIdsPerFrame - 3  ? 1u
                             : size < 2 * kMaxPromptIdsPerFrame ? 2u
                                                                : 4u);
  }
}

TEST(RouterFrames, AsManyResumedOutputsAsAllowedFitOneFrame) {
  Submit submit = FullSubmit();
  submit.choices = {{std::vector<TokenId>(kMaxResumedIds, 1'999'999), false}};
  submit.prompt_ids.assign(10, 1'999'999);
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

#include "bench/mock/paced_worker.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <set>

#include "common/runtime/virtual_runtime.h"

namespace quire::bench {
namespace {

constexpr RouterInstance kRouter(7);
constexpr Micros kInterval = 20 * kMicrosPerMilli;

class PacedWorkerTest : public ::testing::Test {
 protected:
  PacedWorkerTest() : world_(1) {
    options_.model_id = "m";
    options_.numerics_id = "n";
    options_.decode_interval = kInterval;
    options_.capacity_blocks = 64;
    options_.max_num_seqs = 2;
    options_.max_waiting = 2;
  }

  void Make() {
    worker_ = std::make_unique<PacedWorker>(options_, world_.executor(), [this] { Take(); });
  }

  static AttemptKey KeyOf(uint64_t request) { return {RequestNumber(request), Attempt(1)}; }

  void SubmitIt(uint64_t request, uint32_t prompt, int32_t max_tokens, uint32_t window = 0,
                std::vector<TokenId> outputs = {}) {
    SubmitCommand command;
    command.router = kRouter;
    command.submit.key = KeyOf(request);
    command.submit.submit_number = ++submits_;
    std::vector<TokenId> ids(prompt);
    std::iota(ids.begin(), ids.end(), 1);
    command.submit.prompt_ids = std::move(ids);
    command.submit.choices.push_back({std::move(outputs), false});
    command.submit.sampling.seed = 100 + request;
    command.submit.sampling.max_tokens = max_tokens;
    command.submit.initial_window = window;
    ASSERT_TRUE(worker_->TryPush(std::move(command)));
  }

  void Take() {
    std::vector<EngineOutput> outputs;
    worker_->TakeOutputs(outputs);
    for (EngineOutput& output : outputs) Follow(output);
    worker_->CheckInvariants();
  }

  void Follow(const EngineOutput& output) {
    load_ = output.load;
    EXPECT_EQ(load_.free_blocks + load_.evictable_blocks + load_.held_blocks, 64u);
    EXPECT_EQ(output.event_seq - event_seq_, output.events.size());
    event_seq_ = output.event_seq;
    for (const CacheEvents& event : output.events) {
      for (const uint64_t hash : event.hashes) {
        if (event.kind == CacheEvents::Kind::kStored) {
          EXPECT_TRUE(cached_.insert(hash).second);
        } else {
          EXPECT_EQ(cached_.erase(hash), 1u);
        }
      }
    }
    for (const SnapshotPart& part : output.snapshot_parts) {
      snapshot_.insert(part.hashes.begin(), part.hashes.end());
      EXPECT_TRUE(part.last);
      EXPECT_EQ(part.event_seq, event_seq_);
    }
    for (const RouterOutput& words : output.routers) {
      EXPECT_EQ(words.router, kRouter);
      EXPECT_EQ(words.last_admitted_submit, submits_);
      for (const Admitted& a : words.admitted) hits_[a.key.request.value()] = a.cached_tokens;
      for (const Output& o : words.outputs) {
        std::vector<TokenId>& ids = ids_[o.key.request.value()];
        EXPECT_EQ(o.first_index, begin_ + ids.size());
        ids.insert(ids.end(), o.ids.begin(), o.ids.end());
        last_at_ = world_.clock().Now();
      }
      for (const Ended& e : words.ended) ended_[e.key.request.value()] = e;
      for (const Refused& r : words.refused) refused_[r.key.request.value()] = r.code;
    }
  }

  void Pass(Micros time) { world_.RunUntil(world_.clock().Now() + time); }

  VirtualWorld world_;
  PaceOptions options_;
  std::unique_ptr<PacedWorker> worker_;
  uint64_t submits_ = 0;
  uint64_t begin_ = 0;  // index of the first output that is to come
  uint64_t event_seq_ = 0;
  Load load_;
  Micros last_at_ = 0;
  std::set<uint64_t> cached_, snapshot_;
  std::map<uint64_t, uint32_t> hits_;
  std::map<uint64_t, std::vector<TokenId>> ids_;
  std::map<uint64_t, Ended> ended_;
  std::map<uint64_t, RefusalCode> refused_;
};

TEST_F(PacedWorkerTest, WritesItsRuleAtItsPace) {
  Make();
  SubmitIt(1, 5, 4);
  Pass(kMicrosPerMilli);
  EXPECT_EQ(ids_[1].size(), 1u);  // the prompt takes no time
  Pass(3 * kInterval);
  ASSERT_EQ(ids_[1].size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(ids_[1][i], TokenOf(101, 0, i, options_.vocab_size));
  EXPECT_EQ(ended_.at(1).reason, EndReason::kLength);
  EXPECT_TRUE(ended_.at(1).last_choice);
  EXPECT_EQ(ended_.at(1).usage.generated_tokens, 4u);
  EXPECT_EQ(load_.held_blocks, 0u);
  EXPECT_EQ(worker_->live(), 0u);
}

TEST_F(PacedWorkerTest, GoesOnWhereAnotherBegan) {
  Make();
  begin_ = 2;
  SubmitIt(1, 5, 4, 0, {TokenOf(101, 0, 0, 2048), TokenOf(101, 0, 1, 2048)});
  Pass(4 * kInterval);
  ASSERT_EQ(ids_[1].size(), 2u);
  EXPECT_EQ(ids_[1][0], TokenOf(101, 0, 2, options_.vocab_size));
}

TEST_F(PacedWorkerTest, PromptsTakeTurnsAtTheirRate) {
  options_.prefill_tokens_per_s = 1000;
  options_.prefix_caching = false;
  Make();
  SubmitIt(1, 100, 1);
  SubmitIt(2, 100, 1);
  Pass(90 * kMicrosPerMilli);
  EXPECT_TRUE(ids_[1].empty());
  EXPECT_EQ(load_.running_prefill_tokens, 200u);
  Pass(20 * kMicrosPerMilli);
  EXPECT_EQ(ids_[1].size(), 1u);
  EXPECT_TRUE(ids_[2].empty());
  Pass(100 * kMicrosPerMilli);
  EXPECT_EQ(ids_[2].size(), 1u);
}

TEST_F(PacedWorkerTest, WritesNoFurtherThanItsWindow) {
  Make();
  SubmitIt(1, 5, 10, 3);
  Pass(20 * kInterval);
  EXPECT_EQ(ids_[1].size(), 3u);
  ASSERT_TRUE(worker_->TryPush(GrantCommand{kRouter, {KeyOf(1), 0, 5}}));
  Pass(20 * kInterval);
  EXPECT_EQ(ids_[1].size(), 5u);
  EXPECT_EQ(ended_.count(1), 0u);
}

TEST_F(PacedWorkerTest, RefusesWhatItsQueueHasNoPlaceFor) {
  Make();
  for (uint64_t i = 1; i <= 5; ++i) SubmitIt(i, 5, 50);
  Pass(kMicrosPerMilli);
  EXPECT_EQ(load_.running_rows, 2u);
  EXPECT_EQ(load_.waiting_requests, 2u);
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_EQ(refused_.at(5), RefusalCode::kQueueFull);
  SubmitIt(9, 5000, 5);
  SubmitIt(10, 2000, 5);
  Pass(kMicrosPerMilli);
  EXPECT_EQ(refused_.at(9), RefusalCode::kInvalid);
}

TEST_F(PacedWorkerTest, EveryEndGivesBlocksBackAndIsTold) {
  Make();
  for (uint64_t i = 1; i <= 2; ++i) SubmitIt(i, 20, 50);
  Pass(kInterval);
  for (uint64_t i = 3; i <= 4; ++i) SubmitIt(i, 20, 50);
  Pass(kInterval);
  EXPECT_GT(load_.held_blocks, 0u);
  ASSERT_TRUE(worker_->TryPush(CancelCommand{kRouter, {KeyOf(1), false, 0}}));
  ASSERT_TRUE(worker_->TryPush(CancelCommand{kRouter, {KeyOf(4), false, 0}}));
  ASSERT_TRUE(worker_->TryPush(FinishCommand{kRouter, {KeyOf(2), 0, EndReason::kStop, 1}}));
  Pass(kInterval);
  EXPECT_EQ(ended_.at(1).reason, EndReason::kCancelled);
  EXPECT_EQ(ended_.at(4).reason, EndReason::kCancelled);
  EXPECT_EQ(ended_.at(2).reason, EndReason::kStop);
  EXPECT_EQ(ended_.at(2).usage.generated_tokens - ended_.at(2).usage.discarded_tokens, 1u);
  EXPECT_EQ(load_.running_rows, 1u);
  ASSERT_TRUE(worker_->TryPush(RouterLostCommand{kRouter}));
  Pass(kInterval);
  EXPECT_EQ(load_.held_blocks, 0u);
  EXPECT_EQ(worker_->live(), 0u);
  EXPECT_EQ(ended_.count(3), 0u);  // nobody is there to be told
}

TEST_F(PacedWorkerTest, DrainsWhatWaitsAtOnceAndTheRestAtItsTime) {
  Make();
  for (uint64_t i = 1; i <= 2; ++i) SubmitIt(i, 20, 50);
  Pass(kInterval);
  SubmitIt(3, 20, 50);
  Pass(kInterval);
  ASSERT_TRUE(worker_->TryPush(DrainCommand{world_.clock().Now() + 5 * kInterval}));
  Pass(kMicrosPerMilli);
  EXPECT_EQ(ended_.at(3).reason, EndReason::kDrained);
  EXPECT_TRUE(ended_.at(3).retryable);
  EXPECT_EQ(ended_.count(1), 0u);
  Pass(6 * kInterval);
  EXPECT_EQ(ended_.at(1).reason, EndReason::kDrained);
  EXPECT_EQ(worker_->live(), 0u);
}

TEST_F(PacedWorkerTest, TellsWhatIsCachedByEventsAndBySnapshotAlike) {
  Make();
  SubmitIt(1, 100, 1);
  Pass(kInterval);
  EXPECT_EQ(hits_.at(1), 0u);
  EXPECT_EQ(cached_.size(), 6u);
  SubmitIt(2, 100, 1);
  Pass(kInterval);
  EXPECT_EQ(hits_.at(2), 96u);
  SubmitIt(3, 96, 1);  // the last block is computed: its last token gives the first output
  Pass(kInterval);
  EXPECT_EQ(hits_.at(3), 80u);
  SubmitIt(4, 900, 1);  // leaves room for fewer
  Pass(kInterval);
  ASSERT_TRUE(worker_->TryPush(SnapshotCommand{kRouter, 1}));
  Pass(kMicrosPerMilli);
  EXPECT_EQ(snapshot_, cached_);
  EXPECT_EQ(load_.evictable_blocks, cached_.size());
  EXPECT_LT(cached_.size(), 62u);
}

TEST_F(PacedWorkerTest, StepsComeAtTheirPhase) {
  options_.step_phase = 7 * kMicrosPerMilli;
  Make();
  Pass(10 * kMicrosPerMilli);
  SubmitIt(1, 4, 3);
  Pass(16 * kMicrosPerMilli);  // the first token comes at once, the next is due at 27 ms
  EXPECT_EQ(ids_[1].size(), 1u);
  Pass(2 * kMicrosPerMilli);
  EXPECT_EQ(ids_[1].size(), 2u);
  Pass(kInterval);
  EXPECT_EQ(ids_[1].size(), 3u);
  EXPECT_EQ(NextAtPhase(100, 20, 7), 107);
  EXPECT_EQ(NextAtPhase(107, 20, 7), 127);
  EXPECT_EQ(NextAtPhase(3, 20, 7), 7);
}

TEST_F(PacedWorkerTest, AScriptsAnswerEndsWithItsLastTokenAndIsCarriedOn) {
  text::TextBundle bundle;
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/models/demo/tokenizer.json");
  bundle.tokenizer_json = std::string(std::istreambuf_iterator<char>(file), {});
  bundle.eos_token_ids = {2};
  const auto script = Script::Read(R"([{"answer": "a small fox"}])", bundle);
  ASSERT_TRUE(script.ok()) << script.status();
  const std::vector<TokenId> answer = *(*script)->AnswerTo({});
  ASSERT_GT(answer.size(), 2u);
  options_.script = script->get();
  Make();
  SubmitIt(1, 4, 50);
  Pass(20 * kInterval);
  EXPECT_EQ(ids_[1], answer);
  EXPECT_EQ(ended_.at(1).reason, EndReason::kStop);
  begin_ = 2;
  SubmitIt(2, 4, 50, 0, {answer.begin(), answer.begin() + 2});
  Pass(20 * kInterval);
  EXPECT_EQ(ids_[2], std::vector<TokenId>(answer.begin() + 2, answer.end()));
  begin_ = 0;
  SubmitIt(3, 4, 2);
  Pass(20 * kInterval);
  EXPECT_EQ(ids_[3].size(), 2u);
  EXPECT_EQ(ended_.at(3).reason, EndReason::kLength);
}

TEST(Stamps, TellTheirAge) {
  const Micros now = 123'456'789'000;
  const TokenId stamp = StampOf(now, 2048);
  EXPECT_NEAR(AgeOf(stamp, now, 2048), 0, kStampStep / 2);
  EXPECT_NEAR(AgeOf(stamp, now + 50'000, 2048), 50'000, kStampStep / 2);
}

}  // namespace
}  // namespace quire::bench

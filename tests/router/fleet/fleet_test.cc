// Workers' phases, pools, bundles.
#include "router/fleet/fleet.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "router/fleet/text_bundles.h"

namespace quire {
namespace {

WorkerHello Hello(const std::string& model = "m", const std::string& name = "n",
                  const std::string& sha = std::string(32, 'a')) {
  WorkerHello hello;
  hello.worker_id = "w";
  hello.model_id = model;
  hello.served_names = {name};
  hello.text_bundle_sha256 = sha;
  hello.vocab_size = 10;
  hello.limits.max_model_len = 100;
  return hello;
}
StepFrame Step(WorkerState state = WorkerState::kReady, uint32_t age = 0, uint32_t limit = 2000) {
  StepFrame step;
  step.state = state;
  step.step_age_ms = age;
  step.step_limit_ms = limit;
  return step;
}

class FleetTest : public ::testing::Test {
 protected:
  WorkerIndex Add(const std::string& target) { return fleet_.AddWorker(target).value(); }
  WorkerPhase PhaseOf(WorkerIndex worker) {
    fleet_.CheckInvariants();
    return fleet_.worker(worker).phase;
  }
  RouterLimits limits_;
  Fleet fleet_{limits_};
};

TEST_F(FleetTest, AWorkerIsReadyOnceItSaysSoAndItsTextIsAtHand) {
  const WorkerIndex worker = Add("a:1");
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kConnecting);
  ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kPreparing);
  fleet_.TextReady("m");
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kPreparing) << "it has not said that it is ready";
  fleet_.Stepped(worker, Step(), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kReady);
  EXPECT_EQ(fleet_.ReadyCount("m"), 1u);
  for (const WorkerState state : {WorkerState::kStarting, WorkerState::kRecovering}) {
    fleet_.Stepped(worker, Step(state), 2);
    EXPECT_EQ(PhaseOf(worker), WorkerPhase::kPreparing);
  }
  fleet_.Detached(worker, "gone", 0);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kConnecting);
  EXPECT_EQ(fleet_.worker(worker).last_error, "gone");
}

TEST_F(FleetTest, AModelOffersWhatSomeReadyWorkerOffers) {
  WorkerHello old = Hello();
  old.features = {"choices"};
  WorkerHello recent = Hello();
  recent.worker_id = "another";
  recent.features = {"resume", "choices"};
  const WorkerIndex first = Add("a:1");
  const WorkerIndex second = Add("b:1");
  EXPECT_TRUE(fleet_.FeaturesOf("m").empty()) << "nobody has said what it offers";
  ASSERT_TRUE(fleet_.Attached(first, old, 5).ok());
  ASSERT_TRUE(fleet_.Attached(second, recent, 5).ok());
  fleet_.TextReady("m");
  fleet_.Stepped(first, Step(), 1);
  EXPECT_EQ(fleet_.FeaturesOf("m"), old.features) << "the other one is not ready yet";
  fleet_.Stepped(second, Step(), 1);
  EXPECT_EQ(fleet_.FeaturesOf("m"), (std::vector<std::string>{"choices", "resume"}));
  EXPECT_TRUE(fleet_.FeaturesOf("another").empty());
  fleet_.Detached(first, "gone", 0);
  EXPECT_EQ(fleet_.FeaturesOf("m"), recent.features);
  fleet_.Detached(second, "gone", 0);
  EXPECT_EQ(fleet_.FeaturesOf("m"), old.features) << "with nobody ready, the representative's";
}

TEST_F(FleetTest, StuckIsAStepPastItsLimitOrTheWorkersOwnWord) {
  const WorkerIndex worker = Add("a:1");
  ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  fleet_.TextReady("m");
  fleet_.Stepped(worker, Step(WorkerState::kReady, 2000), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kReady) << "at the limit it is merely slow";
  fleet_.Stepped(worker, Step(WorkerState::kReady, 2001), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kStuck);
  fleet_.Stepped(worker, Step(), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kReady) << "it got going again";
  fleet_.Stepped(worker, Step(WorkerState::kStuck), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kStuck);
  fleet_.Stepped(worker, Step(WorkerState::kReady, 5, 0), 1);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kReady) << "no limit is known before the first step";
}

TEST_F(FleetTest, DrainingLastsUntilTheNextAttach) {
  const WorkerIndex worker = Add("a:1");
  ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  fleet_.TextReady("m");
  fleet_.Stepped(worker, Step(), 1);
  fleet_.Draining(worker);
  fleet_.Stepped(worker, Step(), 2);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kDraining);
  fleet_.Detached(worker, "gone", 0);
  ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  fleet_.Stepped(worker, Step(), 3);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kReady);
  fleet_.Stepped(worker, Step(WorkerState::kDraining), 3);
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kDraining);
}

TEST_F(FleetTest, AnotherBundleOfTheSameModelIsRefusedByName) {
  const WorkerIndex first = Add("a:1");
  const WorkerIndex second = Add("b:1");
  ASSERT_TRUE(fleet_.Attached(first, Hello(), 5).ok());
  const absl::Status refused = fleet_.Attached(second, Hello("m", "n", std::string(32, 'b')), 5);
  EXPECT_NE(StatusMessage(refused).find("b:1"), std::string::npos);
  EXPECT_EQ(PhaseOf(second), WorkerPhase::kRefused);
  fleet_.TextReady("m");
  fleet_.Stepped(second, Step(), 1);
  EXPECT_EQ(PhaseOf(second), WorkerPhase::kRefused);
  fleet_.Detached(second, "gone", 0);
  ASSERT_TRUE(fleet_.Attached(second, Hello(), 5).ok()) << "it came back with the right one";
}

TEST_F(FleetTest, AnUnusableTextRefusesAllItsWorkers) {
  const WorkerIndex worker = Add("a:1");
  ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  fleet_.TextRefused("m", "broken");
  EXPECT_EQ(PhaseOf(worker), WorkerPhase::kRefused);
  EXPECT_EQ(fleet_.worker(worker).refusal, "broken");
}

TEST_F(FleetTest, TargetsAreListedOnceAndBounded) {
  limits_.max_workers = 2;
  Fleet fleet(limits_);
  EXPECT_TRUE(fleet.AddWorker("a:1").ok());
  EXPECT_EQ(fleet.AddWorker("a:1").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fleet.AddWorker("b:1").ok());
  EXPECT_EQ(fleet.AddWorker("c:1").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FleetTest, AWorkerThatWentLeavesItsPlaceAndWhatItToldOfItsModel) {
  const WorkerIndex first = Add("a:1");
  const WorkerIndex second = Add("b:1");
  ASSERT_TRUE(fleet_.Attached(first, Hello(), 5).ok());
  fleet_.Detached(first, "gone", 0);
  fleet_.RemoveWorker(first);
  EXPECT_EQ(PhaseOf(first), WorkerPhase::kGone);
  ASSERT_EQ(fleet_.PoolsOf("n").size(), 1u);
  EXPECT_FALSE(fleet_.PoolsOf("n")[0].attached);
  ASSERT_NE(fleet_.Representative("m"), nullptr);
  EXPECT_EQ(fleet_.Representative("m")->hello.limits.max_model_len, 100u);
  EXPECT_EQ(fleet_.ReadyCount("m"), 0u);
  fleet_.RemoveWorker(second);
  EXPECT_EQ(Add("c:1"), first) << "the first place that is free";
  EXPECT_EQ(PhaseOf(first), WorkerPhase::kConnecting);
  EXPECT_TRUE(fleet_.worker(first).hello.model_id.empty()) << "it is another worker";
  EXPECT_EQ(Add("a:1"), second) << "its name is free again";
}

TEST_F(FleetTest, PoolsAreBounded) {
  limits_.max_pools = 2;
  Fleet fleet(limits_);
  const WorkerIndex worker = fleet.AddWorker("a:1").value();
  WorkerHello hello = Hello();
  hello.served_names = {"1", "2", "3"};
  EXPECT_FALSE(fleet.Attached(worker, hello, 5).ok());
  EXPECT_EQ(fleet.pools().size(), 2u);
  EXPECT_EQ(fleet.worker(worker).phase, WorkerPhase::kRefused);
}

TEST_F(FleetTest, APoolThatNobodyServesMakesRoomForAnother) {
  limits_.max_pools = 2;
  Fleet fleet(limits_);
  for (int update = 0; update < 20; ++update) {
    const std::string target = "w" + std::to_string(update) + ":1";
    const WorkerIndex worker = fleet.AddWorker(target).value();
    EXPECT_TRUE(fleet.Attached(worker, Hello("model-" + std::to_string(update), "n"), 5).ok());
    fleet.CheckInvariants();
    ASSERT_LE(fleet.pools().size(), 2u);
    EXPECT_EQ(fleet.pools().back().model_id, "model-" + std::to_string(update));
    fleet.Detached(worker, "updated", 0);
    fleet.RemoveWorker(worker);
  }
  EXPECT_EQ(fleet.pools().front().model_id, "model-18") << "the last one is remembered";
}

TEST_F(FleetTest, AnIdIsOneWorkersAtATime) {
  const WorkerIndex first = Add("a:1");
  const WorkerIndex second = Add("b:1");
  WorkerHello hello = Hello();
  hello.worker_id = "rack3-gpu0";
  hello.epoch = Epoch(1);
  ASSERT_TRUE(fleet_.CheckUnique(first, hello, 1).ok());
  ASSERT_TRUE(fleet_.Attached(first, hello, 0).ok());
  const absl::Status alias = fleet_.CheckUnique(second, hello, 2);
  EXPECT_EQ(StatusMessage(alias),
            "worker_id rack3-gpu0 is already attached at a:1: this is the same process under "
            "another address; name it once");
  EXPECT_FALSE(fleet_.MayDial(second, 2));
  WorkerHello stranger = hello;
  stranger.epoch = Epoch(2);
  EXPECT_NE(StatusMessage(fleet_.CheckUnique(second, stranger, 2)).find("another process"),
            std::string::npos);
  fleet_.Detached(first, "gone", 5);
  EXPECT_TRUE(fleet_.MayDial(second, 5)) << "a pod that is back under another address";
  EXPECT_TRUE(fleet_.CheckUnique(second, stranger, 5).ok());
  EXPECT_FALSE(fleet_.CheckUnique(second, hello, 5 + kSameProcessPause - 1).ok());
  EXPECT_FALSE(fleet_.MayDial(second, 5 + kSameProcessPause - 1));
  EXPECT_TRUE(fleet_.MayDial(second, 5 + kSameProcessPause));
  EXPECT_TRUE(fleet_.CheckUnique(second, hello, 5 + kSameProcessPause).ok());
  hello.worker_id.clear();
  ASSERT_TRUE(fleet_.Attached(first, hello, 0).ok());
  EXPECT_TRUE(fleet_.CheckUnique(second, hello, 6).ok()) << "who has no name shares none";
}

TEST_F(FleetTest, APinnedNameRefusesStrangers) {
  fleet_.SetPoolRules(ReadPoolRules({{}, {"n=ab"}, {}}).value());
  EXPECT_TRUE(fleet_.Attached(Add("a:1"), Hello("abc", "n"), 5).ok());
  const WorkerIndex stranger = Add("b:1");
  EXPECT_FALSE(fleet_.Attached(stranger, Hello("xyz", "n"), 5).ok());
  EXPECT_EQ(PhaseOf(stranger), WorkerPhase::kRefused);
  EXPECT_NE(fleet_.worker(stranger).refusal.find("--pin-model"), std::string::npos);
  const WorkerIndex similar = Add("c:1");
  EXPECT_FALSE(fleet_.Attached(similar, Hello("abd", "n"), 5).ok());
  EXPECT_NE(fleet_.worker(similar).refusal.find("ambiguous"), std::string::npos);
  EXPECT_TRUE(fleet_.Attached(Add("d:1"), Hello("abc", "n"), 5).ok());
  EXPECT_TRUE(fleet_.Attached(Add("e:1"), Hello("xyz", "other"), 5).ok());
  EXPECT_EQ(fleet_.PoolsOf("n").size(), 1u) << "a refused worker makes no pool";
}

TEST_F(FleetTest, ANameHasAPoolForEachOfItsModels) {
  const WorkerIndex old_worker = Add("a:1");
  ASSERT_TRUE(fleet_.Attached(old_worker, Hello("old", "chat"), 5).ok());
  const WorkerIndex new_worker = Add("b:1");
  ASSERT_TRUE(fleet_.Attached(new_worker, Hello("new", "chat"), 6).ok());
  fleet_.TextReady("new");
  fleet_.Stepped(new_worker, Step(), 1);
  const std::vector<PoolCapacity> of_name = fleet_.PoolsOf("chat");
  ASSERT_EQ(of_name.size(), 2u);
  EXPECT_EQ(of_name[0].pool->model_id, "old");
  EXPECT_EQ(of_name[0].ready_rows, 0u);
  EXPECT_TRUE(of_name[0].attached);
  EXPECT_EQ(of_name[1].pool->model_id, "new");
  EXPECT_GT(of_name[1].ready_rows, 0u);
  EXPECT_TRUE(fleet_.PoolsOf("other").empty());
  fleet_.Detached(new_worker, "gone", 0);
  EXPECT_EQ(fleet_.PoolsOf("chat").size(), 2u) << "a name outlives its workers";
  EXPECT_EQ(fleet_.Representative("new")->index, new_worker);
  EXPECT_EQ(fleet_.Representative("none"), nullptr);
}

TEST_F(FleetTest, AViewHoldsReadyWorkersInOrderWithWhatThisRouterSent) {
  for (const char* target : {"a:1", "b:1", "c:1"}) {
    const WorkerIndex worker = Add(target);
    ASSERT_TRUE(fleet_.Attached(worker, Hello(), 5).ok());
  }
  fleet_.TextReady("m");
  fleet_.Stepped(WorkerIndex(2), Step(), 1);
  fleet_.Stepped(WorkerIndex(0), Step(), 1);
  fleet_.AttemptStarted(WorkerIndex(2));
  fleet_.AttemptStarted(WorkerIndex(2));
  fleet_.AttemptAnswered(WorkerIndex(2));
  const FleetView view = fleet_.View("m", 0);
  ASSERT_EQ(view.workers.size(), 2u);
  EXPECT_EQ(view.workers[0].worker, WorkerIndex(0));
  EXPECT_EQ(view.workers[1].worker, WorkerIndex(2));
  EXPECT_EQ(view.workers[1].live_attempts, 2u);
  EXPECT_EQ(view.workers[1].unadmitted_submits, 1u);
  fleet_.AttemptEnded(WorkerIndex(2), true);
  fleet_.AttemptEnded(WorkerIndex(2), false);
  EXPECT_EQ(fleet_.View("m", 0).workers[1].live_attempts, 0u);
  EXPECT_EQ(fleet_.View("m", 0).workers[1].unadmitted_submits, 0u);
  fleet_.CheckInvariants();
}

TEST_F(FleetTest, AViewFollowsEveryWordOfAWorkerAndWhatIsOnItsWayToIt) {
  const WorkerIndex first = Add("a:1");
  WorkerHello hello = Hello();
  hello.limits.max_num_seqs = 4;
  hello.features = {"x"};
  ASSERT_TRUE(fleet_.Attached(first, hello, 5).ok());
  fleet_.TextReady("m");
  fleet_.Stepped(first, Step(), 1);
  ASSERT_EQ(fleet_.View("m", 1).workers.size(), 1u);
  EXPECT_EQ(fleet_.PoolsOf("n")[0].ready_rows, 4u);
  StepFrame step = Step();
  step.load.running_rows = 3;
  step.routers_attached = 2;
  fleet_.Stepped(first, step, 2);
  fleet_.SetUnseen(first, 2, 50);
  // A place for another one moves the records; its Hello, the lists.
  const WorkerIndex second = Add("b:1");
  hello.worker_id = "another worker, whose name is long";
  hello.features = {"y"};
  ASSERT_TRUE(fleet_.Attached(second, hello, 5).ok());
  fleet_.Stepped(second, Step(), 2);
  const FleetView both = fleet_.View("m", 2);
  fleet_.CheckInvariants();
  ASSERT_EQ(both.workers.size(), 2u);
  EXPECT_EQ(both.workers[0].load.running_rows, 3u);
  EXPECT_EQ(both.workers[0].routers_attached, 2u);
  EXPECT_EQ(both.workers[0].unseen_submits, 2u);
  EXPECT_EQ(both.workers[0].unseen_tokens, 50u);
  EXPECT_EQ(both.workers[0].worker_id, "w");
  EXPECT_EQ(both.workers[1].worker_id, hello.worker_id);
  EXPECT_EQ(fleet_.PoolsOf("n")[0].ready_rows, 8u);
  EXPECT_EQ(fleet_.FeaturesOf("m"), (std::vector<std::string>{"x", "y"}));
  fleet_.Draining(first);
  fleet_.Detached(first, "gone", 3);
  fleet_.CheckInvariants();
  EXPECT_EQ(fleet_.view(first).unseen_submits, 0u) << "its link has ended";
  ASSERT_EQ(fleet_.View("m", 3).workers.size(), 1u);
  EXPECT_EQ(fleet_.Representative("m")->index, second);
  fleet_.Stepped(second, Step(WorkerState::kStuck), 4);
  EXPECT_TRUE(fleet_.View("m", 4).workers.empty());
  fleet_.Stepped(second, Step(), 5);
  EXPECT_EQ(fleet_.View("m", 5).workers.size(), 1u);
  fleet_.CheckInvariants();
}

class TextBundlesTest : public ::testing::Test {
 protected:
  void Fetch(const std::string& sha) {
    fetched_ = bundles_->Fetch({"w:1", "m", sha}, [this](auto result) { result_ = result; });
  }
  VirtualWorld world_{1};
  std::unique_ptr<Dialer> dialer_ = world_.MakeDialer();
  RouterLimits limits_;
  std::unique_ptr<TextBundles> bundles_ = std::make_unique<TextBundles>(limits_, *dialer_);
  bool fetched_ = false;
  absl::StatusOr<std::string> result_ = absl::UnknownError("not called");
};

TEST_F(TextBundlesTest, HandsOnWhatHasTheDigest) {
  world_.ServeTextBundle("w:1", [](const std::string&) -> absl::StatusOr<std::string> {
    return std::string("bytes");
  });
  Fetch(Sha256("bytes"));
  EXPECT_TRUE(fetched_);
  Fetch(Sha256("bytes"));
  EXPECT_FALSE(fetched_) << "one at a time";
  world_.RunUntil(world_.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(result_.value_or(""), "bytes");
  Fetch(Sha256("other"));
  world_.RunUntil(world_.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(result_.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TextBundlesTest, AFailureCanBeTriedAgain) {
  Fetch(Sha256("bytes"));
  world_.RunUntil(world_.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(result_.status().code(), absl::StatusCode::kUnavailable);
  Fetch(Sha256("bytes"));
  EXPECT_TRUE(fetched_);
}

TEST_F(TextBundlesTest, ResultsForOneThatIsGoneAreDropped) {
  Fetch(Sha256("bytes"));
  bundles_.reset();
  world_.RunUntil(world_.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(result_.status().code(), absl::StatusCode::kUnknown);
}

TEST_F(TextBundlesTest, BytesUnderWayAreBounded) {
  limits_.max_text_bundles_bytes = kMaxTextBundleBytes;
  bundles_ = std::make_unique<TextBundles>(limits_, *dialer_);
  Fetch("x");
  EXPECT_TRUE(fetched_);
  EXPECT_FALSE(bundles_->Fetch({"w:1", "another", "x"}, [](auto) {}));
}

TEST(Sha256Test, KnownDigest) {
  // FIPS 180-2, the digest of "abc".
  EXPECT_EQ(Sha256("abc").substr(0, 4), "\xba\x78\x16\xbf");
}

}  // namespace
}  // namespace quire

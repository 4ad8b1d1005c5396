// Groups of ranks as threads and as processes: what they compute, and every way of losing one.
#include "worker/ranks/rank_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "kernels/collectives/futex.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/ranks/tag_rank.h"

namespace quire::test {
namespace {

#ifndef QUIRE_RANK_PATIENCE
#define QUIRE_RANK_PATIENCE 1  // more where a step takes longer
#endif
constexpr int64_t kPatientMicros = 60'000'000;
constexpr int64_t kSilentMicros = 1'500'000;
constexpr int64_t kStoppedMicros = 300'000 * QUIRE_RANK_PATIENCE;

// How the last of a group's failures was named.
std::string WhyOf(const RankMetrics& metrics) {
  std::string why;
  for (size_t i = 0; i < kRankFailures; ++i) {
    if (metrics.failures[i]->value() > 0) why += RankFailureName(static_cast<RankFailure>(i));
  }
  return why;
}

struct GroupShape {
  int ranks = 2;
  bool processes = false;
  int max_in_flight = 1;
};

// Keeps what was said of the group's losses.
class LossLogger final : public Logger {
 public:
  LossLogger() : Logger(LogLevel::kError) {}
  std::string losses() const {
    const std::lock_guard lock(mutex_);
    return losses_;
  }

 private:
  void Write(LogLevel, std::string_view, std::span<const LogField> fields) override {
    const std::lock_guard lock(mutex_);
    for (const LogField& field : fields) {
      if (field.key == "what" || field.key == "devices") losses_ += field.value.text + ";";
    }
  }
  mutable std::mutex mutex_;
  std::string losses_;
};

// An engine over a group of tag ranks, driven by hand in real time.
class RankFleet {
 public:
  explicit RankFleet(const GroupShape& shape, TagFault fault = {},
                     int64_t step_timeout_us = kPatientMicros) {
    if (!fault.what.empty()) {
      fault.token = testing::TempDir() + "rank_fault_" + std::to_string(getpid());
      std::ofstream(fault.token) << "once";
    }
    options_ = SmallEngine().engine;
    const TagRunnerOptions tag = RunnerOptionsFor(options_);
    RankGroupOptions group;
    group.setup.size = shape.ranks;
    group.setup.limits.max_rows = tag.max_num_seqs;
    group.setup.limits.max_tokens = tag.max_step_tokens;
    group.setup.limits.max_model_len = tag.max_model_len;
    group.setup.limits.block_size = tag.cache.block_size;
    group.setup.limits.groups = tag.cache.GroupCount();
    group.setup.limits.page_count = tag.cache.page_count;
    group.setup.limits.vocab_size = tag.vocab_size;
    group.identity = kTagIdentity;
    group.max_in_flight = shape.max_in_flight;
    group.masks = options_.masks = &masks_;
    group.step_timeout_us = step_timeout_us;
    group.on_hopeless = [this](const std::string& what) { hopeless = what; };
    group.device_note = [] { return std::string("rank 1: XID 79"); };
    host_ =
        shape.processes ? MakeProcessRanks(fault.Arguments()) : MakeThreadRanks(TagBuilder(fault));
    group_ = std::make_unique<RankGroup>(group, *host_, log, metrics);
    started = group_->Start();
    if (started.ok()) engine_ = std::make_unique<Engine>(options_, *group_, progress_);
  }

  void Send(uint64_t request, const Constraint& constraint = {}) {
    SubmitCommand command;
    command.submit.constraint = constraint;
    if (constraint.kind != ConstraintKind::kNone) command.grammar = TagGrammar(constraint);
    command.router = RouterInstance(1);
    command.submit.key = {RequestNumber(request), Attempt(1)};
    command.submit.submit_number = request;
    command.submit.prompt_ids = {1, 2, 3, static_cast<TokenId>(request % 4)};
    command.submit.choices.resize(1);
    command.submit.sampling.max_tokens = 24;
    command.submit.sampling.ignore_eos = true;
    command.submit.sampling.seed = 7;
    command.submit.model_id = "tag";
    engine_->Apply(std::move(command), kernels::FutexNowMicros());
  }
  // One round, after the wake-up that the one before asked for.
  void Once() {
    while (last.next_wakeup_us > kernels::FutexNowMicros() + 1'000'000)
      last.next_wakeup_us = kernels::FutexNowMicros();
    while (kernels::FutexNowMicros() < last.next_wakeup_us) usleep(200);
    last = engine_->RunOnce(kernels::FutexNowMicros());
    engine_->CheckInvariants();
    for (const RouterOutput& router : last.routers) {
      for (const Output& output : router.outputs) {
        std::vector<TokenId>& tokens = answers[output.key.request.value()];
        tokens.insert(tokens.end(), output.ids.begin(), output.ids.end());
      }
      for (const Ended& ended : router.ended) ends[ended.key.request.value()] = ended;
      for (const Refused& refused : router.refused) refusals[refused.key.request.value()] = refused;
    }
  }
  // The tokens of a request that has been sent, or nothing when it did not run to its end.
  std::vector<TokenId> Finish(uint64_t request) {
    while (!ends.contains(request) && !refusals.contains(request)) Once();
    const bool done = ends.contains(request) && ends[request].reason == EndReason::kLength;
    return done ? answers[request] : std::vector<TokenId>{};
  }
  // Until the group is there again; then a request that runs to its end.
  std::vector<TokenId> FinishAnew(uint64_t request) {
    for (;; request += 4) {
      while (engine_->device_lost()) Once();
      Send(request);
      std::vector<TokenId> tokens = Finish(request);
      if (!tokens.empty()) return tokens;
    }
  }

  int64_t pages_asked_for() const { return options_.page_count; }
  int64_t page_count() const { return group_->page_count(); }

  absl::Status started;
  EngineOutput last;
  std::map<uint64_t, std::vector<TokenId>> answers;
  std::map<uint64_t, Ended> ends;
  std::map<uint64_t, Refused> refusals;
  Metrics registry;
  RankMetrics metrics{registry};
  std::string hopeless;
  LossLogger log;

 private:
  EngineOptions options_;
  StepProgress progress_;
  MaskPool masks_{{.threads = 1, .vocab_size = kTagEnd + 1}};
  std::unique_ptr<RankHost> host_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<Engine> engine_;
};

std::vector<TokenId> Undisturbed(uint64_t request, const Constraint& constraint = {}) {
  HarnessOptions options = SmallEngine();
  options.mask_threads = 0;
  Harness harness(options);
  Submit submit = harness.MakeSubmit(request, {1, 2, 3, static_cast<TokenId>(request % 4)}, 24);
  submit.constraint = constraint;
  submit.sampling.ignore_eos = true;
  submit.sampling.seed = 7;
  harness.Send(submit);
  harness.RunFor(1'000'000);
  return harness.answer(request).tokens;
}

// Nothing of a group is left: no child, no shared memory. The group has reaped who ended; one that
// it killed and gave up may have to be waited for, and can have no other end than that.
void ExpectNothingLeft() {
  int status = 0;
  const pid_t ended = waitpid(-1, &status, WNOHANG);
  EXPECT_LE(ended, 0) << "a child that had ended was not reaped";
  while (ended == 0 && waitpid(-1, &status, 0) > 0) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "a child ran on after its group: status " << status;
  }
  EXPECT_EQ(errno, ECHILD);
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_EQ(text.find("quire-ranks"), std::string::npos);
  EXPECT_EQ(text.find("quire-channel"), std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    EXPECT_EQ(target.find("quire-"), std::string::npos) << target;
    EXPECT_EQ(target.find("pidfd"), std::string::npos) << target;
  }
}

std::string ShapeName(const GroupShape& shape) {
  return (shape.processes ? "processes" : "threads") + std::to_string(shape.ranks) + "by" +
         std::to_string(shape.max_in_flight);
}

TEST(RankGroup, SaysWhatMemoryItsDevicesHave) {
  for (const bool few : {false, true}) {
    TagFault fault;
    if (few) fault = {"few_pages", 1, 0, ""};
    RankFleet fleet({2, false, 1}, fault);
    ASSERT_TRUE(fleet.started.ok()) << fleet.started;
    EXPECT_EQ(fleet.page_count(), fleet.pages_asked_for() - (few ? 3 : 0));
    EXPECT_EQ(fleet.metrics.device_memory.value(), 2000);
    EXPECT_EQ(fleet.metrics.device_memory_free.value(), 800);
    fleet.Send(1);
    fleet.Finish(1);
    EXPECT_EQ(fleet.metrics.device_memory_free.value(), 800);
  }
}

TEST(RankGroup, ComputesWhatOneRankComputes) {
  const std::vector<TokenId> wanted[] = {Undisturbed(1), Undisturbed(2)};
  for (const GroupShape& shape :
       {GroupShape{1, false, 1}, GroupShape{2, false, 2}, GroupShape{4, false, 1},
        GroupShape{1, true, 1}, GroupShape{2, true, 1}, GroupShape{4, true, 2}}) {
    {
      RankFleet fleet(shape);
      ASSERT_TRUE(fleet.started.ok()) << fleet.started;
      EXPECT_EQ(fleet.metrics.ready.value(), shape.ranks);
      fleet.Send(1);
      fleet.Send(2);
      EXPECT_EQ(fleet.Finish(1), wanted[0]) << ShapeName(shape);
      EXPECT_EQ(fleet.Finish(2), wanted[1]) << ShapeName(shape);
      EXPECT_EQ(WhyOf(fleet.metrics), "");
    }
    ExpectNothingLeft();
  }
}

// Masks reach every rank, in threads and in processes, beside rows that have none.
TEST(RankGroup, ConstrainedRowsAreConstrainedOnEveryRank) {
  const Constraint constraint = ConstraintOf(ConstraintKind::kRegex, "[a-f]{40}");
  const std::vector<TokenId> constrained = Undisturbed(1, constraint);
  ASSERT_EQ(constrained.size(), 24u);
  for (const TokenId token : constrained) EXPECT_LT(token, kTagEnd);
  for (const GroupShape& shape :
       {GroupShape{1, false, 1}, GroupShape{2, false, 2}, GroupShape{3, true, 2}}) {
    {
      RankFleet fleet(shape);
      ASSERT_TRUE(fleet.started.ok()) << fleet.started;
      fleet.Send(1, constraint);
      fleet.Send(2);
      fleet.Send(3, constraint);
      EXPECT_EQ(fleet.Finish(1), constrained) << ShapeName(shape);
      EXPECT_EQ(fleet.Finish(2), Undisturbed(2)) << ShapeName(shape);
      EXPECT_EQ(fleet.Finish(3), Undisturbed(3, constraint)) << ShapeName(shape);
      // Several tokens in one step, each with a mask of its own.
      const Constraint forced = ConstraintOf(ConstraintKind::kRegex, "([a-c]xyzwvu[0-9]ts){4}");
      fleet.Send(4, forced);
      fleet.Send(5, forced);
      EXPECT_EQ(fleet.Finish(4), Undisturbed(4, forced)) << ShapeName(shape);
      EXPECT_EQ(fleet.Finish(5), Undisturbed(5, forced)) << ShapeName(shape);
      EXPECT_EQ(WhyOf(fleet.metrics), "");
    }
    ExpectNothingLeft();
  }
}

struct FaultCase {
  const char* what;
  bool processes;
  const char* why;  // as the metrics name it; "" where more than one name is right
};

// A request is under way; the fault ends it as retryable, and the group comes back by itself.
TEST(RankGroup, EveryFaultTakesTheGroupDownAndItComesBack) {
  const std::vector<TokenId> wanted = Undisturbed(1);
  for (const FaultCase& fault : {FaultCase{"skip", false, "rank"},
                                 {"token", false, "digest"},
                                 {"device", false, "rank"},
                                 {"damaged", false, "rank"},
                                 {"late", false, ""},
                                 {"skip", true, "rank"},
                                 {"token", true, "digest"},
                                 {"device", true, ""},
                                 {"die", true, "died"},
                                 {"stop", true, ""},
                                 {"late", true, ""}}) {
    SCOPED_TRACE(std::string(fault.what) + (fault.processes ? " in a process" : " in a thread"));
    const bool silent =
        std::string_view(fault.what) == "stop" || std::string_view(fault.what) == "late";
    {
      RankFleet fleet({2, fault.processes, 1}, {fault.what, 1, 6, ""},
                      silent ? kSilentMicros : kPatientMicros);
      ASSERT_TRUE(fleet.started.ok()) << fleet.started;
      fleet.Send(1);
      EXPECT_TRUE(fleet.Finish(1).empty());
      EXPECT_EQ(fleet.ends[1].reason, EndReason::kFailed);
      EXPECT_TRUE(fleet.ends[1].retryable);
      EXPECT_LT(fleet.answers[1].size(), wanted.size());
      EXPECT_TRUE(std::equal(fleet.answers[1].begin(), fleet.answers[1].end(), wanted.begin()))
          << "a token of a step that did not count was told";
      EXPECT_TRUE(fleet.last.device_lost);
      EXPECT_EQ(fleet.FinishAnew(5), wanted);
      EXPECT_GE(fleet.metrics.restarts.value(), 1u);
      if (*fault.why != '\0') {
        EXPECT_EQ(WhyOf(fleet.metrics), fault.why);
      }
      EXPECT_EQ(fleet.hopeless, "");
    }
    ExpectNothingLeft();
  }
}

// The first steps have a minute, which is not what a rank gets that stands still.
TEST(RankGroup, ARankThatIsStoppedIsSeenByThatAlsoInItsFirstStepAndWhileItLoads) {
  {
    RankFleet fleet({2, true, 1}, {"stop", 1, 1, ""}, kStoppedMicros);
    ASSERT_TRUE(fleet.started.ok()) << fleet.started;
    fleet.Send(1);
    EXPECT_TRUE(fleet.Finish(1).empty());
    EXPECT_EQ(fleet.FinishAnew(5), Undisturbed(1));
    EXPECT_EQ(fleet.log.losses(),
              "rank 1 has been stopped by a signal and does not go on;rank 1: XID 79;");
    EXPECT_EQ(WhyOf(fleet.metrics), "deadline");
  }
  {
    RankFleet fleet({2, true, 1}, {"load_stop", 1, 0, ""}, kStoppedMicros);
    EXPECT_EQ(StatusMessage(fleet.started),
              "rank 1 has been stopped by a signal and does not go on while it loads");
  }
  ExpectNothingLeft();
}

// With one rank there is no other whose digest could differ.
TEST(RankGroup, AnAnswerToAnotherStepIsDamageOfTheRank) {
  for (const char* what : {"number", "row", "short"}) {
    SCOPED_TRACE(what);
    RankFleet fleet({1, true, 1}, {what, 0, 4, ""});
    ASSERT_TRUE(fleet.started.ok()) << fleet.started;
    fleet.Send(1);
    EXPECT_TRUE(fleet.Finish(1).empty());
    EXPECT_TRUE(fleet.ends[1].retryable);
    EXPECT_EQ(fleet.FinishAnew(5), Undisturbed(1));
    EXPECT_EQ(WhyOf(fleet.metrics), "damaged");
  }
}

TEST(RankGroup, AFirstStartThatFailsIsToldByTheRankThatFailed) {
  for (const bool processes : {false, true}) {
    RankFleet fleet({2, processes, 1}, {"start", 1, 0, ""});
    EXPECT_FALSE(fleet.started.ok());
    EXPECT_EQ(StatusMessage(fleet.started), "rank 1: the weights are gone");
  }
  ExpectNothingLeft();
}

// A child that is killed and does not end.
class StubbornHost final : public RankHost {
 public:
  explicit StubbornHost(RankBuilder build) : inner_(MakeThreadRanks(std::move(build))) {}
  absl::Status Start(const RankStart& start) override { return inner_->Start(start); }
  std::optional<std::string> Ended(int rank) override {
    if (rank == 0 && !given_up) return std::nullopt;
    return inner_->Ended(rank);
  }
  int WatchFd(int) const override { return -1; }
  bool Kill(int) override { return true; }
  void GiveUp(int rank) override {
    EXPECT_EQ(rank, 0);
    given_up = true;
    while (!inner_->Ended(rank).has_value()) usleep(1000);
  }
  std::atomic<bool> given_up{false};

 private:
  std::unique_ptr<RankHost> inner_;
};

TEST(RankGroup, ARankThatCannotBeReapedIsNotWaitedFor) {
  const std::string token = testing::TempDir() + "rank_stubborn_" + std::to_string(getpid());
  std::ofstream(token) << "once";
  StubbornHost host(TagBuilder({"device", 1, 1, token}));
  RankGroupOptions options;
  options.setup.size = 2;
  options.setup.limits = {.max_rows = 8,
                          .max_tokens = 64,
                          .max_model_len = 128,
                          .block_size = 4,
                          .groups = 2,
                          .page_count = 100,
                          .vocab_size = 50};
  options.identity = kTagIdentity;
  options.on_hopeless = [](const std::string& what) { FAIL() << what; };
  NullLogger log;
  Metrics registry;
  RankMetrics metrics(registry);
  RankGroup group(options, host, log, metrics);
  ASSERT_TRUE(group.Start().ok());
  StepPlan plan;
  plan.number = 1;
  std::vector<std::byte> packet;
  EncodeStepPlan(plan, packet);
  group.Launch(packet, 0);
  StepResult result;
  group.Collect(result);
  ASSERT_TRUE(group.Lost());
  while (!group.Restore()) usleep(1000);
  EXPECT_TRUE(host.given_up);
  group.Launch(packet, 0);
  group.Collect(result);
  EXPECT_FALSE(group.Lost());
  EXPECT_EQ(result.number, 1u);
}

}  // namespace
}  // namespace quire::test

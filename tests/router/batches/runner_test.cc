// Batches that run, on virtual time and a real disk: each line has one result, whatever happens.
#include "router/batches/runner.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"

namespace quire::batches {
namespace {

namespace fs = std::filesystem;

constexpr Micros kAnswerTime = 10 * kMicrosPerMilli;

// Answers each line by its prompt: the statuses that it names, one for each time it is sent.
class FakeSender final : public Sender {
 public:
  explicit FakeSender(Executor& executor) : executor_(executor) {}

  bool Ready() const override { return ready; }
  std::optional<std::shared_ptr<const TenantProfile>> TenantNow(const Creator& creator) override {
    if (creator.tenant == gone) return std::nullopt;
    auto profile = std::make_shared<TenantProfile>();
    profile->name = creator.tenant;
    return profile;
  }
  std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile*) override { return memory; }

  std::unique_ptr<SentLine> Send(LineRequest request,
                                 std::function<void(LineAnswer)> done) override {
    class Sent final : public SentLine {
     public:
      explicit Sent(FakeSender& of) : sender(of) {
        sender.most = std::max(sender.most, ++sender.now);
      }
      ~Sent() override {
        *alive = false;
        --sender.now;
      }
      FakeSender& sender;
      std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    };
    const json::Value body = *json::Parse(request.body);
    const std::string prompt(json::View(json::Find(body.get_object(), "prompt")->get_string()));
    priorities.insert(*json::AsInt(*json::Find(body.get_object(), "priority"), "priority"));
    std::istringstream words(prompt);
    std::string word;
    const int turn = sent[prompt]++;
    for (int i = 0; i <= turn; ++i) words >> word;
    LineAnswer answer;
    answer.status = std::max(200, std::atoi(word.c_str()));
    answer.body = "{\"said\":\"" + prompt + "\"}";
    auto line = std::make_unique<Sent>(*this);
    order.push_back(request.tenant->name);
    if (!holds) {
      executor_.PostAt(executor_.clock().Now() + kAnswerTime, [alive = line->alive, done, answer] {
        if (*alive) done(answer);
      });
    }
    return line;
  }

  bool ready = true;
  bool holds = false;  // answers nothing
  std::string gone;
  size_t now = 0, most = 0;
  std::map<std::string, int> sent;
  std::set<int64_t> priorities;
  std::vector<std::string> order;
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);

 private:
  Executor& executor_;
};

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() {
    char path[] = "/tmp/quire_runner_XXXXXX";
    root_ = mkdtemp(path);
  }
  ~RunnerTest() override {
    runner_.reset();
    fs::remove_all(root_);
  }
  void Start() {
    auto store = Store::Open(root_.string(), limits_, metrics_, [this] {
      return int64_t{1'700'000'000'000'000} + world_.clock().Now() + ++ticks_;
    });
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(*store);
    StartRunner();
  }
  void StartRunner() {
    runner_ = std::make_unique<Runner>(
        RunWorld{world_.executor(), disk_, *store_, sender_, metrics_, world_.rng(), log_, lines_});
    runner_->Wake();
  }
  static std::string Line(const std::string& id, const std::string& prompt,
                          const std::string& more = "") {
    return R"({"custom_id":")" + id +
           R"(","method":"POST","url":"/v1/completions","body":{"prompt":")" + prompt + "\"" +
           more + "}}\n";
  }
  std::string Create(const std::string& text, const std::string& tenant = "a") {
    BatchObject batch;
    batch.input_file_id = store_->KeepFile(tenant, "in.jsonl", text).value().id;
    batch.endpoint = "/v1/completions";
    batch.creator.tenant = tenant;
    std::string id = store_->Create(std::move(batch)).value().id;
    runner_->Wake();
    return id;
  }
  BatchObject Now(const std::string& id, const std::string& tenant = "a") {
    return store_->Batch(tenant, id).value();
  }
  bool RunUntilEnd(const std::string& id, Micros most = 600 * kMicrosPerSecond) {
    return RunUntil([&] { return HasEnded(Now(id).status); }, most);
  }
  bool RunUntil(const std::function<bool()>& done, Micros most = 600 * kMicrosPerSecond) {
    const Micros end = world_.clock().Now() + most;
    while (world_.clock().Now() < end && !done()) {
      world_.RunUntil(world_.clock().Now() + 5 * kMicrosPerMilli);
    }
    return done();
  }
  std::vector<std::string> Lines(const std::string& file, const std::string& tenant = "a") {
    std::vector<std::string> lines;
    auto contents = store_->Contents(tenant, file);
    if (!contents.ok()) return lines;
    std::string text(1 << 20, '\0');
    text.resize(static_cast<size_t>(pread(contents.value()->get(), text.data(), text.size(), 0)));
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // By custom_id; a second result of a line fails the test.
  std::map<std::string, std::string> Results(const BatchObject& batch) {
    std::map<std::string, std::string> results;
    std::vector<std::string> all = Lines(batch.has_output ? batch.output_file_id : "");
    const std::vector<std::string> failed = Lines(batch.has_errors ? batch.error_file_id : "");
    all.insert(all.end(), failed.begin(), failed.end());
    for (const std::string& line : all) {
      const json::Value value = *json::Parse(line);
      const std::string id(json::View(json::Find(value.get_object(), "custom_id")->get_string()));
      EXPECT_TRUE(results.emplace(id, line).second) << id;
    }
    return results;
  }

  fs::path root_;
  VirtualWorld world_{1};
  VirtualBackground disk_{world_.executor(), 100};
  FakeSender sender_{world_.executor()};
  NullLogger log_;
  Limits limits_;
  batch::BatchLimits lines_;
  Metrics registry_;
  BatchMetrics metrics_{registry_};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Runner> runner_;
  int64_t ticks_ = 0;
};

TEST_F(RunnerTest, EachLineHasItsResultAndFailuresHaveTheirOwnFile) {
  Start();
  const std::string id =
      Create(Line("ok", "200") + Line("bad", "400") + Line("own", "200 x", ",\"priority\":7") +
             Line("stream", "200 y", ",\"stream\":true"));
  ASSERT_TRUE(RunUntilEnd(id));
  const BatchObject batch = Now(id);
  EXPECT_EQ(batch.status, Status::kCompleted);
  EXPECT_EQ(batch.counts.total, 4u);
  EXPECT_EQ(batch.counts.completed, 2u);
  EXPECT_EQ(batch.counts.failed, 2u);
  EXPECT_EQ(Lines(batch.output_file_id).size(), 2u);
  const auto failed = Lines(batch.error_file_id);
  ASSERT_EQ(failed.size(), 2u);
  auto results = Results(batch);
  EXPECT_NE(results["bad"].find("\"status_code\":400"), std::string::npos);
  EXPECT_NE(results["stream"].find("invalid_body"), std::string::npos);
  EXPECT_NE(results["ok"].find("\"body\":{\"said\":\"200\"}"), std::string::npos);
  EXPECT_EQ(sender_.priorities, (std::set<int64_t>{7, 2147483647}));
  EXPECT_EQ(metrics_.ended_completed.value(), 1u);
  EXPECT_EQ(store_->File("a", batch.output_file_id).value().purpose, kOutputPurpose);
}

TEST_F(RunnerTest, ABatchWithoutFailuresHasNoErrorFile) {
  Start();
  const std::string id = Create(Line("a", "200"));
  ASSERT_TRUE(RunUntilEnd(id));
  EXPECT_TRUE(Now(id).has_output);
  EXPECT_FALSE(Now(id).has_errors);
  EXPECT_EQ(store_->Files("a", {10}).value().objects.size(), 2u);
}

TEST_F(RunnerTest, ABusyFleetIsAskedAgainAndAFailingOneThreeTimes) {
  Start();
  const std::string id = Create(Line("busy", "429 503 200") + Line("fails", "500 500 500 200") +
                                Line("once", "500 200") + Line("gone", "502 504 499 200"));
  ASSERT_TRUE(RunUntilEnd(id));
  auto results = Results(Now(id));
  EXPECT_NE(results["busy"].find("200"), std::string::npos);
  EXPECT_NE(results["fails"].find("\"status_code\":500"), std::string::npos);
  EXPECT_NE(results["once"].find("\"status_code\":200"), std::string::npos);
  EXPECT_NE(results["gone"].find("\"status_code\":200"), std::string::npos);
  EXPECT_EQ(sender_.sent["500 500 500 200"], 3);
  EXPECT_EQ(sender_.sent["429 503 200"], 3);
  EXPECT_EQ(metrics_.lines_again.value(), 2u + 2u + 1u + 3u);
}

TEST_F(RunnerTest, RequestsAtTheLimitAreUnderWayAndNoMore) {
  limits_.max_in_flight = 5;
  Start();
  std::string text;
  for (int i = 0; i < 40; ++i) text += Line(std::to_string(i), "200 " + std::to_string(i));
  const std::string id = Create(text);
  ASSERT_TRUE(RunUntilEnd(id));
  EXPECT_EQ(sender_.most, 5u);
  EXPECT_EQ(Results(Now(id)).size(), 40u);
}

TEST_F(RunnerTest, BatchesAtTheLimitRunAndATenantHasItsShare) {
  limits_.max_running = 4;
  Start();
  sender_.holds = true;
  for (int i = 0; i < 3; ++i) Create(Line("x", "200"), "a");
  RunUntil([] { return false; }, kMicrosPerSecond);
  EXPECT_EQ(runner_->running(), 2u);
  for (int i = 0; i < 3; ++i) Create(Line("x", "200"), "b");
  Create(Line("x", "200"), "c");
  RunUntil([] { return false; }, kMicrosPerSecond);
  EXPECT_EQ(runner_->running(), 4u);
  EXPECT_EQ(metrics_.running.value(), 4);
  // The tenant with the fewest running ones goes first.
  EXPECT_EQ(std::count(sender_.order.begin(), sender_.order.end(), "b"), 1);
  EXPECT_EQ(std::count(sender_.order.begin(), sender_.order.end(), "c"), 1);
}

TEST_F(RunnerTest, LinesAtTheLimitRunAndOneMoreFailsTheBatch) {
  limits_.max_lines = 3;
  Start();
  const std::string three = Line("1", "200") + Line("2", "200 b") + Line("3", "200 c");
  const std::string most = Create(three), more = Create(three + Line("4", "200"));
  ASSERT_TRUE(RunUntilEnd(most) && RunUntilEnd(more));
  EXPECT_EQ(Now(most).status, Status::kCompleted);
  EXPECT_EQ(Now(more).status, Status::kFailed);
  EXPECT_EQ(Now(more).errors.front().code, "too_many_requests");
  EXPECT_EQ(metrics_.refused_lines.value(), 1u);
}

TEST_F(RunnerTest, ABrokenFileFailsTheBatchWithItsLines) {
  Start();
  const std::string id =
      Create(Line("a", "200") + "{broken\n\n" + Line("a", "200") +
             R"({"custom_id":"c","method":"POST","url":"/v1/responses","body":{}})"
             "\n" +
             R"({"custom_id":"d","method":"GET","url":"/v1/completions","body":{}})"
             "\n" +
             R"({"custom_id":"e","method":"POST","url":"/v1/embeddings","body":{}})"
             "\n");
  ASSERT_TRUE(RunUntilEnd(id));
  const BatchObject batch = Now(id);
  EXPECT_EQ(batch.status, Status::kFailed);
  std::vector<std::string> codes;
  for (const BatchError& error : batch.errors) codes.push_back(error.code);
  EXPECT_EQ(codes,
            (std::vector<std::string>{"invalid_json", "duplicate_custom_id", "mismatched_endpoint",
                                      "invalid_method", "invalid_url"}));
  EXPECT_EQ(*batch.errors[1].line, 4u);
  EXPECT_EQ(batch.errors[1].param, "custom_id");
  EXPECT_TRUE(sender_.order.empty());
  const std::string empty = Create("\n\n");
  ASSERT_TRUE(RunUntilEnd(empty));
  EXPECT_EQ(Now(empty).errors.front().code, "empty_file");
}

TEST_F(RunnerTest, ACancelledBatchKeepsWhatIsDone) {
  limits_.max_in_flight = 1;
  Start();
  std::string text;
  for (int i = 0; i < 400; ++i) text += Line(std::to_string(i), "200 " + std::to_string(i));
  const std::string id = Create(text);
  ASSERT_TRUE(RunUntil([&] { return Now(id).counts.completed > 10; }));
  ASSERT_TRUE(store_->Cancel("a", id).ok());
  runner_->Wake();
  ASSERT_TRUE(RunUntilEnd(id));
  const BatchObject batch = Now(id);
  EXPECT_EQ(batch.status, Status::kCancelled);
  EXPECT_NE(batch.cancelling_at, 0);
  EXPECT_GT(batch.counts.completed, 10u);
  EXPECT_LT(batch.counts.completed, 400u);
  EXPECT_EQ(Results(batch).size(), batch.counts.completed);
  EXPECT_EQ(sender_.now, 0u);
  EXPECT_EQ(metrics_.in_flight.value(), 0);
}

// Also one that waits for a place, which the others hold.
TEST_F(RunnerTest, ACancelledBatchThatWaitsNeedsNoPlace) {
  limits_.max_running = 1;
  Start();
  sender_.holds = true;
  Create(Line("x", "200"));
  const std::string waiting = Create(Line("x", "200"));
  RunUntil([] { return false; }, kMicrosPerSecond);
  EXPECT_EQ(Now(waiting).status, Status::kValidating);
  ASSERT_TRUE(store_->Cancel("a", waiting).ok());
  runner_->Wake();
  ASSERT_TRUE(RunUntilEnd(waiting));
  EXPECT_EQ(Now(waiting).status, Status::kCancelled);
  EXPECT_FALSE(Now(waiting).has_output);
}

TEST_F(RunnerTest, ABatchEndsWithItsWindowAndEachLineHasAResult) {
  limits_.window_seconds = 100;
  limits_.max_in_flight = 2;
  Start();
  std::string busy;
  for (int i = 0; i < 200; ++i) busy += "503 ";
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += Line(std::to_string(i), (i < 4 ? "200 " : busy) + std::to_string(i));
  }
  const std::string id = Create(text);
  ASSERT_TRUE(RunUntilEnd(id));
  const BatchObject batch = Now(id);
  EXPECT_EQ(batch.status, Status::kExpired);
  EXPECT_EQ(batch.counts.completed, 4u);
  EXPECT_EQ(batch.counts.failed, 6u);
  auto results = Results(batch);
  EXPECT_EQ(results.size(), 10u);
  EXPECT_NE(results["9"].find("batch_expired"), std::string::npos);
}

// As after kill -9 at any moment: what the next runner finds is on the disk alone.
TEST_F(RunnerTest, AnotherRunnerCarriesOnAndEachLineHasOneResult) {
  limits_.max_in_flight = 3;
  Start();
  std::string text;
  for (int i = 0; i < 60; ++i) text += Line(std::to_string(i), "200 " + std::to_string(i));
  const std::string id = Create(text);
  for (size_t stop = 7; stop < 60; stop += 11) {
    ASSERT_TRUE(RunUntil([&] { return sender_.order.size() >= stop; }));
    runner_.reset();
    RunUntil([] { return false; }, 3 * kMicrosPerMilli);
    // And in the middle of a write.
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.path().extension() != ".out") continue;
      std::ofstream(entry.path(), std::ios::app) << R"({"id":"batch_req_9","cust)";
    }
    StartRunner();
  }
  ASSERT_TRUE(RunUntilEnd(id));
  const BatchObject batch = Now(id);
  EXPECT_EQ(batch.status, Status::kCompleted);
  EXPECT_EQ(batch.counts.completed, 60u);
  EXPECT_EQ(Results(batch).size(), 60u);
}

TEST_F(RunnerTest, TwoRunnersWithOneFolderRunABatchOnce) {
  limits_.max_in_flight = 2;
  Start();
  Runner other(
      RunWorld{world_.executor(), disk_, *store_, sender_, metrics_, world_.rng(), log_, lines_});
  std::string text;
  for (int i = 0; i < 30; ++i) text += Line(std::to_string(i), "200 " + std::to_string(i));
  const std::string id = Create(text);
  other.Wake();
  ASSERT_TRUE(RunUntilEnd(id));
  for (const auto& [prompt, times] : sender_.sent) EXPECT_EQ(times, 1) << prompt;
  EXPECT_EQ(Results(Now(id)).size(), 30u);
}

// No room for results: they wait, and nothing is computed twice.
TEST_F(RunnerTest, ResultsWaitForRoomAndNothingIsLost) {
  limits_.max_file_bytes = 16'000;
  Start();
  const std::string filler = store_->KeepFile("b", "f", std::string(7'000, 'x')).value().id;
  std::string text;
  for (int i = 0; i < 10; ++i) text += Line(std::to_string(i), "200 " + std::to_string(i));
  const std::string other = store_->KeepFile("a", "f", std::string(5'000, 'x')).value().id;
  const std::string id = Create(text);
  RunUntil([] { return false; }, 20 * kMicrosPerSecond);
  EXPECT_EQ(Now(id).status, Status::kInProgress);
  EXPECT_GT(metrics_.disk_errors.value(), 0u);
  EXPECT_FALSE(store_->DeleteFile("a", other));
  EXPECT_FALSE(store_->DeleteFile("b", filler));
  ASSERT_TRUE(RunUntilEnd(id));
  EXPECT_EQ(Results(Now(id)).size(), 10u);
  for (const auto& [prompt, times] : sender_.sent) EXPECT_EQ(times, 1) << prompt;
}

TEST_F(RunnerTest, ATenantWithoutAKeyHasNoBatchesRun) {
  Start();
  sender_.ready = false;
  const std::string id = Create(Line("a", "200"));
  RunUntil([] { return false; }, 2 * kMicrosPerSecond);
  EXPECT_TRUE(sender_.order.empty());  // the fleet is not there yet
  sender_.gone = "a";
  sender_.ready = true;
  ASSERT_TRUE(RunUntilEnd(id));
  EXPECT_EQ(Now(id).status, Status::kFailed);
  EXPECT_EQ(Now(id).errors.front().code, "tenant_unknown");
}

// A line's tree costs more than its text: without memory for it, the batch waits.
TEST_F(RunnerTest, WithoutMemoryABatchWaits) {
  Start();
  MemoryHold most(sender_.memory);
  ASSERT_TRUE(most.TryResize(sender_.memory->limit()));
  const std::string id = Create(Line("a", "200"));
  RunUntil([] { return false; }, 20 * kMicrosPerSecond);
  EXPECT_EQ(Now(id).status, Status::kValidating);
  most.Resize(0);
  ASSERT_TRUE(RunUntilEnd(id));
  EXPECT_EQ(Now(id).status, Status::kCompleted);
  RunUntil([] { return false; }, kMicrosPerSecond);
  EXPECT_EQ(sender_.memory->bytes(), 0u);
}

}  // namespace
}  // namespace quire::batches

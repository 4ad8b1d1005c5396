// Adapters as served names: their pools, who is ready for them, what is forgotten.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "router/fleet/fleet.h"

namespace quire {
namespace {

const std::string kOne(64, '1');
const std::string kTwo(64, '2');

WorkerHello HelloWith(const std::string& worker_id, std::vector<ServedAdapter> adapters,
                      const std::string& model_id = "m", const std::string& name = "base") {
  WorkerHello hello;
  hello.worker_id = worker_id;
  hello.model_id = model_id;
  hello.served_names = {name};
  hello.text_bundle_sha256 = std::string(32, 'a');
  hello.vocab_size = 10;
  hello.limits.max_model_len = 100;
  hello.limits.max_num_seqs = 8;
  hello.adapters = std::move(adapters);
  return hello;
}

class AdapterPoolsTest : public ::testing::Test {
 protected:
  WorkerIndex AddReady(const WorkerHello& hello) {
    const WorkerIndex worker = fleet_.AddWorker(hello.worker_id + ":1").value();
    EXPECT_TRUE(fleet_.Attached(worker, hello, 5).ok());
    fleet_.TextReady(hello.model_id);
    fleet_.Stepped(worker, Step(), 1);
    fleet_.CheckInvariants();
    return worker;
  }
  static StepFrame Step() {
    StepFrame step;
    step.state = WorkerState::kReady;
    return step;
  }
  static RouterLimits Limits(uint32_t max_pools) {
    RouterLimits limits;
    limits.max_pools = max_pools;
    return limits;
  }
  Fleet fleet_{Limits(4)};
};

TEST_F(AdapterPoolsTest, ANameHasAPoolForEachDigestOfAModel) {
  AddReady(HelloWith("a", {{"sql", kOne, "base", 4}}));
  AddReady(HelloWith("b", {{"sql", kTwo, "base", 4}}));
  AddReady(HelloWith("c", {{"sql", kTwo, "base", 4}}));
  const std::vector<PoolCapacity> sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 2u);
  EXPECT_EQ(sql[0].pool->adapter, kOne);
  EXPECT_EQ(sql[0].pool->parent, "base");
  EXPECT_EQ(sql[0].ready_rows, 8u);
  EXPECT_EQ(sql[1].pool->adapter, kTwo);
  EXPECT_EQ(sql[1].ready_rows, 16u);
  EXPECT_EQ(sql[1].ready_workers, 2u);
  const std::vector<PoolCapacity> base = fleet_.PoolsOf("base");
  ASSERT_EQ(base.size(), 1u);
  EXPECT_EQ(base[0].ready_rows, 24u) << "adapters take nothing from their model";
  EXPECT_EQ(*OnlyName(fleet_.pools()), "base") << "an absent name is no adapter";
}

TEST_F(AdapterPoolsTest, AnAdapterStaysKnownWhileItsWorkerIsAway) {
  const WorkerIndex worker = AddReady(HelloWith("a", {{"sql", kOne, "base", 4}}));
  fleet_.Detached(worker, "gone", 2);
  std::vector<PoolCapacity> sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 1u);
  EXPECT_EQ(sql[0].ready_rows, 0u);
  EXPECT_FALSE(sql[0].attached);
  ASSERT_TRUE(fleet_.Attached(worker, HelloWith("a", {{"sql", kTwo, "base", 4}}), 6).ok());
  fleet_.Stepped(worker, Step(), 3);
  sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 2u) << "it came back with another one of that name";
  EXPECT_EQ(ChoosePool({}, sql, 1)->adapter, kTwo);
  fleet_.CheckInvariants();
}

TEST_F(AdapterPoolsTest, AChangeAddsNamesAndForgetsThoseThatNobodyHas) {
  const WorkerIndex a = AddReady(HelloWith("a", {{"sql", kOne, "base", 4}}));
  const WorkerIndex b = AddReady(HelloWith("b", {{"sql", kOne, "base", 4}}));
  fleet_.AdaptersChanged(a, {{{"sql", kTwo, "base", 4}, {"new", kTwo, "base", 4}}, {kOne}}, 7);
  fleet_.CheckInvariants();
  std::vector<PoolCapacity> sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 2u) << "half of the workers have it";
  EXPECT_EQ(sql[0].ready_rows, 8u) << "a worker that holds the old content gets no new requests";
  EXPECT_EQ(sql[1].ready_rows, 8u);
  EXPECT_TRUE(Holds(fleet_.view(a).adapters, kOne)) << "but those that were given it";
  EXPECT_EQ(fleet_.PoolsOf("new").size(), 1u);
  fleet_.AdaptersChanged(b, {{{"sql", kTwo, "base", 4}}, {}}, 8);
  sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 1u);
  EXPECT_EQ(sql[0].ready_rows, 16u);
  EXPECT_FALSE(Holds(fleet_.view(b).adapters, kOne));
  fleet_.AdaptersChanged(a, {{}, {kOne, kTwo}}, 9);
  EXPECT_TRUE(fleet_.PoolsOf("new").empty()) << "it is unknown from now on";
  EXPECT_EQ(fleet_.PoolsOf("sql")[0].ready_rows, 8u);
  fleet_.Detached(b, "gone", 2);
  fleet_.AdaptersChanged(a, {{}, {}}, 10);
  EXPECT_EQ(fleet_.PoolsOf("sql").size(), 1u) << "the other worker may come back with it";
  ASSERT_TRUE(fleet_.Attached(b, HelloWith("b", {}), 11).ok());
  EXPECT_TRUE(fleet_.PoolsOf("sql").empty()) << "and does not";
  EXPECT_EQ(fleet_.PoolsOf("base").size(), 1u);
  fleet_.CheckInvariants();
}

TEST_F(AdapterPoolsTest, AChangePastTheLimitOfPoolsLeavesTheWorkerInUse) {
  const WorkerIndex worker = AddReady(HelloWith("a", {}));
  AdaptersChanged changed;
  for (int i = 0; i < 4; ++i) changed.adapters.push_back({std::to_string(i), kOne, "base", 4});
  fleet_.AdaptersChanged(worker, changed, 7);
  EXPECT_EQ(fleet_.pools().size(), 4u);
  EXPECT_EQ(fleet_.PoolsOf("2").size(), 1u);
  EXPECT_TRUE(fleet_.PoolsOf("3").empty());
  EXPECT_EQ(fleet_.worker(worker).phase, WorkerPhase::kReady);
  fleet_.CheckInvariants();
}

TEST_F(AdapterPoolsTest, AModelsNameIsNoAdapters) {
  AddReady(HelloWith("a", {{"sql", kOne, "base", 4}}));
  AddReady(HelloWith("b", {}, "m2", "sql"));
  const std::vector<PoolCapacity> sql = fleet_.PoolsOf("sql");
  ASSERT_EQ(sql.size(), 1u);
  EXPECT_TRUE(sql[0].pool->adapter.empty());
}

TEST_F(AdapterPoolsTest, AtTheLimitOfPoolsThoseWithoutWorkersGoAndOneMoreIsRefused) {
  const WorkerIndex first = AddReady(
      HelloWith("a", {{"x", kOne, "base", 4}, {"y", kOne, "base", 4}, {"z", kOne, "base", 4}}));
  EXPECT_EQ(fleet_.pools().size(), 4u);
  const WorkerIndex second = fleet_.AddWorker("b:1").value();
  const absl::Status over = fleet_.Attached(second, HelloWith("b", {{"more", kOne, "base", 4}}), 5);
  EXPECT_NE(StatusMessage(over).find("adapter more is over the limit of 4 pools"),
            std::string::npos)
      << over;
  fleet_.Detached(second, "gone", 2);
  fleet_.Detached(first, "gone", 2);
  ASSERT_TRUE(fleet_.Attached(first, HelloWith("a", {{"x", kTwo, "base", 4}}), 6).ok());
  EXPECT_EQ(fleet_.PoolsOf("x").size(), 1u) << "the oldest one without a holder gave way";
  EXPECT_EQ(fleet_.PoolsOf("base").size(), 1u) << "and its model is known as before";
  fleet_.CheckInvariants();
}

TEST_F(AdapterPoolsTest, WeightsOfAnAdaptersNameAreByDigest) {
  AddReady(HelloWith("a", {{"sql", kOne, "base", 4}}));
  AddReady(HelloWith("b", {{"sql", kTwo, "base", 4}}));
  const std::vector<PoolCapacity> sql = fleet_.PoolsOf("sql");
  std::map<std::string, int> dealt;
  const PoolRules even;
  for (uint64_t key = 0; key < 400; ++key) {
    ++dealt[ChoosePool(even, sql, key * 0x9E3779B97F4A7C15u)->adapter];
  }
  EXPECT_GT(dealt[kOne], 100);
  EXPECT_GT(dealt[kTwo], 100);
  const PoolRules rules = ReadPoolRules({{}, {}, {"sql=11:0,22:1"}}).value();
  for (uint64_t key = 0; key < 100; ++key) {
    EXPECT_EQ(ChoosePool(rules, sql, key * 0x9E3779B97F4A7C15u)->adapter, kTwo);
  }
}

// Digests in any order of the Hello; what is remembered follows each change.
TEST_F(AdapterPoolsTest, CapacitiesFollowEveryWorker) {
  Fleet fleet(Limits(64));
  std::vector<ServedAdapter> adapters;
  for (int i = 0; i < 20; ++i) {
    adapters.push_back({"a" + std::to_string(i), std::string(64, "73d0b5"[i % 6]), "base", 4});
    adapters.back().digest[0] = static_cast<char>('a' + (i * 7) % 20);
  }
  std::vector<WorkerIndex> workers;
  for (int w = 0; w < 3; ++w) {
    const WorkerIndex worker = fleet.AddWorker("w" + std::to_string(w) + ":1").value();
    ASSERT_TRUE(fleet.Attached(worker, HelloWith("w" + std::to_string(w), adapters), 5).ok());
    adapters.resize(adapters.size() / 2);
    fleet.TextReady("m");
    fleet.Stepped(worker, Step(), 1);
    workers.push_back(worker);
    for (const auto& [name, of_name] : fleet.PoolsByName()) {
      ASSERT_EQ(of_name.size(), 1u);
      EXPECT_EQ(fleet.PoolsOf(name)[0].ready_workers, of_name[0].ready_workers);
    }
    fleet.CheckInvariants();
  }
  EXPECT_EQ(fleet.PoolsOf("a0")[0].ready_workers, 3u);
  EXPECT_EQ(fleet.PoolsOf("a9")[0].ready_workers, 2u);
  EXPECT_EQ(fleet.PoolsOf("a19")[0].ready_workers, 1u);
  fleet.Detached(workers[0], "gone", 2);
  EXPECT_EQ(fleet.PoolsOf("a19")[0].ready_workers, 0u);
  EXPECT_FALSE(fleet.PoolsOf("a19")[0].attached);
  EXPECT_EQ(fleet.PoolsOf("a0")[0].ready_workers, 2u);
  fleet.CheckInvariants();
}

TEST(Answerers, AreTheModelOrTheModelAndAnAdapter) {
  EXPECT_EQ(AnswererOf("m", ""), "m");
  EXPECT_EQ(AnswererOf("m", kOne), "m+" + kOne);
}

}  // namespace
}  // namespace quire

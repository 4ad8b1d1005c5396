// The adapters of a running worker: orders, --lora-dir, what gives way, what is told and counted.
// The engine is its slots alone.
#include "worker/adapter_keeper.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "common/wire/worker_frames.h"
#include "worker/adapters/adapter_slots.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using KeptKind = AdapterOrder::Kind;
using KeptVerdict = AdapterVerdict;

struct NoWeights final : kernels::AdapterWeights {
  int64_t Bytes() const override { return 1; }
};

// By a folder's last component: "sql-v2" has the digest of its content, which a file may say.
std::string DigestOf(const std::string& content) {
  std::string digest = content;
  digest.resize(64, '0');
  return digest;
}

class AdapterKeeperTest : public testing::Test {
 protected:
  AdapterKeeperTest() : table_(2), slots_(&table_), metrics_of_(table_, world_.clock(), metrics_) {
    dir_ = fs::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    options_.served_names = {"base", "other"};
    options_.max_loras = 2;
    options_.on_loopback = true;
  }
  ~AdapterKeeperTest() override { fs::remove_all(dir_); }

  void Make() {
    AdapterKeeperWorld world{world_.executor(), background_, job_metrics_, log_, metrics_of_};
    world.read = [this](const AdapterPlace& place,
                        const std::vector<std::string>& held) -> absl::StatusOr<AdapterContent> {
      ++reads_;
      std::ifstream file(place.folder + "/adapter_model.safetensors");
      std::string content;
      if (!(file >> content)) return absl::NotFoundError("no adapter is found at " + place.folder);
      if (ranks_lost_) return absl::UnavailableError("1 of the ranks have not taken the adapter");
      if (content == "broken") return InvalidArgument("tensor \"x\"\nhas no partner");
      roots_.push_back(place.root);
      AdapterContent read{DigestOf(content), 8, 1, nullptr};
      const bool is_held = std::find(held.begin(), held.end(), read.digest) != held.end();
      if (!is_held) read.weights = std::make_shared<NoWeights>();
      return read;
    };
    world.push = [this](EngineCommand&& command) {
      if (engine_full_) return false;
      world_.executor().Post([this, command = std::get<AdapterCommand>(std::move(command))] {
        EngineOutput output;
        output.adapters.push_back(Place(command));
        keeper_->Take(output);
      });
      return true;
    };
    world.tell = [this](AdaptersChanged changed) { told_ = std::move(changed); };
    keeper_ = std::make_unique<AdapterKeeper>(options_, std::move(world), table_);
  }

  AdapterPlaced Place(const AdapterCommand& command) {
    AdapterPlaced placed{command.number, -1, ""};
    if (const auto held = slots_.SlotOf(command.digest)) {
      placed.slot = *held;
    } else if (const auto slot = slots_.Choose(in_use_, command.kept, command.named)) {
      placed.slot = *slot;
      placed.evicted = slots_.In(*slot);
      slots_.Put(*slot, command.digest, ++now_);
    }
    return placed;
  }

  void WriteAdapter(const std::string& folder, const std::string& content) {
    fs::create_directories(dir_ / folder);
    std::ofstream(dir_ / folder / "adapter_config.json") << "{}";
    std::ofstream(dir_ / folder / "adapter_model.safetensors") << content;
  }
  void WriteList(const std::string& text) {
    std::ofstream(dir_ / "new.json") << text;
    fs::rename(dir_ / "new.json", dir_ / "adapters.json");
  }

  AdapterOrder LoadOf(const std::string& name, const std::string& folder, bool replace = false) {
    return {++number_, KeptKind::kLoad, name, (dir_ / folder).string(), replace, true};
  }
  // Its result, once it is there.
  AdapterResult Ask(const AdapterOrder& order) {
    std::optional<AdapterResult> result;
    keeper_->Order(order, [&result](AdapterResult got) { result = std::move(got); });
    EXPECT_FALSE(result.has_value()) << "it comes later";
    Run();
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(result.value_or(AdapterResult()).number, order.number);
    return result.value_or(AdapterResult());
  }
  AdapterResult Unload(const std::string& name) {
    return Ask({++number_, KeptKind::kUnload, name, "", false, false});
  }
  void Run(Micros time = 100 * kMicrosPerMilli) { world_.RunUntil(world_.clock().Now() + time); }

  std::map<std::string, std::string> Names() const {
    std::map<std::string, std::string> names;
    for (const ServedAdapter& each : keeper_->Current().adapters) {
      names[each.name] = each.digest.substr(0, each.digest.find('0'));
    }
    return names;
  }
  using Map = std::map<std::string, std::string>;
  bool Shows(const std::string& line) {
    return metrics_.Render().find(line + "\n") != std::string::npos;
  }

  VirtualWorld world_{1};
  VirtualBackground background_{world_.executor(), kMicrosPerMilli};
  Metrics metrics_;
  AdapterJobMetrics job_metrics_{metrics_};
  NullLogger log_;
  AdapterTable table_;
  AdapterSlots slots_;
  AdapterMetrics metrics_of_;
  std::vector<bool> in_use_ = {false, false};
  int64_t now_ = 0;
  fs::path dir_;
  AdapterKeeperOptions options_;
  AdaptersChanged told_;
  std::vector<std::string> roots_;
  int reads_ = 0;
  uint64_t number_ = 0;
  bool ranks_lost_ = false;
  bool engine_full_ = false;
  std::unique_ptr<AdapterKeeper> keeper_;
};

TEST_F(AdapterKeeperTest, LoadsReplacesAndUnloads) {
  Make();
  WriteAdapter("v1", "one");
  WriteAdapter("v2", "two");
  AdapterResult result = Ask(LoadOf("sql", "v1"));
  EXPECT_EQ(result.verdict, KeptVerdict::kDone) << result.message;
  EXPECT_EQ(result.digest, DigestOf("one"));
  ASSERT_EQ(told_.adapters.size(), 1u);
  EXPECT_EQ(told_.adapters[0], (ServedAdapter{"sql", DigestOf("one"), "base", 8}));
  EXPECT_EQ(Ask(LoadOf("sql", "v2")).verdict, KeptVerdict::kAlready);
  EXPECT_EQ(Ask(LoadOf("sql", "v2", true)).digest, DigestOf("two"));
  EXPECT_EQ(Names(), (Map{{"sql", "two"}}));
  EXPECT_EQ(told_.held, std::vector<std::string>{DigestOf("one")}) << "its answers go on";
  EXPECT_EQ(Ask(LoadOf("also", "v2")).verdict, KeptVerdict::kDone);
  EXPECT_TRUE(Shows("quire_worker_lora_loads_total 2")) << "one content, two names";
  EXPECT_EQ(Unload("sql").verdict, KeptVerdict::kDone);
  EXPECT_EQ(Unload("sql").verdict, KeptVerdict::kNotFound);
  EXPECT_EQ(Names(), (Map{{"also", "two"}}));
  EXPECT_TRUE(CheckServedAdapters(told_.adapters, options_.served_names).ok());
}

TEST_F(AdapterKeeperTest, WhatNothingUsesGivesWayAndTakesItsNameAlong) {
  Make();
  for (const char* content : {"one", "two", "three"}) WriteAdapter(content, content);
  Ask(LoadOf("a", "one"));
  Ask(LoadOf("b", "two"));
  in_use_ = {true, false};
  EXPECT_EQ(Ask(LoadOf("c", "three")).verdict, KeptVerdict::kDone);
  EXPECT_EQ(Names(), (Map{{"a", "one"}, {"c", "three"}})) << "b was idle";
  EXPECT_TRUE(Shows("quire_worker_lora_evictions_total 1"));
  in_use_ = {true, true};
  const AdapterResult full = Ask(LoadOf("b", "two"));
  EXPECT_EQ(full.verdict, KeptVerdict::kNoSlot);
  EXPECT_NE(full.message.find("--max-loras 2"), std::string::npos) << full.message;
  EXPECT_EQ(Names(), (Map{{"a", "one"}, {"c", "three"}})) << "nothing has changed";
  EXPECT_TRUE(Shows("quire_worker_lora_load_failures_total 1"));
  EXPECT_TRUE(Shows("quire_worker_lora_contents 2"));
}

TEST_F(AdapterKeeperTest, PathsOffTheMachineLieInTheFolder) {
  options_.lora_dir = dir_.string();
  Make();
  WriteAdapter("sql", "one");
  const AdapterOrder relative{1, KeptKind::kLoad, "a", "sql", false, false};
  EXPECT_EQ(Ask(relative).verdict, KeptVerdict::kDone);
  EXPECT_EQ(roots_.back(), dir_.string()) << "no file of it lies elsewhere";
  for (const char* path : {"/etc", "../x", "sql/../../x"}) {
    const AdapterResult refused = Ask({2, KeptKind::kLoad, "b", path, false, false});
    EXPECT_EQ(refused.verdict, KeptVerdict::kInvalid) << path;
    EXPECT_NE(refused.message.find("--lora-dir"), std::string::npos);
  }
  EXPECT_EQ(Ask({3, KeptKind::kLoad, "c", (dir_ / "sql").string(), false, true}).verdict,
            KeptVerdict::kDone);
  EXPECT_EQ(roots_.back(), "") << "who is on the machine reads what the worker can";
}

TEST_F(AdapterKeeperTest, AWorkerThatOthersReachReadsNothingElse) {
  options_.on_loopback = false;
  Make();
  WriteAdapter("sql", "one");
  const AdapterResult refused = Ask(LoadOf("a", "sql"));
  EXPECT_EQ(refused.verdict, KeptVerdict::kInvalid);
  EXPECT_NE(refused.message.find("has none"), std::string::npos) << refused.message;
  EXPECT_EQ(reads_, 0);
}

TEST_F(AdapterKeeperTest, WrongNamesAndBrokenFoldersAreOneLine) {
  Make();
  WriteAdapter("bad", "broken");
  for (const std::string& name :
       {std::string(""), std::string("a:b"), std::string("base"), std::string("a b"),
        std::string("a\n"), std::string("\xff"), std::string(257, 'x')}) {
    EXPECT_EQ(Ask(LoadOf(name, "bad")).verdict, KeptVerdict::kInvalid) << name;
  }
  EXPECT_EQ(reads_, 0);
  const AdapterResult broken = Ask(LoadOf("a", "bad"));
  EXPECT_EQ(broken.verdict, KeptVerdict::kInvalid);
  EXPECT_EQ(broken.message, "tensor \"x\"?has no partner");
  EXPECT_EQ(Ask(LoadOf("a", "none")).verdict, KeptVerdict::kNotFound);
  EXPECT_TRUE(Names().empty());
  engine_full_ = true;
  WriteAdapter("good", "one");
  EXPECT_EQ(Ask(LoadOf("a", "good")).verdict, KeptVerdict::kQueueFull);
}

TEST_F(AdapterKeeperTest, OrdersThatWaitAreLimited) {
  Make();
  WriteAdapter("v1", "one");
  std::vector<KeptVerdict> verdicts;
  const auto order = [&] {
    keeper_->Order(LoadOf("n" + std::to_string(number_), "v1"),
                   [&verdicts](const AdapterResult& got) { verdicts.push_back(got.verdict); });
  };
  for (size_t i = 0; i < kMaxAdapterJobs; ++i) order();
  Run(1);
  EXPECT_TRUE(verdicts.empty());
  EXPECT_TRUE(Shows("quire_worker_lora_jobs " + std::to_string(kMaxAdapterJobs)));
  order();
  Run(1);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0], KeptVerdict::kQueueFull);
  EXPECT_TRUE(Shows("quire_worker_lora_jobs_refused_total 1"));
  Run();
  ASSERT_EQ(verdicts.size(), kMaxAdapterJobs + 1);
  EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), KeptVerdict::kDone),
            static_cast<ptrdiff_t>(kMaxAdapterJobs));
  EXPECT_TRUE(Shows("quire_worker_lora_jobs 0"));
}

TEST_F(AdapterKeeperTest, NamesAreLimited) {
  Make();
  WriteAdapter("v1", "one");
  for (int i = 0; i < kMaxServedAdapters; ++i) {
    ASSERT_EQ(Ask(LoadOf("n" + std::to_string(i), "v1")).verdict, KeptVerdict::kDone);
  }
  EXPECT_EQ(Ask(LoadOf("one more", "v1")).verdict, KeptVerdict::kInvalid);
  EXPECT_EQ(Ask(LoadOf("more", "v1")).verdict, KeptVerdict::kNoSlot);
  EXPECT_EQ(Ask(LoadOf("n0", "v1", true)).verdict, KeptVerdict::kDone);
}

TEST_F(AdapterKeeperTest, TheFolderIsServedAndFollowed) {
  options_.lora_dir = dir_.string();
  WriteAdapter("sql", "one");
  WriteAdapter("bad", "broken");
  Make();
  ASSERT_TRUE(keeper_->LoadAtStart([this](AdapterCommand one) { return Place(one); }).ok());
  EXPECT_EQ(Names(), (Map{{"sql", "one"}}));
  EXPECT_TRUE(Shows("quire_worker_lora_broken_entries 1"));
  const int at_start = reads_;
  keeper_->Start();
  Run(5 * kMicrosPerSecond);
  EXPECT_EQ(reads_, at_start) << "what has not changed is not read again, broken or not";
  WriteAdapter("legal", "two");
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "one"}, {"legal", "two"}}));
  fs::remove_all(dir_ / "bad");
  WriteAdapter("sql", "three");
  in_use_ = {true, true};
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "one"}, {"legal", "two"}})) << "all slots are in use";
  EXPECT_TRUE(Shows("quire_worker_lora_broken_entries 1"));
  in_use_ = {false, false};
  const int before = reads_;
  Run(kNoSlotPause + kMicrosPerSecond);
  EXPECT_EQ(reads_, before + 1) << "it is not read all the time";
  EXPECT_EQ(Names(), (Map{{"sql", "three"}, {"legal", "two"}}));
  EXPECT_TRUE(Shows("quire_worker_lora_broken_entries 0"));
  EXPECT_EQ(Ask(LoadOf("sql", "legal", true)).verdict, KeptVerdict::kInvalid)
      << "the folder decides";
  EXPECT_EQ(Unload("sql").verdict, KeptVerdict::kInvalid);
  WriteAdapter("more", "four");
  const AdapterResult kept = Ask(LoadOf("own", "more"));
  EXPECT_EQ(kept.verdict, KeptVerdict::kNoSlot) << "what the folder names gives way to nothing";
  fs::remove_all(dir_ / "more");
  fs::remove_all(dir_ / "legal");
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "three"}}));
}

TEST_F(AdapterKeeperTest, RanksThatWereNotThereAreAskedAgain) {
  options_.lora_dir = dir_.string();
  Make();
  ASSERT_TRUE(keeper_->LoadAtStart([this](AdapterCommand one) { return Place(one); }).ok());
  keeper_->Start();
  ranks_lost_ = true;
  WriteAdapter("sql", "one");
  Run(kMicrosPerSecond);
  EXPECT_TRUE(Names().empty());
  const AdapterResult refused = Ask(LoadOf("own", "sql"));
  EXPECT_EQ(refused.verdict, KeptVerdict::kQueueFull) << "it is not the adapter's fault";
  EXPECT_GT(refused.retry_after_ms, 0u);
  ranks_lost_ = false;
  Run(kNoSlotPause + kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "one"}})) << "though its folder has not changed";
}

TEST_F(AdapterKeeperTest, AListSwitchesNamesAtOnceWhereTheContentIsHeld) {
  options_.lora_dir = dir_.string();
  WriteAdapter("v1", "one");
  WriteAdapter("v2", "two");
  const auto list = [](const std::string& path) {
    return R"({"adapters": [{"name": "sql", "path": ")" + path + R"("}]})";
  };
  WriteList(list("v1"));
  Make();
  ASSERT_TRUE(keeper_->LoadAtStart([this](AdapterCommand one) { return Place(one); }).ok());
  EXPECT_EQ(Names(), (Map{{"sql", "one"}}));
  keeper_->Start();
  WriteList(list("v2"));
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "two"}}));
  const int reads = reads_;
  for (const char* path : {"v1", "v2", "v1"}) {
    WriteList(list(path));
    Run(kMicrosPerSecond);
  }
  EXPECT_EQ(Names(), (Map{{"sql", "one"}}));
  EXPECT_EQ(reads_, reads) << "a rollback loads nothing";
  EXPECT_TRUE(Shows("quire_worker_lora_switches_total 3"));
  WriteList("{ broken");
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "one"}})) << "a list that cannot be read changes nothing";
  WriteList(R"({"adapters": [{"name": "sql", "path": "../v2"}, {"name": "new", "path": "v2"}]})");
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "one"}, {"new", "two"}})) << "a broken entry changes nothing";
  EXPECT_TRUE(Shows("quire_worker_lora_broken_entries 1"));
}

TEST_F(AdapterKeeperTest, FlagsAreKeptAndTheFolderHasTheLastWord) {
  AdapterInfo info;
  info.name = "sql";
  info.digest = DigestOf("flag");
  info.rank = 4;
  table_.Add(info);
  slots_ = AdapterSlots(&table_);
  options_.lora_dir = dir_.string();
  Make();
  keeper_->Start();
  WriteAdapter("more", "one");
  Run(kMicrosPerSecond);
  WriteAdapter("third", "two");
  Run(kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "flag"}, {"more", "one"}})) << "both slots are kept";
  fs::remove_all(dir_ / "more");
  WriteAdapter("sql", "two");
  fs::remove_all(dir_ / "third");
  Run(2 * kMicrosPerSecond);
  EXPECT_EQ(Names(), (Map{{"sql", "two"}}));
}

}  // namespace
}  // namespace quire

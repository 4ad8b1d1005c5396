// --lora-dir: what a folder, and a list in it, say of the adapters that are wanted.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/status.h"
#include "worker/adapters/adapter_reader.h"
#include "worker/adapters/desired_adapters.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class DesiredAdaptersTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  absl::StatusOr<DesiredAdapters> Read() { return ReadDesiredAdapters(dir_.string()); }
  std::string Error() { return StatusMessage(Read().status()); }

  fs::path dir_;
};

TEST_F(DesiredAdaptersTest, EachFolderWithAConfigurationIsAnAdapter) {
  Write("sql/adapter_config.json", "{}");
  Write("legal/adapter_config.json", "{}");
  Write("notes/readme.txt", "");
  Write("adapter_config.json", "{}");
  Write(".hidden/adapter_config.json", "{}");
  fs::create_directory_symlink(dir_ / "sql", dir_ / "alias");
  const auto desired = Read();
  ASSERT_TRUE(desired.ok()) << desired.status();
  const std::vector<DesiredAdapter> expected = {
      {"alias", "alias"}, {"legal", "legal"}, {"sql", "sql"}};
  EXPECT_EQ(desired->adapters, expected);
  EXPECT_TRUE(desired->problems.empty());
}

TEST_F(DesiredAdaptersTest, AListAloneDecides) {
  Write("sql/adapter_config.json", "{}");
  Write("adapters.json", R"({"adapters": [{"name": "sql", "path": "sql-v2", "note": 1}]})");
  const auto desired = Read();
  ASSERT_TRUE(desired.ok()) << desired.status();
  EXPECT_EQ(desired->adapters, (std::vector<DesiredAdapter>{{"sql", "sql-v2"}}));
}

TEST_F(DesiredAdaptersTest, ABrokenEntryLeavesTheOthers) {
  Write("adapters.json",
        R"({"adapters": [7, {"path": "x"}, {"name": "a"}, {"name": "b", "path": ""},
        {"name": "c", "path": "c"}, {"name": "c", "path": "d"}, {"name": 5, "path": "e"}]})");
  const auto desired = Read();
  ASSERT_TRUE(desired.ok()) << desired.status();
  EXPECT_EQ(desired->adapters, (std::vector<DesiredAdapter>{{"c", "c"}}));
  EXPECT_EQ(desired->problems.size(), 6u);
}

TEST_F(DesiredAdaptersTest, WhatCannotBeReadIsAnErrorAndNoEmptyList) {
  EXPECT_NE(StatusMessage(ReadDesiredAdapters((dir_ / "none").string()).status()).find("none"),
            std::string::npos);
  for (const char* text : {"", "{", "[]", "{}", R"({"adapters": {}})"}) {
    Write("adapters.json", text);
    EXPECT_NE(Error().find("adapters.json"), std::string::npos) << text;
  }
  fs::remove(dir_ / "adapters.json");
  fs::create_symlink(dir_ / "gone", dir_ / "adapters.json");
  EXPECT_FALSE(Read().ok()) << "a list that is being exchanged";
  fs::remove(dir_ / "adapters.json");
  const fs::path outside = fs::path(testing::TempDir()) / "outside.json";
  std::ofstream(outside) << R"({"adapters": []})";
  fs::create_symlink(outside, dir_ / "adapters.json");
  EXPECT_NE(Error().find("link out"), std::string::npos) << Error();
}

TEST_F(DesiredAdaptersTest, TheLimitsHoldAtThemAndOneAbove) {
  const auto list = [](size_t count) {
    std::string text = R"({"adapters": [)";
    for (size_t i = 0; i < count; ++i) {
      text += (i == 0 ? "" : ",") + std::string(R"({"name": "n)") + std::to_string(i) +
              R"(", "path": "p"})";
    }
    return text + "]}";
  };
  Write("adapters.json", list(kMaxDesiredAdapters));
  EXPECT_EQ(Read()->adapters.size(), kMaxDesiredAdapters);
  EXPECT_TRUE(Read()->problems.empty());
  Write("adapters.json", list(kMaxDesiredAdapters + 1));
  EXPECT_EQ(Read()->adapters.size(), kMaxDesiredAdapters);
  EXPECT_EQ(Read()->problems.size(), 1u);
  Write("adapters.json", list(kMaxDesiredEntries));
  EXPECT_TRUE(Read().ok());
  Write("adapters.json", list(kMaxDesiredEntries + 1));
  EXPECT_NE(Error().find("4097 entries"), std::string::npos) << Error();
  std::string text = list(1);
  text.resize(kMaxDesiredBytes, ' ');
  Write("adapters.json", text);
  EXPECT_TRUE(Read().ok());
  Write("adapters.json", text + " ");
  EXPECT_NE(Error().find("at most"), std::string::npos) << Error();
}

TEST(PlaceInRoot, KeepsPathsInside) {
  EXPECT_EQ(PlaceInRoot("/dir", "sql")->folder, "/dir/sql");
  EXPECT_EQ(PlaceInRoot("/dir/", "/dir/a/b/")->folder, "/dir/a/b");
  EXPECT_EQ(PlaceInRoot("/dir/", "sql")->root, "/dir");
  EXPECT_EQ(PlaceInRoot("/", "/sql")->folder, "/sql");
  for (const char* path : {"..", "../x", "a/../../x", "/elsewhere", "/dir", "/dir/", "/dirx/a", "",
                           "/dir/../dir/a", "/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PlaceInRoot("/dir", path).status())) << path;
  }
  EXPECT_FALSE(PlaceInRoot("/dir", std::string("a\0b", 3)).ok());
}

TEST_F(DesiredAdaptersTest, AFingerprintTellsFoldersApart) {
  EXPECT_EQ(FolderFingerprint((dir_ / "sql").string()), "");
  Write("sql/adapter_config.json", "{}");
  EXPECT_EQ(FolderFingerprint((dir_ / "sql").string()), "") << "no weights yet";
  Write("sql/adapter_model.safetensors", "1");
  const std::string first = FolderFingerprint((dir_ / "sql").string());
  EXPECT_NE(first, "");
  EXPECT_EQ(FolderFingerprint((dir_ / "sql").string()), first);
  Write("sql/adapter_model.safetensors", "22");
  EXPECT_NE(FolderFingerprint((dir_ / "sql").string()), first);
}

}  // namespace
}  // namespace quire

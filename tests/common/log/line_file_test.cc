// Lines to a file from a thread of its own: all of them, or counted as lost.
#include "common/log/line_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace quire {
namespace {

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class LineFileTest : public testing::Test {
 protected:
  LineFileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LineFileTest() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<LineFile> Open() {
    auto file = LineFile::Open({path_, [this](uint64_t lines) { told_lost_ += lines; }});
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  const std::string folder_ = testing::TempDir() + "quire_line_file";
  const std::string path_ = folder_ + "/records.jsonl";
  std::atomic<uint64_t> told_lost_ = 0;
};

TEST_F(LineFileTest, AppendsWholeLinesInOrderToWhatIsThere) {
  std::ofstream(path_) << "older\n";
  auto file = Open();
  file->Start();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(file->Offer(std::to_string(i)));
  file.reset();
  const std::vector<std::string> lines = LinesOf(path_);
  ASSERT_EQ(lines.size(), 1001u);
  EXPECT_EQ(lines[0], "older");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(lines[static_cast<size_t>(i) + 1], std::to_string(i));
}

TEST_F(LineFileTest, TheQueueTakesItsLimitAndNotOneMore) {
  auto file = Open();
  for (size_t i = 0; i < kMaxQueuedFileLines; ++i) ASSERT_TRUE(file->Offer("x"));
  EXPECT_FALSE(file->Offer("one too many"));
  for (size_t i = 1; i < 100 * kMaxQueuedFileLines; ++i) EXPECT_FALSE(file->Offer("x"));
  EXPECT_EQ(file->lost(), 100 * kMaxQueuedFileLines);
  EXPECT_EQ(told_lost_, file->lost());
  file->Start();
  file.reset();
  EXPECT_EQ(LinesOf(path_).size(), kMaxQueuedFileLines);
}

TEST_F(LineFileTest, ALineOfTheLimitIsTakenAndALongerOneIsLost) {
  auto file = Open();
  file->Start();
  EXPECT_TRUE(file->Offer(std::string(kMaxFileLineBytes, 'a')));
  EXPECT_FALSE(file->Offer(std::string(kMaxFileLineBytes + 1, 'b')));
  file.reset();
  EXPECT_EQ(LinesOf(path_), std::vector<std::string>{std::string(kMaxFileLineBytes, 'a')});
  EXPECT_EQ(told_lost_, 1u);
}

TEST_F(LineFileTest, FollowsARotatedPath) {
  auto file = Open();
  EXPECT_TRUE(file->Offer("before"));
  std::filesystem::rename(path_, path_ + ".1");
  file->Start();
  file.reset();
  EXPECT_TRUE(LinesOf(path_ + ".1").empty());
  EXPECT_EQ(LinesOf(path_), std::vector<std::string>{"before"});
}

TEST_F(LineFileTest, RefusesWhatItCannotWriteTo) {
  const auto missing = LineFile::Open({folder_ + "/no/such/folder/x", nullptr});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(StatusMessage(missing.status()),
            folder_ + "/no/such/folder/x cannot be written to: No such file or directory");
  const auto folder = LineFile::Open({folder_, nullptr});
  EXPECT_EQ(StatusMessage(folder.status()), folder_ + " cannot be written to: Is a directory");
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(LineFile::Open({pipe, nullptr}).ok());  // and does not wait for a reader
  const auto device = LineFile::Open({"/dev/null", nullptr});
  EXPECT_EQ(StatusMessage(device.status()),
            "/dev/null is no regular file; name one, it is created if absent");
}

// A file that takes no more (a full disk, a limit) loses lines; what comes later is whole again.
TEST_F(LineFileTest, AFullDiskLosesLinesAndTearsNone) {
  auto file = Open();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = 25;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(file->Offer("ten bytes"));
  file->Start();
  while (file->lost() + file->written() < 4) std::this_thread::yield();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(file->written(), 2u);
  EXPECT_TRUE(file->Offer("after"));
  file.reset();
  EXPECT_EQ(told_lost_, 2u);
  EXPECT_EQ(LinesOf(path_), (std::vector<std::string>{"ten bytes", "ten bytes", "ten b", "after"}));
}

}  // namespace
}  // namespace quire

#include "common/log/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "common/json/json.h"

namespace quire {
namespace {

std::string Json(std::string_view message, std::initializer_list<LogField> fields) {
  return FormatJsonLine(1'700'000'000'000'123, LogLevel::kWarning, message, fields);
}
std::string Text(std::string_view message, std::initializer_list<LogField> fields) {
  return FormatTextLine(1'700'000'000'123'456, LogLevel::kInfo, message, fields);
}

TEST(LogFormat, JsonLineHasTimeLevelMessageAndFields) {
  EXPECT_EQ(
      Json("worker attached", {{"worker", "a:1"}, {"count", 3}, {"ok", true}, {"rate", 0.5}}),
      "{\"ts\":\"2023-11-14T22:13:20.000123Z\",\"level\":\"warning\",\"msg\":\"worker attached\","
      "\"worker\":\"a:1\",\"count\":3,\"ok\":true,\"rate\":0.5}");
}

TEST(LogFormat, TextLineQuotesWhatCouldMislead) {
  EXPECT_EQ(Text("started", {{"port", 8000}, {"name", "my model"}, {"empty", ""}}),
            "22:13:20.123 started port=8000 name=\"my model\" empty=\"\"");
}

TEST(LogFormat, ValuesCannotForgeALine) {
  const std::string hostile = "x\n2023 forged\x1b[31m\xff";
  for (const std::string& line :
       {Text(hostile, {{"k", hostile}}), Json(hostile, {{"k", hostile}})}) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
  EXPECT_TRUE(json::Parse(Json(hostile, {{"k", hostile}})).ok());
}

TEST(LogFormat, NotANumberStaysValidJson) {
  const std::string line = Json("m", {{"rate", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_TRUE(json::Parse(line).ok()) << line;
}

TEST(LogFormat, LinesAreBounded) {
  const std::string at_limit(kMaxLogValueBytes, 'a');
  EXPECT_NE(Text("m", {{"k", at_limit}}).find(at_limit), std::string::npos);
  EXPECT_EQ(Text("m", {{"k", at_limit}}).find("…"), std::string::npos);
  EXPECT_NE(Json("m", {{"k", at_limit + "b"}}).find("…(+1 bytes)"), std::string::npos);
  const std::string huge(1 << 20, 'a');
  const LogField field{"k", huge};
  const std::vector<LogField> many(100, field);
  EXPECT_LE(FormatTextLine(0, LogLevel::kError, huge, many).size(), kMaxLogLineBytes);
  const std::string line = FormatJsonLine(0, LogLevel::kError, huge, many);
  EXPECT_LE(line.size(), kMaxLogLineBytes);
  EXPECT_TRUE(json::Parse(line).ok());
}

TEST(LogFormat, CutsAtWholeCharacters) {
  const std::string euros = std::string(kMaxLogValueBytes - 1, 'a') + "€";
  EXPECT_NE(Json("m", {{"k", euros}}).find("aaa…(+3 bytes)"), std::string::npos);
}

std::vector<std::string> LinesThroughPipe(const LoggerOptions& base,
                                          const std::function<void(Logger&)>& write) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::string all;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) all.append(buffer, n);
  });
  LoggerOptions options = base;
  options.file_descriptor = ends[1];
  {
    std::unique_ptr<Logger> logger = MakeLogger(options);
    write(*logger);
  }
  close(ends[1]);
  reader.join();
  close(ends[0]);
  std::vector<std::string> lines;
  for (size_t start = 0, end; (end = all.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.push_back(all.substr(start, end - start));
  }
  return lines;
}

TEST(Logger, WritesJsonToAPipeAndFiltersByLevel) {
  const auto lines = LinesThroughPipe({.level = LogLevel::kWarning}, [](Logger& log) {
    EXPECT_FALSE(log.Enabled(LogLevel::kInfo));
    log.Info("hidden");
    log.Warning("shown", {{"n", 1}});
    log.Error("{} %s braces stay");
  });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("\"msg\":\"shown\",\"n\":1}"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("{} %s braces stay"), std::string::npos) << lines[1];
}

TEST(Logger, LinesOfManyThreadsStayWhole) {
  const auto lines = LinesThroughPipe({.format = LogFormat::kJson}, [](Logger& log) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 100; ++i) log.Info("line", {{"thread", t}, {"i", i}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) EXPECT_TRUE(json::Parse(line).ok()) << line;
}

TEST(Logger, FlushReturnsOnceTheLinesAreWritten) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::unique_ptr<Logger> logger = MakeLogger({.file_descriptor = ends[1]});
  for (int i = 0; i < 50; ++i) {
    logger->Info("line");
    while (!logger->Flush()) {  // a slow machine
    }
    char buffer[4096];
    ASSERT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    EXPECT_GT(read(ends[0], buffer, sizeof(buffer)), 0) << "line " << i;
  }
  logger.reset();
  close(ends[1]);
  close(ends[0]);
}

TEST(Logger, EachOfManyFlushesWaitsForTheLinesOfItsOwnThread) {
  const std::string path = testing::TempDir() + "quire_log_flushes";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
  ASSERT_GE(file, 0);
  std::unique_ptr<Logger> logger = MakeLogger({.file_descriptor = file});
  std::atomic<int> flushed = 0;
  const auto write = [&](int thread) {
    for (int i = 0; i < 200; ++i) {
      const std::string name = std::to_string(thread) + "/" + std::to_string(i);
      logger->Info("line " + name + ".");
      if (!logger->Flush()) continue;  // a slow machine
      ++flushed;
      std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
      ASSERT_EQ(pread(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
      ASSERT_NE(text.find(" " + name + "."), std::string::npos) << name;
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) threads.emplace_back(write, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(flushed, 0);
  logger.reset();
  close(file);
  unlink(path.c_str());
}

TEST(Logger, NeverWaitsForAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread drain;
  {
    std::unique_ptr<Logger> logger = MakeLogger({.file_descriptor = ends[1]});
    const std::string value(kMaxLogValueBytes, 'x');
    // Far more than the pipe and the queue hold: this returns only because lines are dropped.
    for (size_t i = 0; i < kMaxQueuedLogLines + 500; ++i) logger->Info("m", {{"v", value}});
    EXPECT_GT(logger->DroppedCount(), 0u);
    logger->Flush();
    drain = std::thread([&] {
      char buffer[65536];
      while (read(ends[0], buffer, sizeof(buffer)) > 0) {
      }
    });
  }
  close(ends[1]);
  drain.join();
  close(ends[0]);
}

TEST(LogLevel, NamesReadBack) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    EXPECT_EQ(LogLevelFromName(LogLevelName(level)), level);
  }
}

}  // namespace
}  // namespace quire

#include "common/serve/lines.h"

#include <gtest/gtest.h>

namespace quire::serve {
namespace {

TEST(ServeLines, NewsOfAModelComesBackAsItWas) {
  ModelNews news;
  news.name = "qwen3:4b \"x\"\n";
  news.state = ModelState::kReady;
  news.kept = true;
  news.file_bytes = 12;
  news.memory_bytes = 34;
  news.modified = 56;
  news.makeup = {"gguf", "qwen3", "Q4_K", 4'000'000'000};
  news.workers = {{"127.0.0.1:1", "127.0.0.1:2", "0"}};
  const std::string line = LineOf(news);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto read = ReadNews(line.substr(0, line.size() - 1));
  ASSERT_TRUE(read.ok()) << read.status();
  const ModelNews& back = std::get<ModelNews>(*read);
  EXPECT_EQ(back.name, news.name);
  EXPECT_EQ(back.state, ModelState::kReady);
  EXPECT_TRUE(back.kept);
  EXPECT_EQ(back.workers, news.workers);
  EXPECT_EQ(back.memory_bytes, 34);
  EXPECT_EQ(back.makeup, news.makeup);
}

TEST(ServeLines, JobsAndOrdersComeBack) {
  const auto job = ReadNews(LineOf(JobNews{7, "pulling", 10, 5, true, "no", 16}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(std::get<JobNews>(*job).completed, 5);
  EXPECT_EQ(std::get<JobNews>(*job).error, "no");
  EXPECT_EQ(std::get<JobNews>(*job).code, 16);
  const auto order = ReadOrder(LineOf(Order{OrderKind::kPull, "hf:a/b", 9, 1000}));
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->kind, OrderKind::kPull);
  EXPECT_EQ(order->job, 9u);
  EXPECT_EQ(order->most_bytes, 1000);
}

TEST(ServeLines, WrongLinesAreRefusedByTheirMember) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "one object"},
      {"{\"model\":\"\",\"state\":\"ready\"}", "model"},
      {"{\"model\":\"a\",\"state\":\"asleep\"}", "state"},
      {"{\"model\":\"a\",\"state\":\"ready\",\"file_bytes\":-1}", "file_bytes"},
      {"{\"model\":\"a\",\"state\":\"ready\",\"workers\":[1]}", "workers"},
      {"{\"job\":\"x\"}", "job"},
      {"{\"job\":1,\"code\":17}", "code"},
  };
  for (const auto& [line, member] : cases) {
    const auto read = ReadNews(line);
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_NE(std::string(read.status().message()).find(member), std::string::npos) << line;
  }
  EXPECT_FALSE(ReadOrder("{\"order\":\"dance\",\"model\":\"a\"}").ok());
  EXPECT_FALSE(ReadOrder("{\"order\":\"load\",\"model\":\"\"}").ok());
  EXPECT_TRUE(
      ReadOrder(LineOf(Order{OrderKind::kLoad, std::string(kMaxModelNameBytes, 'a'), 0})).ok());
  EXPECT_FALSE(
      ReadOrder(LineOf(Order{OrderKind::kLoad, std::string(kMaxModelNameBytes + 1, 'a'), 0})).ok());
}

TEST(ServeLines, PiecesBecomeLinesAndALineWithoutEndIsTold) {
  LineCutter cutter;
  cutter.Add("one\ntw");
  EXPECT_EQ(cutter.Next(), "one");
  EXPECT_EQ(cutter.Next(), std::nullopt);
  cutter.Add("o\n\n");
  EXPECT_EQ(cutter.Next(), "two");
  EXPECT_EQ(cutter.Next(), "");
  EXPECT_EQ(cutter.Next(), std::nullopt);
  cutter.Add(std::string(kMaxLineBytes, 'x'));
  EXPECT_FALSE(cutter.spoilt());
  cutter.Add("x");
  EXPECT_TRUE(cutter.spoilt());
}

}  // namespace
}  // namespace quire::serve

// Bodies that are too large to be parsed on the event loop.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

TEST(HttpServer, LargeBodiesAreParsedOffTheLoop) {
  HttpLimits limits;
  limits.background_parse_bytes = 64;
  EdgeHarness edge(limits);
  const std::string prompt(200'000, 'a');
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", "{\"prompt\":\"" + prompt + "\"}")).status, 200);
  edge.OnLoop([&] { EXPECT_EQ(std::get<TextPrompt>(edge.pipeline.seen[0].prompt).text, prompt); });
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", "{\"prompt\":\"" + prompt + "\"")).status, 400);
}

TEST(HttpServer, LargeTextsAreParsedOffTheLoopAndGivenUpWithTheirClient) {
  HttpLimits limits;
  limits.background_parse_bytes = 64;
  EdgeHarness edge(limits);
  const std::string text(200'000, 'a');
  const RawResponse r = edge.Ask(edge.Post("/tokenize", "{\"prompt\":\"" + text + "\"}"));
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.body.starts_with("{\"count\":200001,"));
  EXPECT_EQ(edge.Ask(edge.Post("/detokenize", "{\"tokens\":" + text + "}")).status, 400);
  for (int i = 0; i < 20; ++i) {
    RawClient client = edge.Connect();
    client.Send(edge.Post("/tokenize", "{\"prompt\":\"" + text + "\"}"));
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
}

TEST(HttpServer, MoreLargeBodiesThanTheQueueHoldsAreToldToComeBack) {
  HttpLimits limits;
  limits.background_parse_bytes = 0;
  EdgeHarness edge(limits);
  std::mutex gate;
  gate.lock();
  std::atomic<bool> holds{false};
  edge.OnLoop([&] {
    edge.background.Run(
        [&] {
          holds = true;
          std::lock_guard<std::mutex> wait(gate);
        },
        [] {});
  });
  ASSERT_TRUE(edge.Eventually([&] { return holds.load(); }));
  edge.OnLoop([&] {
    while (edge.background.Run([&] { std::lock_guard<std::mutex> wait(gate); }, [] {})) {
    }
  });
  for (const char* path : {"/tokenize", "/v1/completions"}) {
    const RawResponse r = edge.Ask(edge.Post(path, R"({"prompt":"x"})"));
    EXPECT_EQ(r.status, 503) << path;
    EXPECT_EQ(r.headers.at("retry-after"), "1");
  }
  gate.unlock();
}

}  // namespace
}  // namespace quire

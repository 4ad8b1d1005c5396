// Bodies that are too large to be parsed on the event loop.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/router/support/busy_pool.h"
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

// The only thread of the background is held: what is written there waits, and the loop does not.
TEST(HttpServer, LargeAnswersOfTextsAreWrittenOffTheLoopWhileOthersAreAnswered) {
  HttpLimits limits;
  limits.background_write_bytes = 1200;
  EdgeHarness edge(limits);
  std::string ids = "65";
  std::string text = "A";
  for (int i = 1; i < 1201; ++i) {
    ids += ",65";
    text += 'A';
  }
  const std::pair<std::string, std::string> larger[] = {
      {"/tokenize", R"({"add_special_tokens":false,"prompt":")" + text.substr(0, 201) + "\"}"},
      {"/detokenize", "{\"tokens\":[" + ids + "]}"}};
  const std::string wanted[] = {R"({"count":201,"max_model_len":2048,"tokens":[)" +
                                    ids.substr(0, 201 * 3 - 1) + R"(],"token_strs":null})",
                                "{\"prompt\":\"" + text + "\"}"};
  for (size_t i = 0; i < 2; ++i) {
    BusyPool busy(edge);
    RawClient client = edge.Connect();
    client.Send(edge.Post(larger[i].first, larger[i].second));
    ASSERT_TRUE(edge.Eventually([&] { return edge.background.queued() == 1; }));
    EXPECT_EQ(edge.Ask(edge.Post("/tokenize", R"({"prompt":"AB"})")).status, 200) << "meanwhile";
    EXPECT_EQ(edge.background.queued(), 1u) << larger[i].first;
    busy.GoOn();
    const RawResponse answer = client.ReadResponse();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, wanted[i]);
  }
  const std::string at_limit =
      R"({"add_special_tokens":false,"prompt":")" + text.substr(0, 200) + "\"}";
  edge.OnLoop([&] { edge.background.Stop(); });
  EXPECT_EQ(edge.Ask(edge.Post("/tokenize", at_limit)).status, 200) << "needs no thread";
  EXPECT_EQ(edge.Ask(edge.Post("/tokenize", larger[0].second)).status, 503) << "no thread has room";
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

// A large whole answer, and what was asked for it.
std::string LargeAsk() {
  return EdgeHarness::Post("/tokenize", R"({"prompt":")" + std::string(50'000, 'p') + "\"}");
}

TEST(HttpMemory, AnAnswerAtTheConnectionsLimitIsServedAndAtLessIsRefusedAndCounted) {
  const size_t bytes = EdgeHarness().Ask(LargeAsk()).body.size();
  ASSERT_GT(bytes, 100'000u);
  const auto served = [&](size_t limit) {
    HttpLimits limits;
    limits.max_connection_memory_bytes = limit;
    EdgeHarness edge(limits);
    const int status = edge.Ask(LargeAsk()).status;
    EXPECT_TRUE(status == 200 || status == 503) << status;
    edge.OnLoop([&] {
      EXPECT_EQ(edge.services.memory->refused(MemoryScope::kConnection), status == 200 ? 0u : 1u);
    });
    return status == 200;
  };
  size_t refused = 0, enough = 8u << 20;
  ASSERT_TRUE(served(enough));
  while (enough - refused > 1) {
    const size_t middle = (refused + enough) / 2;
    (served(middle) ? enough : refused) = middle;
  }
  EXPECT_GE(enough, bytes);
  EXPECT_LE(enough, bytes + (200u << 10)) << "no more is charged than is held";
}

// Connections times waiting answers: no client reads, and all together stay below the process's
// limit, of which each connection takes its own part as it comes.
TEST(HttpMemory, AnswersThatNobodyReadsStayBelowTheLimitOfAll) {
  EdgeHarness edge;
  const auto account = std::make_shared<MemoryAccount>(size_t{4} << 20);
  edge.OnLoop([&] { edge.services.memory = account; });
  std::vector<RawClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(edge.Connect());
    int size = 4096;
    ::setsockopt(clients.back().fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
  }
  for (RawClient& client : clients) {
    client.Send(
        EdgeHarness::Post("/tokenize", R"({"prompt":")" + std::string(200'000, 'p') + "\"}"));
  }
  ASSERT_TRUE(edge.Eventually([&] {
    const EdgeMetrics& counted = edge.counters;
    return counted.http_responses_2xx.value() + counted.http_responses_5xx.value() == 40;
  }));
  int whole = 0, refused = 0;
  for (RawClient& client : clients) {
    edge.OnLoop([&] { EXPECT_LE(account->bytes(), account->limit()); });
    const RawResponse answer = client.ReadResponse();
    whole += answer.status == 200 && answer.whole ? 1 : 0;
    refused += answer.status == 503 ? 1 : 0;
  }
  EXPECT_EQ(whole + refused, 40);
  EXPECT_GT(whole, 0);
  EXPECT_GT(refused, 0);
  clients.clear();
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
  EXPECT_TRUE(edge.Eventually([&] { return account->bytes() == 0; })) << "all is given back";
}

TEST(HttpMemory, AStreamThatPassesItsConnectionsLimitIsCutShort) {
  HttpLimits limits;
  limits.max_connection_memory_bytes = 512u << 10;
  EdgeHarness edge(limits);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kFlood;
    edge.pipeline.window = 1u << 20;  // a pipeline that does not hold back
  });
  RawClient client = edge.Connect();
  client.Send(
      EdgeHarness::Post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
  edge.OnLoop([&] { EXPECT_GE(edge.services.memory->refused(MemoryScope::kConnection), 1u); });
}

// All readers of one text share it.
TEST(HttpMemory, ATextForManyIsHeldOnce) {
  EdgeHarness edge;
  const auto text = std::make_shared<std::string>(1u << 20, 'm');
  edge.OnLoop([&] {
    edge.services.memory = std::make_shared<MemoryAccount>(size_t{2} << 20);
    edge.services.metrics_text = [text](const auto& done) { done(text); };
  });
  std::vector<RawClient> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(edge.Connect());
    clients.back().Send(EdgeHarness::Get("/metrics"));
  }
  ASSERT_TRUE(edge.Eventually([&] { return edge.counters.http_requests.value() == 64; }));
  edge.OnLoop([&] { EXPECT_LT(edge.services.memory->bytes(), size_t{2} << 20); });
  for (RawClient& client : clients) EXPECT_EQ(client.ReadResponse().body.size(), text->size());
}

}  // namespace
}  // namespace quire

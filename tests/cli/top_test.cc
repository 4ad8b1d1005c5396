#include <gtest/gtest.h>

#include <sstream>

#include <cstdio>
#include <fstream>

#include "cli/watch/metrics_text.h"
#include "cli/watch/timeline.h"
#include "cli/watch/top_view.h"
#include "cli/watch/worker_lines.h"

namespace quire::cli {
namespace {

TEST(MetricsText, ReadsSeriesWithTheirLabels) {
  const MetricsText text(
      "# HELP a Help.\n# TYPE a counter\na{x=\"1\",y=\"q\\\"\\\\\\n\"} 2\na{x=\"2\"} 3.5 "
      "1700000000\n"
      "b 7\nc{le=\"+Inf\"} +Inf\n");
  EXPECT_EQ(text.Sum("a"), 5.5);
  EXPECT_EQ(text.Sum("a", "x", "2"), 3.5);
  EXPECT_EQ(text.Sum("a", "x", "3"), 0);
  EXPECT_EQ(text.LabelValues("a", "x"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(text.LabelValues("a", "y"), std::vector<std::string>{"q\"\\\n"});
  EXPECT_TRUE(text.Has("b"));
  EXPECT_FALSE(text.Has("d"));
}

TEST(MetricsText, WhatMakesNoSenseIsPassedOver) {
  for (const char* line : {"", "{", "a{", "a{x=", "a{x=\"", "a{x=\"1\"", "a{x=\"1\"}", "a ",
                           "a nope", "a{x\"1\"} 2", "= 1", "\xff\xfe 1x", "a{x=\"\\"}) {
    EXPECT_EQ(MetricsText(std::string(line) + "\ngood 1\n").Sum("good"), 1) << line;
    EXPECT_EQ(MetricsText(line).Sum("a"), 0) << line;
  }
}

TEST(MetricsText, QuantilesAreOfWhatCameBetween) {
  const auto text = [](int low, int middle, int all) {
    return MetricsText("h_bucket{m=\"a\",le=\"1\"} " + std::to_string(low) +
                       "\nh_bucket{m=\"a\",le=\"2\"} " + std::to_string(middle) +
                       "\nh_bucket{m=\"a\",le=\"+Inf\"} " + std::to_string(all) + "\n");
  };
  EXPECT_LT(QuantileBetween(text(5, 9, 9), text(5, 9, 9), "h", 0.5), 0) << "nothing came";
  EXPECT_DOUBLE_EQ(QuantileBetween(text(5, 9, 9), text(15, 19, 19), "h", 0.5), 0.5);
  EXPECT_DOUBLE_EQ(QuantileBetween(text(0, 0, 0), text(0, 10, 10), "h", 0.9), 1.9);
  EXPECT_DOUBLE_EQ(QuantileBetween(text(0, 0, 0), text(0, 0, 3), "h", 0.5), 2)
      << "beyond the edges";
  EXPECT_LT(QuantileBetween(text(9, 9, 9), text(1, 1, 1), "h", 0.5), 0) << "it started again";
}

std::string Metrics(int tokens, int held) {
  return "quire_router_live_requests 3\nquire_router_queued_requests{model=\"demo\"} 2\n"
         "quire_router_generation_tokens_total " +
         std::to_string(tokens) +
         "\nquire_router_prompt_tokens_total 100\n"
         "quire_router_worker_ready{worker=\"host:1\"} 1\n"
         "quire_router_worker_ready{worker=\"gone\\u001b[2J\"} 0\n"
         "quire_router_worker_running_rows{worker=\"host:1\"} 8\n"
         "quire_router_worker_kv_held_ratio{worker=\"host:1\"} 0.25\n"
         "quire_worker_generated_tokens_total{engine=\"0\"} " +
         std::to_string(tokens) + "\nquire_worker_pages_held{engine=\"0\"} " +
         std::to_string(held) + "\nquire_worker_pages_free{engine=\"0\"} 60\n";
}

TEST(Top, ShowsRatesAndWorkers) {
  const MetricsText before(Metrics(1000, 40)), after(Metrics(3500, 40));
  const std::string text = TopText({"http://x", before, after, 2, {}});
  for (const char* part : {"3 live, 2 queued", "1.25k/s out", "queue of demo: 2", "host:1", "ready",
                           "25 %", "not ready", "40 %"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  // A counter that was set back is a rate of zero, not a negative one.
  EXPECT_NE(TopText({"http://x", after, before, 2, {}}).find("0/s out"), std::string::npos);
  const MetricsText none("quire_router_live_requests 0\n");
  EXPECT_NE(TopText({"http://x", none, none, 1, {}}).find("none yet"), std::string::npos);
}

TEST(Top, ShowsWhatAnOperatorMayKnow) {
  const auto details = ParseWorkerDetails(
      "{\"workers\":[{\"target\":\"host:1\",\"phase\":\"ready\",\"index_state\":\"exact\","
      "\"cached_blocks\":30,\"total_blocks\":100,\"stuck\":true},7,{\"target\":\"10.0.0.9:9000\","
      "\"phase\":\"connecting\"}]}");
  ASSERT_TRUE(details.ok());
  ASSERT_EQ(details->size(), 2u);
  const MetricsText metrics(Metrics(1, 1));
  const std::string text = TopText({"http://x", metrics, metrics, 1, *details});
  for (const char* part : {"stuck", "30 % exact", "10.0.0.9:9000", "connecting"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  for (const char* wrong : {"", "[]", "{}", "{\"workers\":1}"}) {
    EXPECT_FALSE(ParseWorkerDetails(wrong).ok()) << wrong;
  }
}

TEST(Top, FitsIntoNarrowTerminals) {
  const MetricsText before(Metrics(1000, 40)), after(Metrics(3500, 40));
  for (const size_t columns : {44u, 50u, 59u, 63u, 64u, 83u, 84u, 100u}) {
    const std::string text = TopText({"http://x", before, after, 2, {}, columns});
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      // "…" is three bytes and one column.
      const size_t marks = line.find("…") == std::string::npos ? 0 : 2;
      EXPECT_LE(line.size() - marks, columns) << line;
    }
    for (const char* part : {"3 live", "host:1", "ready", "25 %", "40 %"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << columns << "\n" << text;
    }
    EXPECT_EQ(text.find("STREAMS") != std::string::npos, columns >= 84);
  }
}

TEST(Top, ManyWorkersAreCutOff) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "quire_router_worker_ready{worker=\"w" + std::to_string(i) + "\"} 1\n";
  }
  const MetricsText metrics(text);
  EXPECT_NE(TopText({"u", metrics, metrics, 1, {}}).find("and 36 more\n"), std::string::npos);
}

TEST(Timeline, TellsAttemptsInTheOrderOfTime) {
  const auto text = TimelineText(
      "{\"request_id\":\"r-1\\u001b\",\"state\":\"ended\",\"reason\":\"finished\",\"model\":"
      "\"demo\","
      "\"tenant\":\"acme\",\"prompt_tokens\":120,\"cached_tokens\":64,\"delivered_tokens\":40,"
      "\"discarded_tokens\":2,\"inexact\":true,\"queued_us\":300,\"first_token_us\":15000,"
      "\"total_us\":900000,\"attempts_total\":5,\"attempts\":[{\"attempt\":1,\"worker\":\"a\","
      "\"target\":\"h:1\",\"end\":\"lost\",\"sent_us\":400,\"admitted_us\":900,"
      "\"first_output_us\":15000,\"over_us\":400000,\"accepted_tokens\":10,\"cached_tokens\":64},"
      "{\"attempt\":2,\"worker\":\"b\",\"target\":\"h:2\",\"end\":\"running\",\"carry_on\":true,"
      "\"sent_us\":401000}]}");
  ASSERT_TRUE(text.ok()) << text.status();
  size_t last = 0;
  for (const char* part :
       {"r-1?, ended: finished", "demo, tenant acme", "120 in", "2 discarded", "other numerics",
        "arrived", "attempt 1 sent to a (h:1)", "admitted, 64", "first output", "first token",
        "attempt 1 over: lost, 10", "attempt 2 carries on at b (h:2)", "ended\n",
        "waited for a worker: 300 µs", "attempts in all: 5"}) {
    const size_t at = text->find(part, last);
    EXPECT_NE(at, std::string::npos) << part << " in\n" << *text;
    if (at != std::string::npos) last = at;
  }
  for (const char* wrong : {"", "[]", "{}", "{\"request_id\":\"\"}", "{\"request_id\":7}"}) {
    EXPECT_FALSE(TimelineText(wrong).ok()) << wrong;
  }
  EXPECT_TRUE(TimelineText("{\"request_id\":\"x\",\"attempts\":7}").ok());
}

TEST(WorkerPart, IsWhatTheWorkersOfThisRequestWrote) {
  const std::string body =
      R"({"request_id":"r","router":"00000000000000aa","request":3,"attempts":[]})";
  const auto attempt = [](int number, const std::string& router, int request) {
    return R"({"router":")" + router + R"(","request":)" + std::to_string(request) +
           R"(,"attempt":)" + std::to_string(number) +
           R"(,"request_id":"r","reason":"stop","cached_tokens":16,"computed_tokens":8,)"
           R"("recomputed_tokens":2,"generated_tokens":5,"preemptions":1,"queue_us":1500,)"
           R"("prefill_us":20000,"decode_us":4000})";
  };
  const std::string text = WorkerPartText(
      body, {attempt(2, "00000000000000aa", 3), attempt(1, "00000000000000aa", 3),
             attempt(1, "00000000000000bb", 3), attempt(1, "00000000000000aa", 4), "rubbish",
             R"({"request_id":"r","router":"00000000000000aa","request":3})"});
  EXPECT_EQ(text,
            "\nat its workers\n"
            "  attempt 1: queue 1.50 ms, prefill 20 ms, decode 4 ms; 8 tokens computed, 16 from "
            "the cache, 5 generated, 2 computed again, preemptions: 1; stop\n"
            "  attempt 2: queue 1.50 ms, prefill 20 ms, decode 4 ms; 8 tokens computed, 16 from "
            "the cache, 5 generated, 2 computed again, preemptions: 1; stop\n");
  EXPECT_EQ(WorkerPartText(body, {}), "");
  EXPECT_EQ(WorkerPartText("rubbish", {attempt(1, "00000000000000aa", 3)}), "");
  EXPECT_FALSE(LinesAbout("/nowhere/at/all", "r").ok());
}

TEST(WorkerPart, LinesAreThoseThatNameTheRequest) {
  const std::string path = testing::TempDir() + "/worker_lines_test.jsonl";
  std::ofstream(path) << R"({"request_id":"a\"b","x":1})"
                      << "\n"
                      << R"({"request_id":"other"})"
                      << "\n"
                      << R"({"request_id":"a\"b","x":2})";
  const auto lines = LinesAbout(path, "a\"b");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->size(), 2u);
  std::remove(path.c_str());
}

TEST(Timeline, AListHasALineForEachRequest) {
  const auto text = RequestListText(
      "{\"requests\":[{\"request_id\":\"a\",\"state\":\"decoding\",\"model\":\"m\",\"attempts\":1},"
      "{\"request_id\":\"b\",\"state\":\"ended\",\"end\":\"failed\",\"total_us\":2000},3]}");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(std::count(text->begin(), text->end(), '\n'), 3);
  EXPECT_NE(text->find("failed"), std::string::npos);
  EXPECT_NE(text->find("2 ms"), std::string::npos);
  EXPECT_FALSE(RequestListText("7").ok());
}

}  // namespace
}  // namespace quire::cli

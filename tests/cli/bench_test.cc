#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/bench/bench_dataset.h"
#include "cli/bench/bench_report.h"

namespace quire::cli {
namespace {

Vocabulary Words() {
  Vocabulary vocabulary = BuiltInWords();
  for (int64_t id = 100; id < 200; ++id) vocabulary.ids.push_back(id);
  return vocabulary;
}

TEST(BenchDataset, TheSameSeedDrawsTheSamePromptsOfTheLengthsAskedFor) {
  DatasetOptions options;
  options.num_prompts = 50;
  options.random_input_len = 40;
  options.random_output_len = 10;
  options.random_prefix_len = 8;
  options.random_range_ratio = 0.5;
  const auto prompts = RandomPrompts(options, Words(), /*as_text=*/false);
  const auto again = RandomPrompts(options, Words(), false);
  options.seed = 1;
  const auto other = RandomPrompts(options, Words(), false);
  ASSERT_EQ(prompts.size(), 50u);
  std::set<size_t> lengths;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(prompts[i].ids, again[i].ids);
    EXPECT_GE(prompts[i].ids.size(), 8u + 20u);
    EXPECT_LE(prompts[i].ids.size(), 8u + 60u);
    EXPECT_GE(prompts[i].output_len, 5);
    EXPECT_LE(prompts[i].output_len, 15);
    EXPECT_TRUE(
        std::equal(prompts[0].ids.begin(), prompts[0].ids.begin() + 8, prompts[i].ids.begin()))
        << "the shared prefix";
    lengths.insert(prompts[i].ids.size());
  }
  EXPECT_GT(lengths.size(), 5u);
  EXPECT_NE(prompts[0].ids, other[0].ids);
  options.random_range_ratio = 0;
  for (const BenchPrompt& prompt : RandomPrompts(options, Words(), /*as_text=*/true)) {
    EXPECT_EQ(std::count(prompt.text.begin(), prompt.text.end(), ' '), 48);
    EXPECT_EQ(prompt.output_len, 10);
  }
}

TEST(BenchDataset, PrefixesRepeatAndTheirRequestsComeMixed) {
  DatasetOptions options;
  options.name = "prefix_repetition";
  options.num_prompts = 40;
  options.num_prefixes = 4;
  options.prefix_len = 16;
  options.suffix_len = 3;
  std::map<std::vector<int64_t>, int> prefixes;
  for (const BenchPrompt& prompt : RandomPrompts(options, Words(), false)) {
    EXPECT_EQ(prompt.ids.size(), 19u);
    ++prefixes[{prompt.ids.begin(), prompt.ids.begin() + 16}];
  }
  ASSERT_EQ(prefixes.size(), 4u);
  for (const auto& [prefix, count] : prefixes) EXPECT_EQ(count, 10);
}

TEST(BenchDataset, FilesAreReadAndWrongOnesNamed) {
  DatasetOptions options;
  options.num_prompts = 3;
  options.name = "custom";
  auto prompts =
      FilePrompts(options, "{\"prompt\":\"a\",\"output_tokens\":7}\n\n{\"prompt\":\"b\"}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 3u) << "as many as are asked for";
  for (const BenchPrompt& prompt : *prompts)
    EXPECT_EQ(prompt.output_len, prompt.text == "a" ? 7 : 256);
  for (const auto& [text, mention] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\":\"a\"}\n{", "line 2"},
           {"{}", "line 1"},
           {"[]", "line 1"},
           {"\n", "no prompt"},
           {"{\"prompt\":\"a\",\"output_tokens\":0}", "output_tokens"}}) {
    EXPECT_NE(StatusMessage(FilePrompts(options, text).status()).find(mention), std::string::npos)
        << text;
  }
  options.name = "sharegpt";
  prompts = FilePrompts(options,
                        "[{\"conversations\":[{\"value\":\"q\"},{\"value\":\"an answer of some "
                        "length\"}]},{\"conversations\":[{\"value\":\"alone\"}]},7]");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ(prompts->front().text, "q");
  EXPECT_EQ(prompts->front().output_len, 6) << "24 bytes";
  EXPECT_FALSE(FilePrompts(options, "{}").ok());
  EXPECT_FALSE(FilePrompts(options, "[]").ok());
}

TEST(BenchArrivals, KeepTheirRateAndRamp) {
  EXPECT_EQ(ArrivalTimes({}, 3), (std::vector<double>{0, 0, 0})) << "all at once";
  ArrivalOptions options;
  options.request_rate = 10;
  const std::vector<double> poisson = ArrivalTimes(options, 5000);
  EXPECT_NEAR(poisson.back(), 500, 40);
  EXPECT_TRUE(std::is_sorted(poisson.begin(), poisson.end()));
  EXPECT_EQ(poisson, ArrivalTimes(options, 5000));
  options.burstiness = 1000;  // nearly even gaps
  const std::vector<double> even = ArrivalTimes(options, 1000);
  EXPECT_NEAR(even[500], 50, 1);
  ArrivalOptions ramp;
  ramp.ramp = "exponential";
  ramp.ramp_start = 1;
  ramp.ramp_end = 100;
  ramp.burstiness = 1000;
  const std::vector<double> faster = ArrivalTimes(ramp, 1000);
  EXPECT_GT(faster[10] - faster[9], 10 * (faster[999] - faster[998]));
}

// A request of `tokens` tokens: the first after 0.1 s, the others 0.02 s apart.
BenchResult Result(double start, int64_t tokens) {
  BenchResult result;
  result.success = true;
  result.start = start;
  result.prompt_tokens = 10;
  result.output_tokens = tokens;
  result.first_token = 0.1;
  for (int64_t i = 0; i < tokens; ++i) {
    result.chunk_times.push_back(start + 0.1 + 0.02 * static_cast<double>(i));
    result.chunk_tokens.push_back(1);
    if (i > 0) result.gaps.push_back(0.02);
  }
  result.latency = 0.1 + 0.02 * static_cast<double>(tokens - 1);
  return result;
}

BenchSettings Settings() {
  BenchSettings settings;
  settings.backend = "openai";
  settings.model = "demo";
  settings.percentile_metrics = {"ttft", "tpot", "itl", "e2el"};
  settings.percentiles = {50, 99};
  settings.num_prompts = 4;
  return settings;
}

TEST(BenchReport, CountsAsVllmDoes) {
  BenchResult failed;
  failed.error = "no";
  const std::vector<BenchResult> results = {Result(0, 11), Result(0.05, 21), Result(2, 1), failed};
  BenchSettings settings = Settings();
  settings.goodput = {{"ttft", 150}, {"e2el", 400}};
  const BenchMetrics metrics = MeasureResults(results, settings, 4);
  EXPECT_EQ(metrics.completed, 3);
  EXPECT_EQ(metrics.failed, 1);
  EXPECT_EQ(metrics.input_tokens, 30);
  EXPECT_EQ(metrics.output_tokens, 33);
  EXPECT_EQ(metrics.good, 2) << "the one of 21 tokens takes 500 ms";
  EXPECT_EQ(metrics.peak_concurrency, 2);
  EXPECT_EQ(metrics.peak_tokens_per_second, 32);
  ASSERT_EQ(metrics.tpot.size(), 2u) << "one token has no time per further token";
  EXPECT_NEAR(metrics.tpot[0], 20, 1e-9) << "(e2e − ttft) ÷ (n − 1)";
  EXPECT_EQ(metrics.itl.size(), 30u);
  const std::string report = BenchReport(metrics, settings);
  for (const char* line : {"============ Serving Benchmark Result ============\n",
                           "Successful requests:                     3         \n",
                           "Failed requests:                         1         \n",
                           "Benchmark duration (s):                  4.00      \n",
                           "Request throughput (req/s):              0.75      \n",
                           "Request goodput (req/s):                 0.50      \n",
                           "Output token throughput (tok/s):         8.25      \n",
                           "Peak output token throughput (tok/s):    32.00     \n",
                           "Total token throughput (tok/s):          15.75     \n",
                           "---------------Time to First Token----------------\n",
                           "Mean TTFT (ms):                          100.00    \n",
                           "-----Time per Output Token (excl. 1st token)------\n",
                           "P99 ITL (ms):                            20.00     \n",
                           "==================================================\n"}) {
    EXPECT_NE(report.find(line), std::string::npos) << line << " in\n" << report;
  }
  settings.detailed = true;
  const json::Object object = BenchJson(metrics, settings, results);
  for (const char* key :
       {"request_throughput", "output_throughput", "total_token_throughput", "mean_ttft_ms",
        "median_tpot_ms", "std_itl_ms", "p99_e2el_ms", "request_goodput", "ttfts", "itls", "errors",
        "max_concurrent_requests"}) {
    EXPECT_NE(json::Find(object, key), nullptr) << key;
  }
  EXPECT_EQ(json::Find(object, "request_rate")->get_string(), "inf");
}

TEST(BenchReport, PercentilesAreLinearBetweenRanksAndNothingIsNothing) {
  const Spread spread = SpreadOf({4, 1, 3, 2}, {0, 50, 90, 100});
  EXPECT_DOUBLE_EQ(spread.mean, 2.5);
  EXPECT_DOUBLE_EQ(spread.median, 2.5);
  EXPECT_NEAR(spread.deviation, 1.118034, 1e-6);
  EXPECT_NEAR(spread.percentiles[2], 3.7, 1e-12);
  EXPECT_DOUBLE_EQ(spread.percentiles[3], 4);
  EXPECT_EQ(SpreadOf({}, {99}).percentiles, std::vector<double>{0});
  const BenchMetrics none = MeasureResults({}, Settings(), 0);
  EXPECT_NE(BenchReport(none, Settings()).find("Successful requests:                     0"),
            std::string::npos);
  EXPECT_TRUE(BenchPlot(none, {}).ends_with("</svg>\n"));
}

TEST(BenchReport, GoodputIsReadAsVllmWritesIt) {
  EXPECT_EQ(ParseGoodput("ttft:200")->second, 200);
  for (const char* wrong : {"ttft", "itl:5", "ttft:", "ttft:-1", ":5", "ttft:x"}) {
    EXPECT_FALSE(ParseGoodput(wrong).ok()) << wrong;
  }
}

TEST(BenchPlot, HasALineInEachPanel) {
  const std::vector<BenchResult> results = {Result(0, 11), Result(0.5, 21)};
  const std::string svg = BenchPlot(MeasureResults(results, Settings(), 2), results);
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("class=\"line\"", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("http", 40), std::string::npos) << "it stands by itself";
}

}  // namespace
}  // namespace quire::cli

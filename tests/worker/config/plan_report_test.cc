#include "worker/plan_report.h"

#include <gtest/gtest.h>

#include "common/json/json.h"
#include "common/runtime/asio_executor.h"

namespace quire {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Four layers of full attention, float32: a page of 16 tokens is 4 layers × (K, V) × 16 × 2 × 32.
PlanReport Report(int64_t usable, int64_t max_model_len) {
  PlanReport report;
  kernels::KvShape shape;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  report.context = 1024;
  report.request.usable_bytes = usable;
  report.request.weight_bytes = 40 * kMib;
  report.request.workspace_bytes = 10 * kMib;
  report.request.kv = kernels::DealLayers({0, 0, 0, 0}, shape);
  report.request.constraint_bytes = kMib;
  report.request.max_num_seqs = 8;
  report.request.max_model_len = max_model_len;
  report.step_weights.always = 40 * kMib;
  report.read_bytes_per_second = 1000.0 * kMib;
  const absl::StatusOr<load::MemoryPlan> plan = load::PlanMemory(report.request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  report.plan = *plan;
  return report;
}

kernels::WeightSource Matrix(int64_t rows, int64_t cols) {
  return {kernels::DType::kF32, rows, cols, nullptr};
}

kernels::StepProgram Program(bool tied) {
  kernels::StepProgram program;
  program.weights.push_back({"embed", {Matrix(100, 8)}, 100, 8});
  program.weights.push_back({"linear", {Matrix(100, 8)}, 100, 8});
  program.weights.push_back({"head", {Matrix(200, 8)}, 200, 8});
  kernels::EmbedOp embed;
  embed.table = 0;
  kernels::LinearOp linear;
  linear.weight = 1;
  kernels::LogitsOp logits;
  logits.head = tied ? 0 : 2;
  program.ops = {embed, linear, logits};
  return program;
}

TEST(PlanReport, AStepReadsNoEmbeddingTableButOneThatIsTheHeadToo) {
  EXPECT_EQ(WeightsOfStep(Program(/*tied=*/false), 400).Of(1), 300);
  EXPECT_EQ(WeightsOfStep(Program(/*tied=*/true), 400).Of(9), 400);
  EXPECT_EQ(WeightsOfStep({}, 7).Of(1), 7) << "nothing is known";
}

// A sequence's state is reported, reads of it and writes are in the speed, and pages for two and
// those that a prompt keeps are in the plan.
TEST(PlanReport, AStateIsReportedAndTakesPages) {
  PlanReport report = Report(1000 * kMib, 1024);
  const std::string without = PlanJson(report);
  EXPECT_EQ(without.find("state_bytes"), std::string::npos);
  const int64_t pages = report.plan.pages_per_sequence;
  const double before = DecodeTokensPerSecond(report, 1, 512);
  const kernels::StateShape state{.heads = 64, .key_dim = 64, .value_dim = 64};
  kernels::KvShape shape;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  kernels::KvLayout& kv = report.request.kv;
  kv = kernels::DealLayers({0, 0, 0, 0, kernels::kNoKeys}, shape, {state});
  ASSERT_EQ(kv.page_bytes, 32768);
  ASSERT_EQ(kv.states.groups, 32);
  report.plan = *load::PlanMemory(report.request);
  const json::Value json = *json::Parse(PlanJson(report));
  EXPECT_EQ(json.at("state_bytes").to_number<int64_t>(), 64 * 64 * 64 * 4);
  EXPECT_EQ(json.at("state_pages").to_number<int64_t>(), 32);
  EXPECT_EQ(json.at("state_interval").to_number<int64_t>(), 8 * 32 * 16);
  EXPECT_EQ(report.plan.pages_per_sequence, pages + (2 + 5) * 32);
  EXPECT_NEAR(before / DecodeTokensPerSecond(report, 1, 512), (41.0 + 2.0) / 41.0,
              1e-3);  // MiB: 40 of weights, one of keys and values for 512
}

// A row reads the experts that it chooses; many rows read nearly all.
TEST(PlanReport, AStepReadsTheExpertsThatItsRowsChoose) {
  kernels::StepProgram program = Program(/*tied=*/true);  // 400 rows of 8 floats
  kernels::MoeOp moe;
  for (int expert = 0; expert < 4; ++expert) {
    const auto id = static_cast<kernels::WeightId>(program.weights.size());
    program.weights.push_back({"gate_up", {Matrix(60, 8)}, 60, 8});
    program.weights.push_back({"down", {Matrix(40, 8)}, 40, 8});
    moe.experts.push_back({id, id + 1});
  }
  moe.rule.chosen = 1;
  program.ops.emplace_back(moe);
  const StepWeights weights = WeightsOfStep(program, 800);
  EXPECT_EQ(weights.experts, 400);
  EXPECT_EQ(weights.always, 400);
  EXPECT_EQ(weights.Of(1), 500);
  EXPECT_EQ(weights.Of(2), 400 + 175);  // 1 − (3/4)²
  EXPECT_GT(weights.Of(64), 795);
  EXPECT_LE(weights.Of(64), 800);
}

TEST(PlanReport, TheLongestContextIsExactlyTheOneWhosePagesFit) {
  const PlanReport report = Report(200 * kMib, 1024);
  for (const int64_t pages : {0, 1, 2, 5, 63, 64, 1000}) {
    const int64_t longest = LongestContext(report.request, pages, 1024);
    EXPECT_EQ(longest, std::min<int64_t>(pages * 16, 1024)) << pages;
  }
}

TEST(PlanReport, SpeedIsWhatReadingWeightsOnceAndEachRowsKeysAllows) {
  const PlanReport report = Report(200 * kMib, 1024);
  const int64_t kv = 64 * report.request.kv.page_bytes;  // of 1,024 tokens
  const double one = DecodeTokensPerSecond(report, 1, 1024);
  EXPECT_NEAR(one, 1000.0 * kMib / (40.0 * kMib + static_cast<double>(kv)), 1e-6);
  EXPECT_GT(DecodeTokensPerSecond(report, 8, 1024), 4 * one) << "weights are read once for all";
  EXPECT_LT(DecodeTokensPerSecond(report, 8, 1024), 8 * one);
}

TEST(PlanReport, ItsLineOfJsonIsConsistent) {
  const PlanReport report = Report(200 * kMib, 1024);
  const auto value = json::Parse(PlanJson(report));
  ASSERT_TRUE(value.ok());
  const json::Object& line = value->get_object();
  const auto number = [&line](const char* name) {
    const json::Value* found = json::Find(line, name);
    return found == nullptr ? -1 : json::AsInt(*found, name).value_or(-1);
  };
  EXPECT_EQ(number("weight_bytes") + number("workspace_bytes") + number("kv_bytes") +
                number("constraint_bytes") + number("free_bytes"),
            number("usable_bytes"));
  EXPECT_EQ(number("largest_batch"), 8);
  EXPECT_GT(number("largest_batch_with_all_memory"), 8);
  EXPECT_EQ(number("largest_context"), 1024);
  const json::Array& fits = json::Find(line, "fits")->get_array();
  ASSERT_EQ(fits.size(), 2u) << "512 and all of it";
  EXPECT_EQ(fits[1].get_object().at("context").to_number<int64_t>(), 1024);
  EXPECT_EQ(fits[1].get_object().at("sequences").to_number<int64_t>(), 8);
}

// DeepSeek-V2-Lite: 27 layers of 512 + 64 numbers in place of 16 heads of 192 and 128.
TEST(PlanReport, LatentsTakeOneRowForEachTokenAndLayer) {
  PlanReport report = Report(200 * kMib, 1024);
  EXPECT_EQ(CacheBytesOfToken(report.request.kv) * report.request.kv.block_size,
            report.request.kv.page_bytes);
  const kernels::KvShape shape{16, 1, 576, kernels::KvType::kBF16, {}, true};
  report.request.kv = kernels::DealLayers(std::vector<int>(27, 0), shape);
  EXPECT_EQ(CacheBytesOfToken(report.request.kv), 576 * 27 * 2);
  kernels::StepProgram program;
  program.buffers = {{"queries", 16 * 576}, {"summed", 16 * 512}, {"attended", 16 * 128}};
  for (int layer = 0; layer < 27; ++layer) {
    kernels::LatentAppendOp append;
    append.heads = 16;
    append.query_dim = 192;
    kernels::LatentAttentionOp attention;
    attention.out = 1;
    kernels::HeadLinearOp values;
    values.in = 1;
    values.out = 2;
    program.ops.insert(program.ops.end(), {append, attention, values});
  }
  report.head_bytes_per_token = HeadBytesOfToken(program, kernels::KvType::kBF16);
  EXPECT_EQ(report.head_bytes_per_token, 27 * 16 * (192 + 128) * 2);
  const auto value = json::Parse(PlanJson(report));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->get_object().at("cache_bytes_per_token").to_number<int64_t>(), 31'104);
  EXPECT_EQ(value->get_object().at("head_bytes_per_token").to_number<int64_t>(), 276'480);
}

TEST(PlanReport, BandwidthIsMeasuredAndNothingIsMeasuredInNoMemory) {
  const RealClock clock;
  EXPECT_GT(MeasureReadBandwidth(clock, 2, 4 * kMib), 1e6);
  EXPECT_EQ(MeasureReadBandwidth(clock, 2, 8), 0);
}

}  // namespace
}  // namespace quire

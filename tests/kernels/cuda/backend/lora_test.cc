// Adapters on the device: as near to the float32 backend with the same adapter as a model without
// one is, the same bits in any company, in graphs and out of them, and rows without an adapter that
// keep theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/golden/adapted_model.h"
#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

// Of the norm of a row's logits, in the median: a router turns small differences into large ones in
// some rows. What A makes is rounded once more on its way to B.
constexpr double kTolerance = 2.5e-2;

double MedianError(const std::vector<Row>& got, const std::vector<Row>& exact) {
  std::vector<double> errors;
  for (size_t i = 0; i < exact.size(); ++i) {
    errors.push_back(std::sqrt(SquaredNorm(Difference(got[i].logits, exact[i].logits)) /
                               SquaredNorm(exact[i].logits)));
  }
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

class CudaLoraTest : public testing::TestWithParam<std::string> {
 protected:
  CudaLoraTest()
      : golden_(ReadGolden(AdapterFolder(GetParam()) + "/golden.json")),
        setup_(AdaptedModel::Of(BaseOf(GetParam()), {GetParam()})) {}
  void SetUp() override { ASSERT_TRUE(setup_.model != nullptr && setup_.adapters.size() == 1); }

  std::unique_ptr<RankDriver> OnDevice(AdaptedModel& setup, int ranks = 1) {
    return setup.Drive({.ranks = ranks, .sequences = 3, .make_backend = MakeDeviceBackend});
  }

  const Golden golden_;
  AdaptedModel setup_;
};

TEST_P(CudaLoraTest, ComputesWhatTheCpuDoes) {
  const auto cpu = setup_.Drive({.sequences = 3});
  const auto device = OnDevice(setup_);
  ASSERT_TRUE(cpu != nullptr && device != nullptr);
  const std::vector<Row> exact = Feed(*cpu, golden_.tokens, {.adapter = 0});
  const std::vector<Row> without = Feed(*cpu, golden_.tokens, {});
  const double own = MedianError(Feed(*device, golden_.tokens, {.adapter = 0}), exact);
  EXPECT_LE(own, kTolerance);
  EXPECT_GE(MedianError(without, exact), 4 * own) << "its adapter changes too little";
}

TEST_P(CudaLoraTest, NoCompanyChangesABit) {
  AdaptedModel plain = AdaptedModel::Of(BaseOf(GetParam()), {});
  const auto alone = OnDevice(plain);
  const auto device = OnDevice(setup_);
  ASSERT_TRUE(alone != nullptr && device != nullptr);
  const std::vector<Row> without = Feed(*alone, golden_.tokens, {});
  ExpectEqual(Feed(*device, golden_.tokens, {}), without);
  const std::vector<Row> with = Feed(*device, golden_.tokens, {.adapter = 0});
  EXPECT_NE(with.back().logits, without.back().logits);
  for (const int adapter : {-1, 0}) {
    const Feeding beside{.chunk = 13, .adapter = adapter, .other_adapter = 0, .beside = true};
    ExpectEqual(Feed(*device, golden_.tokens, beside), adapter < 0 ? without : with);
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, CudaLoraTest, testing::ValuesIn(AdapterFixtures()),
                         [](const auto& info) { return TestName(info.param); });

// Steps that only decode are replayed graphs.
class CudaLoraDecodeTest : public CudaLoraTest {};

TEST_P(CudaLoraDecodeTest, GraphsGiveTheSameBits) {
  const auto device = OnDevice(setup_);
  ASSERT_NE(device, nullptr);
  const std::vector<int32_t> tokens(golden_.tokens.begin(), golden_.tokens.begin() + 9);
  for (const int adapter : {-1, 0}) {
    const std::vector<Row> wanted = Feed(*device, tokens, {.adapter = adapter});
    ExpectEqual(Feed(*device, tokens, {.chunk = 1, .adapter = adapter}), wanted);
    const Feeding beside{.chunk = 1, .adapter = adapter, .other_adapter = 0, .beside = true};
    ExpectEqual(Feed(*device, tokens, beside), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, CudaLoraDecodeTest,
                         testing::Values("llama-all-linear", "qwen35-text", "nemotron-h"),
                         [](const auto& info) { return TestName(info.param); });

// Modules that are cut by rows and by columns.
class CudaLoraRanksTest : public CudaLoraTest {};

TEST_P(CudaLoraRanksTest, TwoComputeTheSame) {
  const auto one = OnDevice(setup_);
  const auto two = OnDevice(setup_, 2);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  const std::vector<Row> whole = Feed(*two, golden_.tokens, {.adapter = 0});
  EXPECT_LE(MedianError(whole, Feed(*one, golden_.tokens, {.adapter = 0})), kTolerance);
  ExpectEqual(
      Feed(*two, golden_.tokens, {.chunk = 9, .adapter = 0, .other_adapter = 0, .beside = true}),
      whole);
}

INSTANTIATE_TEST_SUITE_P(Adapters, CudaLoraRanksTest,
                         testing::Values("llama-all-linear", "qwen35-text", "gemma3-regex",
                                         "nemotron-h"),
                         [](const auto& info) { return TestName(info.param); });

// A step beyond tiles of eight rows: many rows of two adapters and of none, in one step.
TEST(CudaLora, AdaptersOfOneStepDoNotMeet) {
  const std::string name = "llama-all-linear";
  AdaptedModel both = AdaptedModel::Of(BaseOf(name), {name});
  auto louder = PeftAdapter::Open(Louder(name), {}, kAdapterRank);
  ASSERT_TRUE(louder.ok()) << louder.status();
  both.adapters.push_back(*std::move(louder));
  const auto device = both.Drive({.sequences = 9, .make_backend = MakeDeviceBackend});
  ASSERT_NE(device, nullptr);
  const Golden golden = ReadGolden(AdapterFolder(name) + "/golden.json");
  const std::span<const int32_t> tokens(golden.tokens.data(), 20);
  const auto alone = [&](int adapter) { return device->Step({{0, 0, tokens, adapter}}); };
  const std::vector<std::vector<Row>> wanted{alone(-1), alone(0), alone(1)};
  EXPECT_NE(wanted[1].back().logits, wanted[2].back().logits);
  std::vector<RankDriver::Piece> pieces;
  for (int i = 0; i < 9; ++i) pieces.push_back({i, 0, tokens, i * 2 % 3 - 1});
  const std::vector<Row> rows = device->Step(pieces);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto adapter = static_cast<size_t>(pieces[i / tokens.size()].adapter + 1);
    ASSERT_EQ(rows[i].logits, wanted[adapter][i % tokens.size()].logits) << i;
  }
}

TEST(CudaLora, ARowWithAnEmptySlotEndsTheProgram) {
  const std::string name = "llama-all-linear";
  AdaptedModel setup = AdaptedModel::Of(BaseOf(name), {name});
  const auto device = setup.Drive({.sequences = 1, .make_backend = MakeDeviceBackend});
  ASSERT_NE(device, nullptr);
  const std::vector<int32_t> tokens{1, 2, 3};
  device->Step({{0, 0, tokens, 1}});
  EXPECT_EQ(device->program(0).Failure(), "a row names an adapter's slot that holds none");
}

}  // namespace
}  // namespace quire::golden

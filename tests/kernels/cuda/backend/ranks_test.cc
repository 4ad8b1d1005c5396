// Tensor-parallel ranks on emulated devices: as near to one rank as bfloat16 is, equal samples on
// all, and the same bits in every batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

constexpr size_t kTokens = 30;
// Of the norm of all logits: sums of rounded parts differ from a rounded sum.
constexpr double kTolerance = 2.0e-2;

std::string Folder(const std::string& name) {
  return SourceFolder() + "/tests/golden/models/" + name;
}

// A fixture; "whole experts of" it divides experts, not the width of each.
class CudaRanksTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    constexpr std::string_view kWhole = "whole experts of ";
    std::string name = GetParam();
    whole_experts_ = name.starts_with(kWhole);
    if (whole_experts_) name = name.substr(kWhole.size());
    model::LoadOptions load;
    load.with_text = false;
    auto model = model::LoadModel(Folder(name), load);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    golden_ = ReadGolden(Folder(name) + "/golden.json");
  }

  std::unique_ptr<model::Model> model_;
  Golden golden_;
  bool whole_experts_ = false;
};

TEST_P(CudaRanksTest, TwoComputeWhatOneDoesInAnyBatch) {
  const std::span<const int32_t> tokens(golden_.tokens.data(), kTokens);
  const auto one = DriveRanks(*model_, 1);
  const auto two = DriveRanks(*model_, 2, whole_experts_);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  const std::vector<Row> wanted = one->Step({{0, 0, tokens}});
  const std::vector<Row> whole = two->Step({{0, 0, tokens}});
  double off = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < kTokens; ++i) {
    for (size_t id = 0; id < wanted[i].logits.size(); ++id) {
      off += std::pow(static_cast<double>(whole[i].logits[id]) - wanted[i].logits[id], 2);
      all += std::pow(static_cast<double>(wanted[i].logits[id]), 2);
    }
  }
  EXPECT_LE(std::sqrt(off / all), kTolerance);
  // In chunks, beside another sequence that stands before it in every step.
  const std::vector<int32_t> others(tokens.rbegin(), tokens.rend());
  for (size_t begin = 0; begin < kTokens; begin += 11) {
    const size_t count = std::min<size_t>(11, kTokens - begin);
    const std::vector<Row> rows = two->Step(
        {{1, static_cast<int>(begin), std::span<const int32_t>(others).subspan(begin, count)},
         {0, static_cast<int>(begin), tokens.subspan(begin, count)}});
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(rows[count + i].logits, whole[begin + i].logits) << "position " << begin + i;
      ASSERT_EQ(rows[count + i].token, whole[begin + i].token) << "position " << begin + i;
    }
  }
}

TEST_P(CudaRanksTest, AFailedCollectiveEndsTheStep) {
  const auto two = DriveRanks(*model_, 2, whole_experts_);
  ASSERT_NE(two, nullptr);
  two->Abort();
  EXPECT_EQ(two->StepOfFailedGroup(std::span(golden_.tokens).first(4)),
            kernels::CommFailure::kAborted);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(two->program(rank).Failure(), "a collective failed");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaRanksTest,
                         testing::Values("llama3-sharded-gqa4", "gemma3-pattern", "opt-untied",
                                         "qwen3-moe", "gpt-oss-mxfp4", "lfm2", "qwen35",
                                         "nemotron-h", "olmo2", "cohere-norms", "gemma4",
                                         "gemma4-e", "whole experts of qwen3-moe",
                                         "whole experts of gpt-oss-mxfp4",
                                         "whole experts of gemma4-moe",
                                         "whole experts of mixtral"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::golden

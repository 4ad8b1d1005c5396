// Multi-head latent attention on the device, in the models that have it: within what bfloat16 loses
// of the CPU's float32, the same bits in any chunk, with pages of every type, and on two ranks.
//
// They run without their experts here, whose routers make more of what rounding loses;
// parity_test.cc has the whole models.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

using kernels::KvType;

constexpr double kTolerance = 1.5e-2;  // of the norm of all logits, as parity_test.cc has it
constexpr double kToleranceOfRanks = 2.0e-2;
constexpr double kShareOfCpusLoss = 1.25;

// Without its mixtures; what they would add to is there without them.
std::unique_ptr<model::Model> OpenWithoutExperts(const std::string& name) {
  std::unique_ptr<model::Model> model = OpenFixture(name);
  if (model == nullptr) return nullptr;
  const size_t removed = std::erase_if(model->program.ops, [](const kernels::Op& op) {
    const auto* mixture = std::get_if<kernels::MoeOp>(&op);
    EXPECT_TRUE(mixture == nullptr || mixture->accumulate);
    return mixture != nullptr;
  });
  EXPECT_EQ(removed, 1u) << name;
  return model;
}

class CudaLatentModels : public testing::TestWithParam<const char*> {
 protected:
  CudaLatentModels() : model_(OpenWithoutExperts(GetParam())), golden_(GoldenOf(GetParam())) {}
  std::span<const int32_t> Tokens(size_t count) const {
    return std::span(golden_.tokens).first(count);
  }

  std::unique_ptr<model::Model> model_;
  Golden golden_;
};

TEST_P(CudaLatentModels, LoseWhatBfloat16LosesInAnyChunk) {
  ASSERT_NE(model_, nullptr);
  const auto cuda = DriveDevice(*model_);
  const auto cpu = DriveCpu(*model_);
  ASSERT_TRUE(cuda != nullptr && cpu != nullptr);
  const auto tokens = Tokens(48);
  const std::vector<Row> whole = RunAll(*cuda, tokens, 0);
  const double error = RelativeError(whole, RunAll(*cpu, tokens, 0));
  EXPECT_LE(error, kTolerance);
  RecordProperty("error", std::to_string(error));
  for (const size_t chunk : {size_t{1}, size_t{9}}) {
    const auto few = tokens.first(20);
    const std::vector<Row> pieces = RunAll(*cuda, few, chunk);
    for (size_t i = 0; i < few.size(); ++i) {
      ASSERT_EQ(pieces[i].logits, whole[i].logits) << "position " << i << " in chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLatentModels,
                         testing::Values("deepseek-v2", "deepseek-v2-lite", "deepseek-v3",
                                         "glm4-moe-lite", "gguf-deepseek2", "gguf-deepseek2-lite"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return TestName(info.param);
                         });

// Two ranks, each with its heads and all latents, of the first layer alone, which is dense.
class CudaLatentRanks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path from =
        SourceFolder() + "/tests/golden/models/" + std::string(GetParam());
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("latent_ranks_" + from.filename().string());
    std::filesystem::create_directories(folder_);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      std::filesystem::copy(entry.path(), folder_ / entry.path().filename(),
                            std::filesystem::copy_options::overwrite_existing);
    }
    std::ifstream config(from / "config.json");
    std::stringstream text;
    text << config.rdbuf();
    std::string changed = text.str();
    const std::string layers = "\"num_hidden_layers\": 2";
    ASSERT_NE(changed.find(layers), std::string::npos);
    changed.replace(changed.find(layers), layers.size(), "\"num_hidden_layers\": 1");
    std::ofstream(folder_ / "config.json", std::ios::trunc) << changed;
    model::LoadOptions options;
    options.with_text = false;
    auto model = model::LoadModel(folder_.string(), options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::unique_ptr<model::Model> model_;
};

TEST_P(CudaLatentRanks, ComputeWhatOneDoesInAnyBatch) {
  const Golden golden = GoldenOf(GetParam());
  const auto tokens = std::span(golden.tokens).first(24);
  const auto one = DriveRanks(*model_, 1);
  const auto two = DriveRanks(*model_, 2);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  const std::vector<Row> whole = two->Step({{0, 0, tokens}});
  EXPECT_LE(RelativeError(whole, one->Step({{0, 0, tokens}})), kToleranceOfRanks);
  const std::vector<int32_t> others(tokens.rbegin(), tokens.rend());
  for (size_t begin = 0; begin < tokens.size(); begin += 8) {
    const std::vector<Row> rows =
        two->Step({{1, static_cast<int>(begin), std::span<const int32_t>(others).subspan(begin, 8)},
                   {0, static_cast<int>(begin), tokens.subspan(begin, 8)}});
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(rows[8 + i].logits, whole[begin + i].logits) << "position " << begin + i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLatentRanks,
                         testing::Values("deepseek-v2", "deepseek-v2-lite"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return TestName(info.param);
                         });

class CudaLatentPages : public testing::TestWithParam<KvType> {};

TEST_P(CudaLatentPages, LoseNoMoreThanTheCpusAndBfloat16) {
  const auto model = OpenWithoutExperts("deepseek-v2-lite");
  ASSERT_NE(model, nullptr);
  DriverOptions options;
  options.kv_type = GetParam();
  const auto cuda = DriveDevice(*model, options);
  const auto cpu = DriveCpu(*model, options);
  const auto float32 = DriveCpu(*model);
  ASSERT_TRUE(cuda != nullptr && cpu != nullptr && float32 != nullptr);
  const Golden golden = GoldenOf("deepseek-v2-lite");
  const auto tokens = std::span(golden.tokens).first(40);
  const std::vector<Row> exact = RunAll(*float32, tokens, 0);
  const std::vector<Row> got = RunAll(*cuda, tokens, 0);
  const double loss = kShareOfCpusLoss * RelativeError(RunAll(*cpu, tokens, 0), exact);
  EXPECT_LE(RelativeError(got, exact), std::sqrt(loss * loss + kTolerance * kTolerance));
  const std::vector<Row> one_by_one = RunAll(*cuda, tokens.first(18), 1);
  for (size_t i = 0; i < one_by_one.size(); ++i) {
    ASSERT_EQ(one_by_one[i].logits, got[i].logits) << "position " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaLatentPages, testing::Values(KvType::kF16, KvType::kFp8),
                         [](const testing::TestParamInfo<KvType>& info) {
                           return kernels::KvTypeName(info.param);
                         });

}  // namespace
}  // namespace quire::golden

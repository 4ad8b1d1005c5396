// Pages of float16 and fp8 on the device: every family loses what the CPU backend loses with the
// same pages and what bfloat16 does, and chunks change no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

using kernels::KvType;

// Of the norm of all logits: what bfloat16 loses (parity_test.cc). The pages' own loss comes on top
// of it, independent of it; it is that of the CPU backend, whose pages have the same numbers, but
// for codes that fall to the other side.
constexpr double kOfBfloat16 = 1.5e-2;
constexpr double kShareOfCpusLoss = 1.25;

class CudaKvTypesTest : public testing::TestWithParam<std::tuple<const char*, KvType>> {
 protected:
  CudaKvTypesTest()
      : model_(OpenFixture(std::get<0>(GetParam()))), golden_(GoldenOf(std::get<0>(GetParam()))) {
    options_.kv_type = std::get<1>(GetParam());
  }

  std::unique_ptr<model::Model> model_;
  Golden golden_;
  DriverOptions options_;
};

TEST_P(CudaKvTypesTest, LosesNoMoreThanTheCpusPagesAndBfloat16) {
  ASSERT_NE(model_, nullptr);
  const std::unique_ptr<Driver> cuda = DriveDevice(*model_, options_);
  const std::unique_ptr<Driver> cpu = DriveCpu(*model_, options_);
  const std::unique_ptr<Driver> float32 = DriveCpu(*model_);
  ASSERT_TRUE(cuda != nullptr && cpu != nullptr && float32 != nullptr);
  const std::span<const int32_t> tokens(golden_.tokens.data(), 40);
  const std::vector<Row> exact = RunAll(*float32, tokens, 0);
  const std::vector<Row> got = RunAll(*cuda, tokens, 0);
  const double loss = kShareOfCpusLoss * RelativeError(RunAll(*cpu, tokens, 0), exact);
  const double error = RelativeError(got, exact);
  EXPECT_LE(error, std::sqrt(loss * loss + kOfBfloat16 * kOfBfloat16)) << loss;
  RecordProperty("of_bound",
                 std::to_string(error / std::sqrt(loss * loss + kOfBfloat16 * kOfBfloat16)));
  RecordProperty("error", std::to_string(error));
  // Decode, one token at a time, reads what prefill wrote.
  const size_t few = 18;
  const std::vector<Row> one_by_one = RunAll(*cuda, tokens.first(few), 1);
  for (size_t i = 0; i < few; ++i) {
    ASSERT_EQ(one_by_one[i].logits, got[i].logits) << "position " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaKvTypesTest,
                         testing::Combine(testing::Values("llama3-gqa8-bias", "mistral-window",
                                                          "qwen2-untied", "qwen3-tied-gqa8",
                                                          "gemma3-pattern", "gguf-gemma3",
                                                          "opt-pre-norm"),
                                          testing::Values(KvType::kF16, KvType::kFp8)),
                         [](const testing::TestParamInfo<std::tuple<const char*, KvType>>& info) {
                           return TestName(std::get<0>(info.param)) + "_" +
                                  kernels::KvTypeName(std::get<1>(info.param));
                         });

TEST(CudaKvTypes, Float32PagesAreRefused) {
  const std::unique_ptr<model::Model> model = OpenFixture("qwen2-untied");
  ASSERT_NE(model, nullptr);
  const std::unique_ptr<kernels::Backend> backend = MakeDeviceBackend();
  kernels::KvShape shape = backend->PageShape(model->program, 16);
  kernels::ProgramOptions options;
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kF16, KvType::kFp8}) {
    shape.type = type;
    options.kv = kernels::DealLayers(model->program.layer_windows, shape);
    EXPECT_EQ(backend->Refusal(model->program, options).empty(), type != KvType::kF32);
  }
}

}  // namespace
}  // namespace quire::golden

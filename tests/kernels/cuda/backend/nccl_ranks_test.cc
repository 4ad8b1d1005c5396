// Ranks that sum over NCCL, by a library that stands in for it: the bits of ranks that sum over the
// host, and an end when the library errs.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"
#include "tests/kernels/cuda/nccl/fake_nccl_file.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

namespace cuda = kernels::cuda;

constexpr size_t kTokens = 20;
constexpr const char* kFixture = "gemma3-pattern";  // norms on both sides

class CudaNcclRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    model::LoadOptions load;
    load.with_text = false;
    const std::string folder = SourceFolder() + "/tests/golden/models/" + kFixture;
    auto model = model::LoadModel(folder, load);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    golden_ = ReadGolden(folder + "/golden.json");
    ASSERT_EQ(fake_.Open(), "");
  }
  std::unique_ptr<RankDriver> Drive(bool over_nccl) {
    RankDriver::Options options;
    options.ranks = 2;
    options.make_backend = [this, over_nccl] {
      cuda::CudaOptions device;
      device.architecture = device.description = "emulated";
      if (over_nccl) device.nccl = fake_.library();
      return cuda::MakeCudaBackend(
          std::make_unique<cuda::emulate::EmulatedRuntime>(7, cuda::emulate::Checks::kNone),
          device);
    };
    std::string error;
    auto driver = RankDriver::Make(*model_, options, error);
    EXPECT_NE(driver, nullptr) << error;
    return driver;
  }

  std::unique_ptr<model::Model> model_;
  Golden golden_;
  cuda::test::FakeNcclFile fake_;
};

TEST_F(CudaNcclRanksTest, GiveTheBitsOfRanksThatSumOverTheHost) {
  const std::span<const int32_t> tokens(golden_.tokens.data(), kTokens);
  const auto host = Drive(false);
  const auto nccl = Drive(true);
  ASSERT_TRUE(host != nullptr && nccl != nullptr);
  const std::vector<Row> wanted = host->Step({{0, 0, tokens}});
  const std::vector<Row> got = nccl->Step({{0, 0, tokens}});
  for (size_t i = 0; i < kTokens; ++i) {
    ASSERT_EQ(got[i].logits, wanted[i].logits) << "position " << i;
    ASSERT_EQ(got[i].token, wanted[i].token) << "position " << i;
  }
}

TEST_F(CudaNcclRanksTest, AnErrorOfTheLibraryEndsTheStep) {
  const auto nccl = Drive(true);
  ASSERT_NE(nccl, nullptr);
  cuda::test::FakeNcclOrders orders;
  orders.call_error_at = 0;
  fake_.Order(orders);
  nccl->StepOfFailedGroup(std::span(golden_.tokens).first(4));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(nccl->program(rank).Failure(),
              "a collective failed: ncclAllGather: something else (3)");
  }
}

TEST_F(CudaNcclRanksTest, AGroupThatDoesNotComeTogetherIsAFailedDevice) {
  cuda::test::FakeNcclOrders orders;
  orders.init_error = 2;
  fake_.Order(orders);
  const auto nccl = Drive(true);
  ASSERT_NE(nccl, nullptr);
  for (const int rank : {0, 1}) {
    const std::string failure = nccl->program(rank).Failure();
    EXPECT_NE(failure.find("ncclCommInitRankConfig: "), std::string::npos) << failure;
    EXPECT_EQ(failure.find('\n'), std::string::npos) << failure;
  }
}

}  // namespace
}  // namespace quire::golden

// The CUDA backend, emulated: every family's logits are those of the float32 reference within what
// bfloat16 loses.
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

// Of the norm of all logits.
constexpr double kTolerance = 1.5e-2;
constexpr double kToleranceOfLongRope = 2e-2;  // its factor of cosines makes scores larger
constexpr double kShareOfReferencesOwn = 1.5;

double Largest(const std::vector<float>& a) {
  double largest = 0.0;
  for (const float x : a) {
    const double size = std::abs(static_cast<double>(x));
    largest = size <= largest ? largest : size;  // NaN wins
  }
  return largest;
}

class CudaParityTest : public testing::TestWithParam<std::string> {
 protected:
  CudaParityTest() : model_(OpenFixture(GetParam())), golden_(GoldenOf(GetParam())) {}

  std::unique_ptr<model::Model> model_;
  Golden golden_;
};

// Against the float32 backend over all rows, and against what the reference's own bfloat16 run
// loses in the rows that are kept of it.
TEST_P(CudaParityTest, LosesWhatBfloat16Loses) {
  ASSERT_NE(model_, nullptr);
  const std::unique_ptr<Driver> cuda = DriveDevice(*model_);
  const std::unique_ptr<Driver> cpu = DriveCpu(*model_);
  ASSERT_TRUE(cuda != nullptr && cpu != nullptr);
  const std::vector<Row> exact = RunAll(*cpu, golden_.tokens, 0);
  const std::vector<Row> got = RunAll(*cuda, golden_.tokens, 0);
  double off = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    off += SquaredNorm(Difference(got[i].logits, exact[i].logits));
    all += SquaredNorm(exact[i].logits);
    // Sampled on the device, from the logits that it holds.
    const auto best = std::max_element(got[i].logits.begin(), got[i].logits.end());
    ASSERT_EQ(got[i].token, best - got[i].logits.begin());
  }
  const bool longrope = GetParam().find("longrope") != std::string::npos;
  EXPECT_LE(std::sqrt(off / all), longrope ? kToleranceOfLongRope : kTolerance);
  double own = 0.0;
  double reference = 0.0;
  for (const GoldenRow& row : golden_.rows) {
    own += Largest(Difference(got[static_cast<size_t>(row.position)].logits, row.logits));
    reference += row.bfloat16_error;
  }
  EXPECT_LE(own, kShareOfReferencesOwn * reference);
}

// Full, sliding and grouped attention, norms of heads, norms of both sides.
class CudaChunksTest : public CudaParityTest {};

TEST_P(CudaChunksTest, ChangeNoBit) {
  ASSERT_NE(model_, nullptr);
  const std::unique_ptr<Driver> cuda = DriveDevice(*model_);
  ASSERT_NE(cuda, nullptr);
  const std::span<const int32_t> tokens(golden_.tokens.data(), 22);
  const std::vector<Row> whole = RunAll(*cuda, tokens, 0);
  for (const size_t chunk : {size_t{1}, size_t{9}}) {
    const std::vector<Row> pieces = RunAll(*cuda, tokens, chunk);
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(whole[i].logits, pieces[i].logits) << "position " << i << " in chunks of " << chunk;
    }
  }
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) { return TestName(info.param); }

// Computed on the CPU alone so far: mixtures of experts, norms over all heads together, layer norms
// of heads, queries that grow, layers whose heads differ, latent attention, recurrent layers.
bool IsRefused(const std::string& name) {
  const char* const kRefused[] = {"moe",        "mixtral", "gpt-oss",   "olmo", "cohere-norms",
                                  "ministral3", "gemma4",  "deepseek",  "lfm2", "granite-hybrid",
                                  "qwen3-next", "qwen35",  "nemotron-h"};
  return std::ranges::any_of(
      kRefused, [&name](const char* one) { return name.find(one) != std::string::npos; });
}

// Part of these heads turns, 12 elements, which no kernel here cuts; the other's reference is of a
// context that the driver's own does not choose.
bool IsLeftOut(const std::string& name) {
  return name == "gguf-phi4-longrope" || name == "phi3-longrope-short";
}

std::vector<std::string> DeviceFixtures() {
  std::vector<std::string> names = Fixtures();
  names.erase(std::remove_if(names.begin(), names.end(), IsLeftOut), names.end());
  names.erase(std::remove_if(names.begin(), names.end(), IsRefused), names.end());
  return names;
}

// The refusal is one line that says what to do.
TEST(CudaParity, RefusesByNameWhatItHasNoKernelFor) {
  int refused = 0;
  for (const std::string& name : Fixtures()) {
    if (!IsRefused(name)) continue;
    const std::unique_ptr<model::Model> model = OpenFixture(name);
    ASSERT_NE(model, nullptr);
    std::string error;
    DriverOptions options;
    options.make_backend = MakeDeviceBackend;
    EXPECT_EQ(Driver::Make(*model, options, error), nullptr) << name;
    EXPECT_NE(error.find("no kernel on this device yet; use --device cpu"), std::string::npos)
        << error;
    ++refused;
  }
  EXPECT_GE(refused, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaParityTest, testing::ValuesIn(DeviceFixtures()), NameOf);
INSTANTIATE_TEST_SUITE_P(Models, CudaChunksTest,
                         testing::Values("mistral-window", "gemma3-pattern", "opt-pre-norm"),
                         NameOf);

}  // namespace
}  // namespace quire::golden

// Devices whose blocks have less shared memory: the same bits, and a line where it is too little.
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

using kernels::cuda::emulate::Checks;
using kernels::cuda::emulate::EmulatedRuntime;

std::unique_ptr<kernels::Backend> MakeSmallBackend() {
  auto runtime = std::make_unique<EmulatedRuntime>(5, Checks::kNone);
  runtime->LimitShared(kernels::cuda::runtime::kLeastSharedBytes);
  return kernels::cuda::MakeCudaBackend(
      std::move(runtime), {"emulated", "small grid", {.warm_up = false, .margin_bytes = 0}});
}

TEST(CudaSmallDeviceTest, EveryFamilyHasTheBitsOfALargeOne) {
  for (const char* name : {"llama3-gqa8-bias", "mistral-window", "qwen2-untied", "qwen3-tied-gqa8",
                           "gemma3-pattern", "gemma4", "gguf-llama-all-types", "opt-pre-norm"}) {
    SCOPED_TRACE(name);
    const auto model = OpenFixture(name);
    ASSERT_NE(model, nullptr);
    // More rows than the widest tile but one: its ring is what differs.
    std::vector<int32_t> tokens = GoldenOf(name).tokens;
    for (size_t i = 0; tokens.size() < 70; ++i) tokens.push_back(tokens[i]);
    DriverOptions options;
    options.make_backend = MakeSmallBackend;
    const auto small = Drive(*model, options);
    const auto large = DriveDevice(*model);
    ASSERT_TRUE(small != nullptr && large != nullptr);
    const std::vector<Row> got = RunAll(*small, tokens, 0);
    const std::vector<Row> expected = RunAll(*large, tokens, 0);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token, expected[i].token) << i;
      ASSERT_EQ(got[i].logits, expected[i].logits) << i;
    }
  }
}

TEST(CudaSmallDeviceTest, ADeviceThatIsTooSmallIsRefusedInALine) {
  EmulatedRuntime runtime(5, Checks::kNone);
  EXPECT_EQ(kernels::cuda::DeviceRefusal(runtime), "");
  runtime.LimitShared(kernels::cuda::runtime::kLeastSharedBytes);
  EXPECT_EQ(kernels::cuda::DeviceRefusal(runtime), "");
  runtime.LimitShared(64 << 10);
  EXPECT_EQ(kernels::cuda::DeviceRefusal(runtime),
            "its blocks have 65536 bytes of shared memory, 101376 are needed; take a device of "
            "compute capability 8.0 or newer, or --device cpu");
}

}  // namespace
}  // namespace quire::golden

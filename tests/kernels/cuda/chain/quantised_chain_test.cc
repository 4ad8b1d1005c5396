// As steps_chain_test.cc, of a model whose matrices are quantised in every type that is served.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;

// Quantised products bring their weights before the kernels in front of them have ended, too. A
// violation ends the step: its logits are none.
TEST(CudaChainTest, ProductsOfEveryTypeOfWeightAreClean) {
  model::LoadOptions load;
  load.with_text = false;
  const std::string folder = golden::SourceFolder() + "/tests/golden/models/gguf-llama-all-types";
  auto model = model::LoadModel(folder + "/model.gguf", load);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> tokens = golden::ReadGolden(folder + "/golden.json").tokens;
  std::vector<std::vector<golden::Row>> rows;
  for (const Checks checks : {Checks::kNone, Checks::kAll}) {
    golden::DriverOptions options;
    options.max_positions = 32;
    options.make_backend = [checks] {
      return MakeCudaBackend(
          std::make_unique<EmulatedRuntime>(6, checks),
          {"emulated", "emulated grid", {.graphs = true, .warm_up = false, .margin_bytes = 0}});
    };
    std::string error;
    const auto driver = golden::Driver::Make(**model, options, error);
    ASSERT_NE(driver, nullptr) << error;
    const int32_t last[] = {2};
    const int32_t next[] = {0};
    rows.push_back(driver->Feed(std::span(tokens).first(3), last));
    rows.push_back(driver->Feed(std::span(tokens).subspan(3, 1), next));
  }
  EXPECT_EQ(rows[2][0].logits, rows[0][0].logits);
  EXPECT_EQ(rows[3][0].logits, rows[1][0].logits);
  EXPECT_GE(rows[3][0].token, 0);
}

}  // namespace
}  // namespace quire::kernels::cuda::test

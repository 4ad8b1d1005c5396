// Launches of a decode step, layer by layer, held to kernels/cuda/launches.csv: each costs a gap
// that no kernel can make good.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/kernels/cuda/backend/rows.h"

namespace quire::golden {
namespace {

namespace cuda = kernels::cuda;

// Notes what is launched.
class NotingRuntime : public cuda::emulate::EmulatedRuntime {
 public:
  explicit NotingRuntime(std::vector<std::string>& names)
      : EmulatedRuntime(1, cuda::emulate::Checks::kNone), names_(names) {}
  Error Launch(StreamId stream, const cuda::runtime::KernelHandle& kernel,
               const cuda::runtime::LaunchShape& shape) override {
    names_.emplace_back(kernel.name);
    return EmulatedRuntime::Launch(stream, kernel, shape);
  }

 private:
  std::vector<std::string>& names_;
};

// Of a step of one row that decodes and is sampled.
std::vector<std::string> LaunchesOfDecode(const std::string& fixture, size_t& layers) {
  std::vector<std::string> names;
  const auto model = OpenFixture(fixture);
  if (model == nullptr) return names;
  layers = model->program.layer_windows.size();
  DriverOptions options;
  options.make_backend = [&names] {
    return cuda::MakeCudaBackend(
        std::make_unique<NotingRuntime>(names),
        {"emulated", "emulated grid", {.graphs = false, .warm_up = false, .margin_bytes = 0}});
  };
  const auto driver = Drive(*model, options);
  if (driver == nullptr) return names;
  const std::vector<int32_t> tokens = GoldenOf(fixture).tokens;
  const int32_t last[] = {0};
  driver->Feed(std::span(tokens).first(8), last);
  names.clear();
  driver->Feed(std::span(tokens).subspan(8, 1), last);
  return names;
}

struct Recorded {
  std::string family, model;
  size_t per_layer = 0;
  int64_t outside = 0;
};

std::vector<Recorded> ReadRecorded() {
  std::ifstream file(SourceFolder() + "/kernels/cuda/launches.csv");
  std::vector<Recorded> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    Recorded& row = rows.emplace_back();
    std::string per_layer, outside;
    std::getline(cells, row.family, ',');
    std::getline(cells, row.model, ',');
    std::getline(cells, per_layer, ',');
    std::getline(cells, outside, ',');
    row.per_layer = std::stoul(per_layer);
    row.outside = std::stoll(outside);
  }
  return rows;
}

// A layer has one append to its pages, or one convolution, which marks it, and ends before the next
// layer's norm; an mlp that is a layer of its own belongs to the one before it. The last layer ends
// where rows are gathered. Where layers differ, the one with the most launches counts.
TEST(CudaLaunchesTest, OfALayerAreAsManyAsRecorded) {
  const std::vector<Recorded> recorded = ReadRecorded();
  EXPECT_GE(recorded.size(), 7u) << "every family has a row, and one of quantised weights";
  for (const Recorded& row : recorded) {
    SCOPED_TRACE(row.family + ", " + row.model);
    size_t layers = 0;
    const std::vector<std::string> names = LaunchesOfDecode(row.model, layers);
    std::vector<size_t> appends;
    std::string all;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool marks = names[i].rfind("rope_append", 0) == 0 ||
                         names[i].rfind("latent_append", 0) == 0 ||
                         names[i].rfind("causal_conv", 0) == 0;
      if (marks) appends.push_back(i);
      all += " " + names[i];
    }
    if (row.family == "nemotron_h") layers = appends.size();
    ASSERT_EQ(appends.size(), layers) << all;
    ASSERT_GE(layers, 2u);
    size_t first = 0;  // behind the embedding
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].rfind("embedding", 0) == 0) first = i + 1;
    }
    const size_t before = appends.front() - first;
    const auto gather = static_cast<size_t>(std::ranges::find(names, "copy_rows") - names.begin());
    ASSERT_LT(gather, names.size()) << all;
    appends.push_back(gather + before);
    size_t per_layer = 0;
    for (size_t i = 1; i <= layers; ++i) {
      per_layer = std::max(per_layer, appends[i] - appends[i - 1]);
    }
    EXPECT_EQ(per_layer, row.per_layer) << all;
    EXPECT_EQ(names.size() - (appends.back() - appends.front()), row.outside) << all;
  }
}

}  // namespace
}  // namespace quire::golden

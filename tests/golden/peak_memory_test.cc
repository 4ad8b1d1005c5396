// Loading never holds the weights twice: the peak of resident memory while Gemma 3 270M is packed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

// A line "VmHWM:   123 kB" of the kernel's account of this process, in bytes; −1 when it is not
// there.
int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

TEST(PeakMemorySlowTest, IsBelowTheWeightsOnceAndAFew) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/.cache/models/gemma3-270m/model.gguf";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "gemma3-270m has not been fetched: ./dev model gemma3-270m";
  }
  const int64_t before = StatusBytes("VmRSS");
  auto model = model::LoadModel(path, {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string error;
  const std::unique_ptr<kernels::Backend> backend = kernels::MakeCpuBackend({.threads = 2}, error);
  ASSERT_NE(backend, nullptr) << error;
  const kernels::StepProgram& program = (*model)->program;
  kernels::ProgramOptions options;
  options.kv = kernels::DealLayers(program.layer_windows,
                                   {16, program.kv_heads, program.head_dim, kernels::KvType::kF32});
  options.page_count = 64;
  options.max_tokens = 64;
  options.max_rows = 4;
  options.max_samples = 4;
  options.release_source = [&](const void* data, int64_t bytes) {
    (*model)->ReleaseSource(data, bytes);
  };
  // Forgets earlier peaks of this process.
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
  const std::unique_ptr<kernels::LoadedProgram> loaded = backend->Load(program, options);
  const int64_t peak = StatusBytes("VmHWM") - before;
  const int64_t allowed = loaded->WeightBytes() * 115 / 100 + loaded->PoolBytes() +
                          loaded->WorkspaceBytes() + (int64_t{64} << 20);
  EXPECT_LE(peak, allowed);
  RecordProperty("peak_bytes", std::to_string(peak));
  RecordProperty("weight_bytes", std::to_string(loaded->WeightBytes()));
  // What the plan promised before loading is what is held.
  EXPECT_LE(loaded->WeightBytes(), backend->EstimateWeightBytes(program));
  EXPECT_LE(loaded->WorkspaceBytes(), backend->EstimateWorkspaceBytes(program, options));
}

}  // namespace
}  // namespace quire::golden

#include <gtest/gtest.h>

#include "tests/golden/one_answer_setup.h"

namespace quire::golden {

OneAnswerSetup MakeOneAnswerSetup() {
  return {.families = {"llama3-gqa8-bias",
                       "mistral-window",
                       "qwen2-tied-window",
                       "qwen3-tied-gqa8",
                       "gemma3-pattern",
                       "opt-pre-norm",
                       "llama-yarn",
                       "gguf-llama-all-types",
                       "gguf-llama-grids",
                       "gguf-gemma3",
                       "qwen2-moe",
                       "gguf-qwen3moe",
                       "gpt-oss",
                       "gemma4-e",
                       "lfm2",
                       "qwen35",
                       "qwen3-next",
                       "granite-hybrid",
                       "nemotron-h-moe",
                       "gguf-qwen35",
                       "gguf-gemma4-e"}};
}

std::unique_ptr<kernels::Backend> MakeOneAnswerBackend(int threads) {
  std::string error;
  kernels::CpuOptions options;
  options.threads = threads;
  auto backend = kernels::MakeCpuBackend(options, error);
  EXPECT_NE(backend, nullptr) << error;
  return backend;
}

}  // namespace quire::golden

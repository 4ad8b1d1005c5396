// tests/golden/one_answer_test.cc on the emulated CUDA device: the engine's whole work, with the
// device's kernels and samples.
#include "tests/golden/one_answer_setup.h"
#include "tests/kernels/cuda/backend/emulated.h"

namespace quire::golden {

// The seed's few requests find all, some and nothing of their prompts in the prefix cache.
OneAnswerSetup MakeOneAnswerSetup() {
  return {.families = {"gemma3-pattern", "llama3-gqa8-bias", "gpt-oss", "deepseek-v2-lite",
                       "qwen35", "lfm2", "gemma4-e"},
          .requests = 12,
          .seed = 13,
          .least_found = 1,
          .resume_everywhere = false};
}

// In the place of threads: one device replays graphs, with two steps in flight also; the other, on
// which the requests are alone first, has none.
std::unique_ptr<kernels::Backend> MakeOneAnswerBackend(int threads) {
  return MakeEmulatedBackendWith(threads == 1);
}

}  // namespace quire::golden

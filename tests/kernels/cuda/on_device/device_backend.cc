// The device of the backend's tests on a GPU: takes ../backend/device.cc's place in the binary
// that ./dev gpu runs. All ranks of a test share the one GPU, each with streams and memory of its
// own.
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/golden/one_answer_setup.h"
#include "tests/kernels/cuda/backend/device.h"

namespace quire::golden {

std::unique_ptr<kernels::cuda::runtime::Runtime> MakeDeviceRuntime() {
  kernels::cuda::runtime::Error error;
  auto runtime = kernels::cuda::runtime::MakeCudaRuntime(0, error);
  if (runtime == nullptr) {
    std::printf("no device: %s\n", error.c_str());
    std::fflush(stdout);
    std::_Exit(4);
  }
  return runtime;
}
bool DeviceIsReal() { return true; }

namespace {

std::unique_ptr<kernels::Backend> MakeBackend(bool graphs) {
  return kernels::cuda::MakeCudaBackend(MakeDeviceRuntime(),
                                        {"gpu", "GPU of the tests", {.graphs = graphs}});
}

}  // namespace

std::unique_ptr<kernels::Backend> MakeDeviceBackend() { return MakeBackend(true); }

OneAnswerSetup MakeOneAnswerSetup() {
  return {.families = {"gemma3-pattern", "llama3-gqa8-bias", "qwen2-untied"},
          .requests = 32,
          .seed = 13,
          .least_found = 1};
}
// As on the emulated device: with graphs and without.
std::unique_ptr<kernels::Backend> MakeOneAnswerBackend(int threads) {
  return MakeBackend(threads == 1);
}

}  // namespace quire::golden

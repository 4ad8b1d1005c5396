// Links every kernel with the CUDA runtime, and asks for a device: a machine without one must be
// told so in a line.
#include <cstdio>

#include "kernels/cuda/runtime/runtime.h"

int main() {
  quire::kernels::cuda::runtime::Error error;
  const auto runtime = quire::kernels::cuda::runtime::MakeCudaRuntime(0, error);
  if (runtime == nullptr) {
    printf("no device: %s\n", error.c_str());
    return error.empty() || error.find('\n') != std::string::npos ? 1 : 0;
  }
  printf("device\n");
  return 0;
}

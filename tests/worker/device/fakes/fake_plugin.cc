// A library that stands in for libquire_cuda.so, as it should be or with something wrong.
#include <cstdio>

#include "kernels/cuda/plugin/plugin_table.h"
#include "quire_build_id.h"

#ifndef FAKE_PLUGIN_VERSION
#define FAKE_PLUGIN_VERSION quire::kernels::cuda::kQuireCudaTableVersion
#endif
#ifndef FAKE_PLUGIN_BUILD_ID
#define FAKE_PLUGIN_BUILD_ID kQuireBuildId
#endif

namespace {

int32_t Open(const QuireCudaRequest* request, void** backend, char* text, size_t text_bytes) {
  *backend = nullptr;
  std::snprintf(text, text_bytes, "device %d, a %s, is made of paper", request->device,
                request->description);
  return kQuireCudaNoDevice;
}
void Close(void*) {}
constexpr QuireCudaTable kTable = {
    FAKE_PLUGIN_VERSION, FAKE_PLUGIN_BUILD_ID, 13000, 8, Open, Close};

}  // namespace

#ifndef FAKE_PLUGIN_WITHOUT_TABLE
extern "C" const QuireCudaTable* quire_cuda_table() { return &kTable; }
#else
extern "C" const QuireCudaTable* another_table() { return &kTable; }
#endif

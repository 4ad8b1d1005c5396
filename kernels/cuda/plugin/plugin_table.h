// The one symbol that libquire_cuda.so exports: a table of C functions, behind which is all code
// that needs the CUDA toolkit.
//
// The worker and the plugin are built from one tree: a plugin of another build id, or another
// version of this table, is refused before anything else of it is called. With equal build ids a
// Backend is the same class on both sides; no exception crosses the boundary. Codes are ints, texts
// are written into the caller's buffer.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

enum QuireCudaCode : int32_t {
  kQuireCudaGood = 0,
  kQuireCudaNoDevice = 1,  // it cannot be opened; the text gives the reason
  kQuireCudaBadArgument = 2,
};

// The options that a Backend is opened with.
struct QuireCudaRequest {
  int32_t device;            // the driver's number; −1: it estimates and loads nothing
  int32_t major, minor;      // compute capability of the device, as the driver reports it
  const char* description;   // for the log: "NVIDIA H200"
  const char* nccl_library;  // the file of NCCL that joins ranks; empty: host memory
  // The file of cuBLASLt, for workers without batch invariance; empty: only our own products.
  const char* cublaslt_library;
};

struct QuireCudaTable {
  uint32_t version;         // kQuireCudaTableVersion
  const char* build_id;     // of the kernels that it was built from, 64 hexadecimal digits
  int32_t toolkit_version;  // 13000 is 13.0
  int32_t oldest_major;     // compute capability that its machine code begins with
  // A quire::kernels::Backend, owned by the caller until `close`. The text is one line, truncated
  // if it does not fit.
  int32_t (*open)(const QuireCudaRequest* request, void** backend, char* text, size_t text_bytes);
  void (*close)(void* backend);
};

// The symbol's name and type: const QuireCudaTable* quire_cuda_table().
typedef const QuireCudaTable* (*QuireCudaTableFunction)();
}

namespace quire::kernels::cuda {

inline constexpr uint32_t kQuireCudaTableVersion = 3;
inline constexpr const char* kPluginName = "libquire_cuda.so";
inline constexpr const char* kPluginSymbol = "quire_cuda_table";

}  // namespace quire::kernels::cuda

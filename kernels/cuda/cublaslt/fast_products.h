// Products by cuBLASLt where it is faster than our own kernel: measured once for each shape, before
// the worker is ready.
//
// Times are the device's own (runtime/device_timer.h), with the operands in its caches as far as
// they fit. A shape is (n, k, what is done to the sums, the power of two that bounds the rows, the
// alignment of its operands, the distance of rows of the result). Its algorithms are requested once
// and timed once against our own kernel; the choice holds from then on. The bits of a row then
// depend on the number of rows and on the measurement: this is for workers without batch
// invariance. Owned by a CudaProgram, on its thread.
//
// 1. Outside tuning nothing is timed, waited for or allocated on the device.
// 2. A product that is not served here, or fails, is left to our own kernel; a library that cannot
//    begin fails the program (`error`).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "kernels/cuda/cublaslt/cublaslt_library.h"
#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::cublaslt {

class FastProducts {
 public:
  // Workspace that algorithms may use; NVIDIA's advice for compute capability 9.0.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  static constexpr int kMostAlgorithms = 8;
  // Shapes that are kept; further ones are left to our own kernel.
  static constexpr size_t kMostShapes = 4096;

  // All of them outlive it; `workspace` is kWorkspaceBytes of the device.
  FastProducts(const Library& library, runtime::Runtime& runtime, runtime::StreamId stream,
               void* workspace);
  ~FastProducts();
  FastProducts(const FastProducts&) = delete;
  FastProducts& operator=(const FastProducts&) = delete;

  // Why it cannot be used, in one line; empty: it can.
  const std::string& error() const { return error_; }
  // While it tunes, a new shape is timed, with the product's own operands: the content of `out` is
  // then arbitrary.
  void SetTuning(bool tuning) { tuning_ = tuning; }
  // Queues the product. False: use our own kernel. `params` are LaunchGemm's.
  bool Launch(const GemmParams& params);

  // Microseconds of one product, as measured while tuning; not above 0: it failed, or was never
  // timed.
  struct Timing {
    double own = 0.0;      // our kernel
    double library = 0.0;  // its best algorithm
  };
  Timing TimingOf(const GemmParams& params) const;

  // Shapes that are served here, of those that were tuned.
  int used() const;
  int tuned() const { return static_cast<int>(choices_.size()); }

 private:
  struct Choice {
    bool used = false;
    Algo algo{};
    Timing timing{};
  };
  using Key = std::tuple<int, int, int, int, uint32_t, bool, bool, bool, bool>;
  struct Call;

  bool Serves(const GemmParams& params) const;
  static Key KeyOf(const GemmParams& params);
  Choice Tune(const GemmParams& params);
  Code Multiply(const GemmParams& params, const Algo& algo);
  // Microseconds of one; negative: it failed.
  template <class Queue>
  double Time(const Queue& queue);

  const Functions& f_;
  runtime::Runtime& runtime_;
  const runtime::StreamId stream_;
  void* const workspace_;
  Handle handle_ = nullptr;
  bool tuning_ = false;
  std::string error_;
  std::map<Key, Choice> choices_;
};

}  // namespace quire::kernels::cuda::cublaslt

// A library that stands in for cuBLASLt: products of bfloat16 or fp8 in float64, over the memory of
// the emulated device, in the order of its streams. Compiled into libcublasLt.so.13 as it should
// be, and into others that lack something.
#include "tests/kernels/cuda/cublaslt/fake_cublaslt.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/cublaslt/cublaslt_abi.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/kv_fp8.h"

#ifndef FAKE_CUBLASLT_VERSION
#define FAKE_CUBLASLT_VERSION 130100
#endif

namespace {

namespace lt = quire::kernels::cuda::cublaslt;
using quire::kernels::cuda::device::Bf16;
using quire::kernels::cuda::device::Bf16Bits;
using quire::kernels::cuda::device::ToFloat;
using quire::kernels::cuda::emulate::NativeStream;  // NOLINT(misc-unused-using-decls): below
using quire::kernels::cuda::test::FakeCublasLtCounts;
using quire::kernels::cuda::test::FakeCublasLtOrders;

constexpr lt::Code kInvalid = 7;

struct Desc {
  int32_t transpose_a = 0;
  uint32_t epilogue = lt::kEpilogueNone;
  const float* bias = nullptr;
};
// Operands are taken to be aligned as the header says, unless it is told otherwise.
struct Preference {
  std::array<uint32_t, 4> alignments = {256, 256, 256, 256};
};
struct Layout {
  lt::DataType type;
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

// One product, kept for as long as a graph may run it.
struct Product {
  Desc desc;
  Layout a, b, d;
  float alpha, beta;
  const void* weight;
  const void* x;
  const void* c;
  void* out;
};

struct State {
  std::mutex mutex;
  FakeCublasLtOrders orders;
  FakeCublasLtCounts counts;
  std::vector<std::unique_ptr<Product>> products;
};
State& Fake() {
  static State state;
  return state;
}

float At(const void* matrix, lt::DataType type, int64_t at) {
  if (type == lt::kFloat8) return quire::kernels::FromFp8(static_cast<const uint8_t*>(matrix)[at]);
  return type == lt::kFloat32 ? static_cast<const float*>(matrix)[at]
                              : ToFloat(Bf16{static_cast<const uint16_t*>(matrix)[at]});
}

// One column of a matrix.
void Widen(const void* matrix, const Layout& layout, int64_t column, float* wide) {
  const int64_t at = column * layout.stride;
  if (layout.type == lt::kBFloat16) {
    const uint16_t* from = static_cast<const uint16_t*>(matrix) + at;
    for (int64_t k = 0; k < layout.rows; ++k) wide[k] = ToFloat(Bf16{from[k]});
    return;
  }
  for (int64_t k = 0; k < layout.rows; ++k) wide[k] = At(matrix, layout.type, at + k);
}

// In an order of its own, as a library has one.
double Dot(const float* a, const float* b, int64_t count) {
  constexpr int kParts = 8;
  double parts[kParts] = {};
  int64_t k = 0;
  for (; k + kParts <= count; k += kParts) {
    for (int i = 0; i < kParts; ++i) parts[i] += static_cast<double>(a[k + i]) * b[k + i];
  }
  double sum = 0.0;
  for (; k < count; ++k) sum += static_cast<double>(a[k]) * b[k];
  for (const double part : parts) sum += part;
  return sum;
}

void Store(const Product& p, int64_t m, int64_t n, double sum) {
  const int64_t at = m * p.d.stride + n;
  float y = static_cast<float>(sum * p.alpha);
  if (p.beta != 0.0f) y += p.beta * At(p.c, p.d.type, at);
  if ((p.desc.epilogue & lt::kEpilogueBias) != 0) y += p.desc.bias[n];
  if ((p.desc.epilogue & lt::kEpilogueRelu) != 0 && !(y > 0.0f)) y = 0.0f;
  if (p.d.type == lt::kFloat32) {
    static_cast<float*>(p.out)[at] = y;
  } else {
    static_cast<uint16_t*>(p.out)[at] = Bf16Bits(y);
  }
}

[[maybe_unused]] int Run(void* argument) {
  const Product& p = *static_cast<Product*>(argument);
  const int64_t depth = p.a.rows;
  std::vector<float> rows(static_cast<size_t>(depth * p.d.columns));
  for (int64_t m = 0; m < p.d.columns; ++m) Widen(p.x, p.b, m, rows.data() + m * depth);
  std::vector<float> weight(static_cast<size_t>(depth));
  for (int64_t n = 0; n < p.d.rows; ++n) {
    Widen(p.weight, p.a, n, weight.data());
    for (int64_t m = 0; m < p.d.columns; ++m) {
      Store(p, m, n, Dot(weight.data(), rows.data() + m * depth, depth));
    }
  }
  return 1;
}

template <class T>
lt::Code Make(void** made, T value) {
  const std::lock_guard lock(Fake().mutex);
  ++Fake().counts.open;
  *made = new T(value);
  return lt::kSuccess;
}
template <class T>
lt::Code Destroy(void* made) {
  const std::lock_guard lock(Fake().mutex);
  --Fake().counts.open;
  delete static_cast<T*>(made);
  return lt::kSuccess;
}

bool Agree(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  return desc.transpose_a == lt::kTranspose && a.rows == b.rows && a.columns == d.rows &&
         b.columns == d.columns && a.type == b.type &&
         (a.type == lt::kBFloat16 || a.type == lt::kFloat8) && a.stride >= a.rows &&
         b.stride >= b.rows && d.stride >= d.rows;
}

}  // namespace

extern "C" {

void fake_cublaslt_set(const FakeCublasLtOrders* orders) {
  const std::lock_guard lock(Fake().mutex);
  Fake().orders = *orders;
  Fake().counts.heuristics = Fake().counts.products = 0;
}
void fake_cublaslt_read(FakeCublasLtCounts* counts) {
  const std::lock_guard lock(Fake().mutex);
  *counts = Fake().counts;
}

size_t cublasLtGetVersion() { return FAKE_CUBLASLT_VERSION; }
const char* cublasLtGetStatusString(lt::Code code) {
  return code == 1 ? "CUBLAS_STATUS_NOT_INITIALIZED" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
lt::Code cublasLtCreate(lt::Handle* handle) {
  if (Fake().orders.create_code != 0) return Fake().orders.create_code;
  return Make(handle, 0);
}
lt::Code cublasLtDestroy(lt::Handle handle) { return Destroy<int>(handle); }

lt::Code cublasLtMatmulDescCreate(lt::MatmulDesc* desc, int compute, lt::DataType scale) {
  if (compute != lt::kComputeFloat32 || scale != lt::kFloat32) return kInvalid;
  return Make(desc, Desc{});
}
lt::Code cublasLtMatmulDescDestroy(lt::MatmulDesc desc) { return Destroy<Desc>(desc); }
lt::Code cublasLtMatmulDescSetAttribute(lt::MatmulDesc desc, int attribute, const void* value,
                                        size_t bytes) {
  Desc& of = *static_cast<Desc*>(desc);
  void* to = attribute == lt::kDescTransposeA ? static_cast<void*>(&of.transpose_a)
             : attribute == lt::kDescEpilogue ? static_cast<void*>(&of.epilogue)
             : attribute == lt::kDescBias     ? static_cast<void*>(&of.bias)
                                              : nullptr;
  const size_t wanted = attribute == lt::kDescBias ? sizeof(void*) : 4;
  if (to == nullptr || bytes != wanted) return kInvalid;
  std::memcpy(to, value, bytes);
  return lt::kSuccess;
}

lt::Code cublasLtMatrixLayoutCreate(lt::MatrixLayout* layout, lt::DataType type, uint64_t rows,
                                    uint64_t columns, int64_t stride) {
  return Make(layout,
              Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
}
lt::Code cublasLtMatrixLayoutDestroy(lt::MatrixLayout layout) { return Destroy<Layout>(layout); }

lt::Code cublasLtMatmulPreferenceCreate(lt::Preference* preference) {
  return Make(preference, Preference{});
}
lt::Code cublasLtMatmulPreferenceDestroy(lt::Preference preference) {
  return Destroy<Preference>(preference);
}
lt::Code cublasLtMatmulPreferenceSetAttribute(lt::Preference preference, int attribute,
                                              const void* value, size_t bytes) {
  if (attribute == lt::kPreferenceWorkspace) return bytes == 8 ? lt::kSuccess : kInvalid;
  const int operand = attribute - lt::kPreferenceAlignmentA;
  if (operand < 0 || operand > 3 || bytes != 4) return kInvalid;
  std::memcpy(&static_cast<Preference*>(preference)->alignments[static_cast<size_t>(operand)],
              value, bytes);
  return lt::kSuccess;
}

lt::Code cublasLtMatmulAlgoGetHeuristic(lt::Handle, lt::MatmulDesc desc, lt::MatrixLayout a,
                                        lt::MatrixLayout b, lt::MatrixLayout, lt::MatrixLayout d,
                                        lt::Preference preference, int most, lt::Heuristic* found,
                                        int* count) {
  const std::lock_guard lock(Fake().mutex);
  ++Fake().counts.heuristics;
  *count = 0;
  if (Fake().orders.heuristic_code != 0) return Fake().orders.heuristic_code;
  if (!Agree(*static_cast<Desc*>(desc), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
             *static_cast<Layout*>(d))) {
    return kInvalid;
  }
  for (int i = 0; i < most && i < Fake().orders.algorithms; ++i) {
    found[i] = {};
    found[i].algo.data[0] = 77;
    for (size_t operand = 0; operand < 4; ++operand) {
      found[i].algo.data[1 + operand] = static_cast<Preference*>(preference)->alignments[operand];
    }
    // The first one needs more workspace than it was told of, which a caller must not take.
    found[i].workspace_bytes = i == 0 ? size_t{1} << 40 : 1024;
    *count = i + 1;
  }
  return lt::kSuccess;
}

#ifndef FAKE_CUBLASLT_WITHOUT_MATMUL
lt::Code cublasLtMatmul(lt::Handle, lt::MatmulDesc desc, const void* alpha, const void* a,
                        lt::MatrixLayout a_layout, const void* b, lt::MatrixLayout b_layout,
                        const void* beta, const void* c, lt::MatrixLayout, void* d,
                        lt::MatrixLayout d_layout, const lt::Algo* algo, void* workspace,
                        size_t workspace_bytes, lt::NativeStream stream) {
  const Product product{*static_cast<Desc*>(desc),
                        *static_cast<Layout*>(a_layout),
                        *static_cast<Layout*>(b_layout),
                        *static_cast<Layout*>(d_layout),
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        a,
                        b,
                        c,
                        d};
  if (algo->data[0] != 77 || workspace == nullptr || workspace_bytes < 1024 ||
      !Agree(product.desc, product.a, product.b, product.d)) {
    return kInvalid;
  }
  // Where CUDA's kernel would fault.
  const void* operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(operands[i]) % algo->data[1 + i] != 0) return kInvalid;
  }
  Product* kept = nullptr;
  {
    const std::lock_guard lock(Fake().mutex);
    if (product.d.columns < Fake().orders.fails_below_rows) return lt::kNotSupported;
    ++Fake().counts.products;
    kept = Fake().products.emplace_back(std::make_unique<Product>(product)).get();
  }
  auto* native = static_cast<NativeStream*>(stream);
  native->call(native, Run, kept);
  return lt::kSuccess;
}
#endif
}

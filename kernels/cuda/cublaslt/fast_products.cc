#include "kernels/cuda/cublaslt/fast_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/cuda/runtime/device_timer.h"

namespace quire::kernels::cuda::cublaslt {
namespace {

constexpr int kTimings = 3;  // the median counts

// As far as the library looks, and what a bias is read by.
constexpr uint32_t kMostAlignment = 256;
constexpr uint32_t kBiasAlignment = 16;

uint32_t AlignmentOf(uintptr_t address) {
  return uint32_t{1} << std::countr_zero(address | kMostAlignment);
}

// What all operands have. Parts of a weight write where their rows begin in the result.
uint32_t AlignmentOf(const GemmParams& params) {
  return AlignmentOf(reinterpret_cast<uintptr_t>(params.weight) |
                     reinterpret_cast<uintptr_t>(params.x) |
                     reinterpret_cast<uintptr_t>(params.out));
}

}  // namespace

// The descriptors of one product. As the library sees it, in the order of columns: [n, m] out =
// [n, k] weight · [k, m] x.
struct FastProducts::Call {
  Call(const Functions& functions, const GemmParams& params) : f(functions) {
    Check(f.desc_create(&desc, kComputeFloat32, kFloat32));
    if (code != kSuccess) return;
    const uint32_t epilogue =
        (params.relu ? kEpilogueRelu : 0) | (params.bias != nullptr ? kEpilogueBias : 0);
    Set(kDescTransposeA, kTranspose);
    Set(kDescEpilogue, epilogue == 0 ? kEpilogueNone : epilogue);
    if (params.bias != nullptr) Set(kDescBias, params.bias);
    const auto n = static_cast<uint64_t>(params.n);
    const auto k = static_cast<uint64_t>(params.k);
    const auto m = static_cast<uint64_t>(params.m);
    Check(f.layout_create(&weight, kBFloat16, k, n, params.k));
    Check(f.layout_create(&x, kBFloat16, k, m, params.k));
    Check(f.layout_create(&out, params.out_float32 ? kFloat32 : kBFloat16, n, m,
                          params.out_stride > 0 ? params.out_stride : params.n));
  }
  ~Call() {
    for (MatrixLayout layout : {weight, x, out}) {
      if (layout != nullptr) f.layout_destroy(layout);
    }
    if (desc != nullptr) f.desc_destroy(desc);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void Check(Code said) {
    if (code == kSuccess) code = said;
  }
  template <class Value>
  void Set(int attribute, const Value& value) {
    Check(f.desc_set(desc, attribute, &value, sizeof(value)));
  }

  const Functions& f;
  Code code = kSuccess;  // the first that was none
  MatmulDesc desc = nullptr;
  MatrixLayout weight = nullptr;
  MatrixLayout x = nullptr;
  MatrixLayout out = nullptr;
};

FastProducts::FastProducts(const Library& library, runtime::Runtime& runtime,
                           runtime::StreamId stream, void* workspace)
    : f_(library.functions()), runtime_(runtime), stream_(stream), workspace_(workspace) {
  const Code code = f_.create(&handle_);
  if (code == kSuccess) return;
  handle_ = nullptr;
  const char* text = f_.status_string(code);
  error_ = library.path() + ": cublasLtCreate says " + (text != nullptr ? text : "an error") +
           " (" + std::to_string(code) + ")";
}

FastProducts::~FastProducts() {
  if (handle_ != nullptr) f_.destroy(handle_);
}

// What the library does in one pass with the same meaning. A bias is of the type of the sums there,
// and ours is float32; we add to float32 alone.
bool FastProducts::Serves(const GemmParams& params) const {
  const bool scaled = params.scale != 1.0f;
  return handle_ != nullptr && params.m > 0 && params.quantised.data == nullptr &&
         params.softcap <= 0.0f && !(params.relu && params.accumulate) && !params.relu_squared &&
         !(scaled && params.bias != nullptr) &&
         AlignmentOf(reinterpret_cast<uintptr_t>(params.bias)) >= kBiasAlignment &&
         (params.out_float32 || (params.bias == nullptr && !params.accumulate));
}

FastProducts::Key FastProducts::KeyOf(const GemmParams& params) {
  const int rows = static_cast<int>(std::bit_ceil(static_cast<unsigned>(params.m)));
  return {params.n,
          params.k,
          rows,
          params.out_stride,
          AlignmentOf(params),
          params.out_float32,
          params.accumulate,
          params.relu,
          params.bias != nullptr};
}

bool FastProducts::Launch(const GemmParams& params) {
  if (!Serves(params)) return false;
  const Key key = KeyOf(params);
  auto found = choices_.find(key);
  if (found == choices_.end()) {
    if (!tuning_ || choices_.size() == kMostShapes) return false;
    found = choices_.emplace(key, Tune(params)).first;
  }
  Choice& choice = found->second;
  if (!choice.used) return false;
  // An algorithm of the widest rows of a class may not do for fewer.
  if (Multiply(params, choice.algo) == kSuccess) return true;
  choice.used = false;
  return false;
}

Code FastProducts::Multiply(const GemmParams& params, const Algo& algo) {
  const Call call(f_, params);
  if (call.code != kSuccess) return call.code;
  const float alpha = params.scale;
  const float beta = params.accumulate ? 1.0f : 0.0f;
  return f_.matmul(handle_, call.desc, &alpha, params.weight, call.weight, params.x, call.x, &beta,
                   params.out, call.out, params.out, call.out, &algo, workspace_, kWorkspaceBytes,
                   runtime_.NativeStream(stream_));
}

template <class Queue>
double FastProducts::Time(const Queue& queue) {
  const auto work = [&](int /*copy*/) { return runtime::Error(queue() ? "" : "it fails"); };
  double seconds = 0.0;
  const runtime::Error error =
      runtime::TimeOnDevice(runtime_, stream_, {.rounds = kTimings}, work, &seconds);
  return error.empty() ? seconds * 1e6 : -1.0;
}

FastProducts::Choice FastProducts::Tune(const GemmParams& params) {
  Choice choice;
  Preference preference = nullptr;
  if (f_.preference_create(&preference) != kSuccess) return choice;
  const uint64_t most_bytes = kWorkspaceBytes;
  std::array<Heuristic, kMostAlgorithms> found{};
  int count = 0;
  {
    const Call call(f_, params);
    Code code = call.code;
    if (code == kSuccess) {
      code = f_.preference_set(preference, kPreferenceWorkspace, &most_bytes, sizeof(most_bytes));
    }
    const uint32_t alignment = AlignmentOf(params);
    for (const int operand : {kPreferenceAlignmentA, kPreferenceAlignmentB, kPreferenceAlignmentC,
                              kPreferenceAlignmentD}) {
      if (code != kSuccess) break;
      code = f_.preference_set(preference, operand, &alignment, sizeof(alignment));
    }
    if (code == kSuccess) {
      code = f_.heuristic(handle_, call.desc, call.weight, call.x, call.out, call.out, preference,
                          kMostAlgorithms, found.data(), &count);
    }
    if (code != kSuccess) count = 0;
  }
  f_.preference_destroy(preference);
  Timing& timing = choice.timing;
  timing.own = Time([&] { return LaunchGemm(runtime_, stream_, params).empty(); });
  for (int i = 0; i < std::clamp(count, 0, kMostAlgorithms) && timing.own > 0.0; ++i) {
    const Heuristic& one = found[static_cast<size_t>(i)];
    if (one.state != kSuccess || one.workspace_bytes > kWorkspaceBytes) continue;
    const double took = Time([&] { return Multiply(params, one.algo) == kSuccess; });
    if (took < 0.0 || (timing.library > 0.0 && took >= timing.library)) continue;
    timing.library = took;
    choice.algo = one.algo;
  }
  choice.used = timing.library > 0.0 && timing.library < timing.own;
  return choice;
}

FastProducts::Timing FastProducts::TimingOf(const GemmParams& params) const {
  const auto found = choices_.find(KeyOf(params));
  return found == choices_.end() ? Timing{} : found->second.timing;
}

int FastProducts::used() const {
  return static_cast<int>(std::count_if(choices_.begin(), choices_.end(),
                                        [](const auto& one) { return one.second.used; }));
}

}  // namespace quire::kernels::cuda::cublaslt

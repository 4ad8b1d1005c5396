#include "kernels/cuda/ops/recurrent/causal_conv.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/ops/recurrent/gates.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kConvThreads = 128;
constexpr int kConvChannels = 4 * kConvThreads;  // of a block

struct Four {
  float x[4];
};

QUIRE_DEVICE Four LoadFour(const float* from) {
  const Vector16 v = Load16(from);
  return Four{{FloatOfBits(v.word[0]), FloatOfBits(v.word[1]), FloatOfBits(v.word[2]),
               FloatOfBits(v.word[3])}};
}

QUIRE_DEVICE void StoreFour(float* to, const Four& v) {
  Store16(to, Vector16{{BitsOfFloat(v.x[0]), BitsOfFloat(v.x[1]), BitsOfFloat(v.x[2]),
                        BitsOfFloat(v.x[3])}});
}

QUIRE_DEVICE Four Product(const Four& a, const Four& b) {
  return Four{{a.x[0] * b.x[0], a.x[1] * b.x[1], a.x[2] * b.x[2], a.x[3] * b.x[3]}};
}

// What is convolved of a token of the step: four channels from `channel` on.
QUIRE_DEVICE Four Input(const CausalConvParams& params, int64_t token, int channel) {
  const float* in = params.in + token * params.in_stride + channel;
  if (!params.gated) return LoadFour(in);
  return Product(LoadFour(in), LoadFour(in + 2 * params.channels));
}

QUIRE_DEVICE void Output(const CausalConvParams& params, int64_t token, int channel, Four y) {
  if (params.silu) {
#pragma unroll
    for (int c = 0; c < 4; ++c) y.x[c] = Silu(y.x[c]);
  }
  if (params.gated) {
    const float* in = params.in + token * params.in_stride + params.channels + channel;
    y = Product(LoadFour(in), y);
  }
  const int64_t at = token * params.out_stride + channel;
  if (params.out != nullptr) return StoreFour(params.out + at, y);
  const uint64_t low = PackBf16(y.x[0], y.x[1]);
  const uint64_t high = PackBf16(y.x[2], y.x[3]);
  *reinterpret_cast<uint64_t*>(params.narrow + at) = low | high << 32;
}

// The states that stay behind the row's first run. Their inputs are all tokens of the row.
QUIRE_DEVICE void WriteLaterStates(const CausalConvParams& params, const UnitOfRow& unit,
                                   int channel) {
  const int kept = params.taps - 1;
  for (int last = unit.LastOfBlock(kStateRun); last < unit.row.token_count;
       last = unit.LastOfBlock(last + 1)) {
    if (unit.Stays(last)) {
      float* to = unit.Behind(last) + channel % kStateChannels;
      for (int j = 0; j < kept; ++j) {
        StoreFour(to + j * kStateChannels,
                  Input(params, unit.row.first_token + last - kept + 1 + j, channel));
      }
    }
    if (last + 1 == unit.row.token_count) break;
  }
}

// A thread walks a run's tokens in four channels. The first run of a row writes all of the row's
// states: another block might write one before the first has read it.
template <int kTaps>
QUIRE_DEVICE void Convolve(const CausalConvParams& params) {
  const StateRun run = params.runs.runs[BlockX()];
  const AttentionSequence row = params.runs.sequences[run.sequence];
  const int channel = BlockY() * kConvChannels + 4 * ThreadIndex();
  if (run.first >= row.token_count || channel >= params.channels) return;
  const UnitOfRow unit = UnitOf(params.pages, row, run.sequence, channel / kStateChannels);
  const int skipped = kTaps - params.taps;
  Four inputs[kTaps];  // the oldest first, the token's own last
  Four weights[kTaps];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    inputs[j] = Four{{0.0f, 0.0f, 0.0f, 0.0f}};
    if (j < skipped) continue;
    weights[j] =
        LoadFour(params.weight + static_cast<int64_t>(j - skipped) * params.channels + channel);
    const int token = run.first - (kTaps - 1) + j;
    if (j == kTaps - 1) continue;
    if (token >= 0) {
      inputs[j] = Input(params, row.first_token + token, channel);
    } else if (row.first_position > 0) {
      inputs[j] =
          LoadFour(unit.Before() + (j - skipped) * kStateChannels + channel % kStateChannels);
    }
  }
  Four bias{{0.0f, 0.0f, 0.0f, 0.0f}};
  if (params.bias != nullptr) bias = LoadFour(params.bias + channel);
  const int end = run.first + kStateRun < row.token_count ? run.first + kStateRun : row.token_count;
  for (int i = run.first; i < end; ++i) {
    inputs[kTaps - 1] = Input(params, row.first_token + i, channel);
    Four sum = bias;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < skipped) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) sum.x[c] = Fma(weights[j].x[c], inputs[j].x[c], sum.x[c]);
    }
    Output(params, row.first_token + i, channel, sum);
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) inputs[j] = inputs[j + 1];
    if (run.first > 0 || !unit.Stays(i)) continue;
    float* to = unit.Behind(i) + channel % kStateChannels;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      if (j >= skipped) StoreFour(to + (j - skipped) * kStateChannels, inputs[j]);
    }
  }
  if (run.first == 0 && row.token_count > kStateRun) WriteLaterStates(params, unit, channel);
}

QUIRE_KERNEL(causal_conv_4, CausalConvParams, kConvThreads, 1) { Convolve<4>(params); }
QUIRE_KERNEL(causal_conv_8, CausalConvParams, kConvThreads, 1) { Convolve<kMostTaps>(params); }

runtime::Error LaunchCausalConv(runtime::Runtime& runtime, runtime::StreamId stream,
                                const CausalConvParams& params) {
  if (params.taps < 2 || params.taps > kMostTaps) {
    return "causal_conv: " + std::to_string(params.taps) + " taps: 2 to 8 are served";
  }
  if (params.channels <= 0 || params.channels % 8 != 0 || params.in_stride % 4 != 0 ||
      params.out_stride % 4 != 0) {
    return "causal_conv: " + std::to_string(params.channels) +
           " channels: a multiple of 8 is needed";
  }
  if (params.runs.count <= 0) return {};
  const auto kernel = params.taps <= 4 ? QUIRE_KERNEL_OF(causal_conv_4, kConvThreads)
                                       : QUIRE_KERNEL_OF(causal_conv_8, kConvThreads);
  const int pieces = (params.channels + kConvChannels - 1) / kConvChannels;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.runs.count),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda

#include "bench/kernels/synthetic_gemma.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace quire::bench {

using namespace kernels;

namespace {

constexpr int kHidden = 640;
constexpr int kInner = 2048;
constexpr int kHeads = 4;
constexpr int kHeadDim = 256;
constexpr int kLayers = 18;
constexpr int kVocabulary = 262144;
enum BufferName : int { kX, kH, kT, kQkv, kAttended, kInnerBuffer, kLast, kLogits };

NormOp Norm(WeightId weight, BufferId in, BufferId out, bool accumulate) {
  NormOp op;
  op.weight = weight;
  op.in = in;
  op.out = out;
  op.accumulate = accumulate;
  return op;
}

LinearOp Product(WeightId weight, BufferId in, BufferId out) {
  LinearOp op;
  op.weight = weight;
  op.in = in;
  op.out = out;
  return op;
}

}  // namespace

WeightSource SyntheticGemma::Source(DType type, int64_t rows, int64_t cols) {
  WeightSource source{type, rows, cols, nullptr};
  memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(source.Bytes())));
  std::byte* data = memory_.back().get();
  source.data = data;
  for (int64_t i = 0; i + 4 <= source.Bytes(); i += 4) {
    random_ = random_ * 1664525u + 1013904223u;
    std::memcpy(data + i, &random_, 4);
  }
  // Scales of about 0.001 keep activations finite: the half 0x1400 is 2^-10.
  const uint16_t scale = 0x1400;
  const uint16_t zero = 0;
  const int block = BlockBytes(type);
  for (int64_t at = 0; at < source.Bytes(); at += block) {
    std::memcpy(data + at + (type == DType::kQ6_K ? 208 : 0), &scale, 2);
    if (type == DType::kQ4_K || type == DType::kQ5_K) std::memcpy(data + at + 2, &zero, 2);
  }
  return source;
}

WeightId SyntheticGemma::Matrix(std::vector<WeightSource> parts) {
  Weight weight;
  weight.cols = parts[0].cols;
  for (const WeightSource& part : parts) weight.rows += part.rows;
  weight.parts = std::move(parts);
  program_.weights.push_back(std::move(weight));
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

WeightId SyntheticGemma::Ones(int64_t cols) {
  WeightSource source{DType::kF32, 1, cols, nullptr};
  memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(source.Bytes())));
  const float one = 1.0f;
  for (int64_t i = 0; i < cols; ++i) std::memcpy(memory_.back().get() + 4 * i, &one, 4);
  source.data = memory_.back().get();
  return Matrix({source});
}

void SyntheticGemma::AddLayer(int layer) {
  auto& ops = program_.ops;
  const bool full = layer % 6 == 5;
  // Rows whose K is not a multiple of 256 fall back to Q5_0 and Q8_0; half of the rest has six
  // bits.
  const DType wide = layer % 2 == 0 ? DType::kQ6_K : DType::kQ4_K;
  ops.push_back(Norm(Ones(kHidden), kX, kH, false));
  const WeightId qkv =
      Matrix({Source(DType::kQ5_0, kHeads * kHeadDim, kHidden),
              Source(DType::kQ5_0, kHeadDim, kHidden), Source(DType::kQ8_0, kHeadDim, kHidden)});
  ops.push_back(Product(qkv, kH, kQkv));
  RopeAppendOp rope;
  rope.qkv = kQkv;
  rope.layer = layer;
  rope.heads = kHeads;
  rope.kv_heads = 1;
  rope.head_dim = kHeadDim;
  rope.q_norm = Ones(kHeadDim);
  rope.k_norm = Ones(kHeadDim);
  rope.rope = full ? 1 : 0;
  ops.push_back(rope);
  AttentionOp attention;
  attention.qkv = kQkv;
  attention.out = kAttended;
  attention.layer = layer;
  attention.heads = kHeads;
  attention.kv_heads = 1;
  attention.head_dim = kHeadDim;
  attention.scale = 1.0f / 16.0f;
  attention.window = full ? 0 : 512;
  ops.push_back(attention);
  ops.push_back(Product(Matrix({Source(DType::kQ4_K, kHidden, kHeads * kHeadDim)}), kAttended, kT));
  ops.push_back(Norm(Ones(kHidden), kT, kX, true));
  ops.push_back(Norm(Ones(kHidden), kX, kH, false));
  LinearOp up = Product(
      Matrix({Source(DType::kQ5_0, kInner, kHidden), Source(DType::kQ5_0, kInner, kHidden)}), kH,
      kInnerBuffer);
  up.activation = LinearOp::Activation::kGeluTanhGated;
  ops.push_back(up);
  ops.push_back(Product(Matrix({Source(wide, kHidden, kInner)}), kInnerBuffer, kT));
  ops.push_back(Norm(Ones(kHidden), kT, kX, true));
}

SyntheticGemma::SyntheticGemma() {
  program_.family = "synthetic";
  program_.vocab_size = kVocabulary;
  program_.hidden_size = kHidden;
  program_.max_positions = 4096;
  program_.heads = kHeads;
  program_.kv_heads = 1;
  program_.head_dim = kHeadDim;
  program_.buffers = {{"x", kHidden, false},
                      {"h", kHidden, false},
                      {"t", kHidden, false},
                      {"qkv", (kHeads + 2) * kHeadDim, false},
                      {"attended", kHeads * kHeadDim, false},
                      {"inner", kInner, false},
                      {"last", kHidden, true},
                      {"logits", kVocabulary, true}};
  for (const double base : {10000.0, 1000000.0}) {
    Rope rope;
    rope.rotary_dim = kHeadDim;
    for (int i = 0; i < kHeadDim / 2; ++i) {
      rope.inverse_frequency.push_back(std::pow(base, -2.0 * i / kHeadDim));
    }
    program_.ropes.push_back(rope);
  }
  EmbedOp embed;
  embed.table = Matrix({Source(DType::kQ8_0, kVocabulary, kHidden)});
  embed.scale = 25.3f;
  embed.out = kX;
  program_.ops.push_back(embed);
  for (int layer = 0; layer < kLayers; ++layer) {
    program_.layer_windows.push_back(layer % 6 == 5 ? 0 : 512);
    AddLayer(layer);
  }
  program_.ops.push_back(Norm(Ones(kHidden), kX, kH, false));
  GatherRowsOp gather;
  gather.in = kH;
  gather.out = kLast;
  program_.ops.push_back(gather);
  LogitsOp logits;
  logits.head = embed.table;
  logits.in = kLast;
  logits.out = kLogits;
  program_.ops.push_back(logits);
  SampleOp sample;
  sample.logits = kLogits;
  program_.ops.push_back(sample);
}

}  // namespace quire::bench

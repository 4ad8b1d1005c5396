#include "tests/kernels/double_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "kernels/cpu/formats.h"
#include "tests/kernels/int8_model.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::test {
namespace {

double SigmoidTimes(double x, double z) { return x / (1.0 + std::exp(-z)); }

double GeluTanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

std::vector<double> Normed(const NormOp& op, const std::vector<double>& x,
                           const std::vector<double>* weight, const std::vector<double>* bias) {
  double mean = 0.0;
  const double share = op.kind == NormOp::Kind::kLayer ? 1.0 / static_cast<double>(x.size()) : 0.0;
  for (double v : x) mean += v * share;
  double variance = 0.0;
  for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + op.epsilon);
    if (weight != nullptr) y[i] *= (*weight)[i] + op.weight_offset;
    if (bias != nullptr) y[i] += (*bias)[i];
  }
  return y;
}

// x to `bits` of mantissa (with the leading one), to the nearest, ties to the even; below 2^least
// steps stay as they are there.
double RoundTo(double x, int bits, int least) {
  if (x == 0.0) return 0.0;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), least) - (bits - 1));
  return std::nearbyint(x / step) * step;
}

// One head's key or value as a page holds it.
void RoundHead(KvType type, double* x, int count) {
  if (type == KvType::kF32) return;
  double scale = 1.0;
  if (type == KvType::kFp8) {
    double largest = 0.0;
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
    scale = static_cast<float>(largest / 448.0);
  }
  for (int i = 0; i < count; ++i) {
    if (type == KvType::kBF16) x[i] = RoundTo(x[i], 8, -126);
    if (type == KvType::kF16) x[i] = RoundTo(x[i], 11, -14);
    if (type == KvType::kFp8) x[i] = RoundTo(x[i] / scale, 4, -6) * scale;
  }
}

// The activation of a product's result, in place; a gated one leaves half of it.
void Activate(LinearOp::Activation kind, std::vector<double>& y) {
  using Activation = LinearOp::Activation;
  if (kind == Activation::kRelu) {
    for (double& v : y) v = std::max(v, 0.0);
  } else if (kind == Activation::kReluSquared) {
    for (double& v : y) v = std::max(v, 0.0) * std::max(v, 0.0);
  } else if (kind != Activation::kNone) {
    const size_t half = y.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      if (kind == Activation::kClampedGated) {
        const double g = std::min(y[i], 7.0);
        const double u = std::clamp(y[i + half], -7.0, 7.0);
        y[i] = SigmoidTimes(g, 1.702 * g) * (u + 1.0);
        continue;
      }
      const double gate =
          kind == Activation::kSiluGated ? SigmoidTimes(y[i], y[i]) : GeluTanh(y[i]);
      y[i] = gate * y[i + half];
    }
    y.resize(half);
  }
}

// The places of the `count` largest, the first of equal ones first.
std::vector<int> Largest(const std::vector<double>& values, int count) {
  std::vector<int> places(values.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](int a, int b) { return values[a] > values[b]; });
  places.resize(static_cast<size_t>(count));
  return places;
}

// The experts of open groups keep their keys, the others get none.
void CloseGroups(const RoutingRule& rule, std::vector<double>& keys) {
  const int size = static_cast<int>(keys.size()) / rule.groups;
  std::vector<double> group_keys;
  for (int g = 0; g < rule.groups; ++g) {
    const std::vector<double> own(keys.begin() + g * size, keys.begin() + (g + 1) * size);
    double sum = 0.0;
    for (const int i : Largest(own, rule.best_of_group)) sum += own[static_cast<size_t>(i)];
    group_keys.push_back(sum);
  }
  const std::vector<int> open = Largest(group_keys, rule.groups_used);
  for (size_t e = 0; e < keys.size(); ++e) {
    const int group = static_cast<int>(e) / size;
    if (std::find(open.begin(), open.end(), group) == open.end()) keys[e] = -1e300;
  }
}

}  // namespace

std::vector<std::pair<int, double>> ChosenExperts(const RoutingRule& rule,
                                                  const std::vector<double>& logits,
                                                  const std::vector<double>& selection_bias) {
  std::vector<double> scores;
  double sum = 0.0;
  const double top = *std::max_element(logits.begin(), logits.end());
  const bool softmax = rule.scores == RoutingRule::Scores::kSoftmax;
  for (const double logit : logits) {
    scores.push_back(softmax ? std::exp(logit - top) : SigmoidTimes(1.0, logit));
    sum += scores.back();
  }
  if (softmax) {
    for (double& score : scores) score /= sum;
  }
  std::vector<double> keys = scores;
  for (size_t e = 0; e < selection_bias.size(); ++e) keys[e] += selection_bias[e];
  CloseGroups(rule, keys);
  std::vector<std::pair<int, double>> chosen;
  double of_chosen = 0.0;
  for (const int expert : Largest(keys, rule.chosen)) {
    chosen.emplace_back(expert, scores[static_cast<size_t>(expert)]);
    of_chosen += chosen.back().second;
  }
  for (auto& [expert, weight] : chosen) {
    weight *= rule.scale / (rule.renormalise ? of_chosen : 1.0);
  }
  return chosen;
}

DoubleModel::DoubleModel(const StepProgram& program, KvType kv) : program_(program), kv_(kv) {
  for (const Weight& weight : program.weights) {
    Rows rows;
    if (weight.rows == 1) {
      rows.emplace_back();
      for (const WeightSource& part : weight.parts) {
        for (int64_t i = 0; i < part.rows * part.cols; ++i) {
          rows[0].push_back(ElementOf(part, i / part.cols, i % part.cols));
        }
      }
    } else {
      for (int64_t row = 0; row < weight.rows; ++row) rows.push_back(RowOf(weight, row));
    }
    weights_.push_back(std::move(rows));
  }
}

std::vector<std::vector<double>> DoubleModel::Run(std::span<const int32_t> tokens) {
  tokens_.assign(tokens.begin(), tokens.end());
  buffers_.assign(program_.buffers.size(), Rows(tokens.size()));
  keys_and_values_.assign(program_.layer_windows.size(), Rows(tokens.size()));
  BufferId logits = kNoId;
  for (const Op& op : program_.ops) {
    std::visit([this](const auto& one) { Apply(one); }, op);
    if (const auto* last = std::get_if<LogitsOp>(&op)) logits = last->out;
  }
  return logits == kNoId ? Rows{} : buffers_[logits];
}

void DoubleModel::Apply(const EmbedOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    buffers_[op.out][t] = weights_[op.table][tokens_[t]];
    for (double& v : buffers_[op.out][t]) v *= op.scale;
    if (op.positions == kNoId) continue;
    const std::vector<double>& place = weights_[op.positions][t + op.position_offset];
    for (size_t i = 0; i < place.size(); ++i) buffers_[op.out][t][i] += place[i];
  }
}

void DoubleModel::Apply(const NormOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::vector<double>& x = buffers_[op.in][t];
    const auto width = static_cast<ptrdiff_t>(x.size()) / op.pieces;
    std::vector<double> y;
    for (int piece = 0; piece < op.pieces; ++piece) {
      const std::vector<double> own(x.begin() + piece * width, x.begin() + (piece + 1) * width);
      const std::vector<double> normed =
          Normed(op, own, op.weight == kNoId ? nullptr : &Vector(op.weight),
                 op.bias == kNoId ? nullptr : &Vector(op.bias));
      y.insert(y.end(), normed.begin(), normed.end());
    }
    for (size_t i = 0; i < y.size(); ++i) {
      if (op.accumulate) y[i] += buffers_[op.out][t][i];
      y[i] *= op.scale;
    }
    buffers_[op.out][t] = y;
  }
}

void DoubleModel::Apply(const SliceGateOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double>& gate = buffers_[op.gate][t];
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = GeluTanh(gate[i]) * buffers_[op.with][t][op.first + i] * op.scale;
    }
  }
}

std::vector<double> DoubleModel::Product(WeightId weight, WeightId bias,
                                         const std::vector<double>& given) const {
  const auto& parts = program_.weights[weight].parts;
  const bool int8 =
      quantise_inputs_ && std::all_of(parts.begin(), parts.end(),
                                      [](const auto& part) { return cpu::TakesInt8(part.type); });
  std::vector<double> x = given;
  if (int8) {
    const std::vector<float> values(x.begin(), x.end());
    for (size_t k = 0; k < x.size(); ++k) x[k] = QuantisedValue(values, static_cast<int64_t>(k));
  }
  std::vector<double> y;
  for (size_t row = 0; row < weights_[weight].size(); ++row) {
    double sum = bias == kNoId ? 0.0 : Vector(bias)[row];
    for (size_t k = 0; k < x.size(); ++k) sum += weights_[weight][row][k] * x[k];
    y.push_back(sum);
  }
  return y;
}

void DoubleModel::Apply(const LinearOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> y = Product(op.weight, op.bias, buffers_[op.in][t]);
    Activate(op.activation, y);
    for (double& v : y) v *= op.scale;
    if (op.accumulate) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += buffers_[op.out][t][i];
    }
    buffers_[op.out][t] = y;
  }
}

void DoubleModel::Apply(const ActivateOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> y = buffers_[op.in][t];
    Activate(op.activation, y);
    buffers_[op.out][t] = y;
  }
}

void DoubleModel::Apply(const LoraOp& op) {
  if (adapter_ == nullptr) return;
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::vector<double>& x = buffers_[op.in][t];
    for (const LoraOp::Slice& slice : op.slices) {
      const AdapterMatrices& own = adapter_->targets[static_cast<size_t>(slice.target)];
      for (int64_t r = 0; r < own.a.rows; ++r) {
        double inner = 0.0;
        for (int64_t k = 0; k < own.a.cols; ++k) {
          inner += ElementOf(own.a, r, k) * x[static_cast<size_t>(k)];
        }
        for (int64_t row = 0; row < own.b.rows; ++row) {
          buffers_[op.out][t][static_cast<size_t>(slice.column + row)] +=
              double{op.scale} * own.scale * ElementOf(own.b, row, r) * inner;
        }
      }
    }
  }
}

void DoubleModel::Apply(const MoeOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::vector<double>& x = buffers_[op.in][t];
    std::vector<double> y(x.size(), 0.0);
    const std::vector<double>& routed = buffers_[op.router_in == kNoId ? op.in : op.router_in][t];
    const std::vector<double> logits = Product(op.router, op.router_bias, routed);
    const std::vector<double> none;
    const std::vector<double>& bias = op.selection_bias == kNoId ? none : Vector(op.selection_bias);
    for (const auto& [expert, weight] : ChosenExperts(op.rule, logits, bias)) {
      const int place = expert - op.first_expert;
      if (place < 0 || place >= static_cast<int>(op.experts.size())) continue;  // another rank's
      const MoeOp::Expert& own = op.experts[static_cast<size_t>(place)];
      std::vector<double> inner = Product(own.gate_up, own.gate_up_bias, x);
      Activate(op.activation, inner);
      const std::vector<double> part = Product(own.down, own.down_bias, inner);
      const double scale =
          op.expert_scales == kNoId ? 1.0 : Vector(op.expert_scales)[static_cast<size_t>(expert)];
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * scale * part[i];
    }
    if (op.accumulate) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += buffers_[op.out][t][i];
    }
    buffers_[op.out][t] = y;
  }
}

void DoubleModel::Apply(const HeadSquaresOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const auto q = buffers_[op.qkv][t].begin();
    const auto k = q + op.heads * op.head_dim;
    const auto sum = [](auto begin, auto end) {
      return std::inner_product(begin, end, begin, 0.0);
    };
    buffers_[op.out][t] = {sum(q, k), op.keys ? sum(k, k + op.kv_heads * op.head_dim) : 0.0};
  }
}

// Head `head` of q and k together.
void DoubleModel::NormHead(const RopeAppendOp& op, int head, size_t token,
                           std::vector<double>& x) const {
  const bool key = head >= op.heads;
  const WeightId id = key ? op.k_norm : op.q_norm;
  if (id == kNoId) return;
  NormOp norm;
  norm.kind = op.norm == HeadNorm::kLayer ? NormOp::Kind::kLayer : NormOp::Kind::kRms;
  norm.epsilon = op.norm_epsilon;
  norm.weight_offset = op.norm_weight_offset;
  if (op.norm == HeadNorm::kRms) {
    x = Normed(norm, x, &Vector(id), nullptr);
    return;
  }
  const auto own = Vector(id).begin() + int64_t{key ? head - op.heads : head} * op.head_dim;
  const std::vector<double> weight(own, own + op.head_dim);
  if (op.norm == HeadNorm::kLayer) {
    x = Normed(norm, x, &weight, nullptr);
    return;
  }
  const double mean = buffers_[op.squares][token][key ? 1 : 0] /
                      (int64_t{key ? op.norm_kv_heads : op.norm_heads} * op.head_dim);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= (weight[i] + op.norm_weight_offset) / std::sqrt(mean + op.norm_epsilon);
  }
}

void DoubleModel::Apply(const RopeAppendOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double>& qkv = buffers_[op.qkv][t];
    for (int head = 0; head < op.heads + op.kv_heads; ++head) {
      const auto begin = qkv.begin() + head * op.head_dim;
      std::vector<double> x(begin, begin + op.head_dim);
      NormHead(op, head, t, x);
      if (op.rope != kNoId) {
        const Rope& rope = program_.ropes[op.rope];
        const int half = rope.rotary_dim / 2;
        for (int i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t) * rope.inverse_frequency[i];
          const double c = std::cos(angle) * rope.attention_factor;
          const double s = std::sin(angle) * rope.attention_factor;
          const double a = x[i];
          const double b = x[i + half];
          x[i] = a * c - b * s;
          x[i + half] = b * c + a * s;
        }
      }
      std::copy(x.begin(), x.end(), begin);
    }
    for (int i = 0; i < op.heads * op.head_dim; ++i) {
      qkv[i] *= 1.0 + op.growth.rate * std::log(1.0 + (static_cast<int>(t) + op.growth.offset) /
                                                          op.growth.interval);
    }
    double* const kv = qkv.data() + op.heads * op.head_dim;
    for (int head = op.kv_heads; op.v_norm && head < 2 * op.kv_heads; ++head) {
      double* const v = kv + head * op.head_dim;
      NormOp norm;
      norm.epsilon = op.norm_epsilon;
      const std::vector<double> y = Normed(norm, {v, v + op.head_dim}, nullptr, nullptr);
      std::copy(y.begin(), y.end(), v);
    }
    for (int head = 0; head < 2 * op.kv_heads; ++head) {
      RoundHead(kv_, kv + head * op.head_dim, op.head_dim);
    }
    if (op.kv_heads > 0) keys_and_values_[op.layer][t].assign(kv, qkv.data() + qkv.size());
  }
}

void DoubleModel::Apply(const AttentionOp& op) {
  const int group = op.heads / op.kv_heads;
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> out;
    for (int head = 0; head < op.heads; ++head) {
      const int first = op.window > 0 ? std::max(0, static_cast<int>(t) - op.window + 1) : 0;
      const double* q = buffers_[op.qkv][t].data() + head * op.head_dim;
      std::vector<double> sum(op.head_dim, 0.0);
      std::vector<double> scores;
      for (size_t key = first; key <= t; ++key) {
        const double* k = keys_and_values_[op.layer][key].data() + head / group * op.head_dim;
        double score = 0.0;
        for (int d = 0; d < op.head_dim; ++d) score += q[d] * k[d];
        score *= op.scale;
        if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
        scores.push_back(score);
      }
      double top = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      if (op.sinks != kNoId) {
        const double sink = Vector(op.sinks)[static_cast<size_t>(head)];
        top = std::max(top, sink);
        total = std::exp(sink - top);
      }
      for (size_t key = first; key <= t; ++key) {
        const double p = std::exp(scores[key - first] - top);
        const double* v =
            keys_and_values_[op.layer][key].data() + (op.kv_heads + head / group) * op.head_dim;
        for (int d = 0; d < op.head_dim; ++d) sum[d] += p * v[d];
        total += p;
      }
      for (double v : sum) out.push_back(v / total);
    }
    buffers_[op.out][t] = out;
  }
}

void DoubleModel::Apply(const LatentAppendOp& op) {
  const Rope& rope = program_.ropes[op.rope];
  const int half = op.rope_dim / 2;
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const auto turn = [&](double* x) {
      const std::vector<double> from(x, x + op.rope_dim);
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * rope.inverse_frequency[i];
        const double c = std::cos(angle) * rope.attention_factor;
        const double s = std::sin(angle) * rope.attention_factor;
        const double a = from[op.pairs ? 2 * i : i];
        const double b = from[op.pairs ? 2 * i + 1 : half + i];
        x[i] = a * c - b * s;
        x[half + i] = b * c + a * s;
      }
    };
    std::vector<double>& latent = buffers_[op.latents][t];
    NormOp norm;
    norm.epsilon = op.norm_epsilon;
    const std::vector<double> normed =
        Normed(norm, {latent.begin(), latent.begin() + op.rank}, &Vector(op.norm), nullptr);
    std::copy(normed.begin(), normed.end(), latent.begin());
    turn(latent.data() + op.rank);
    for (int head = 0; head < op.heads; ++head) {
      turn(buffers_[op.queries][t].data() + (head + 1) * op.query_dim - op.rope_dim);
    }
    // As the page holds it.
    RoundHead(kv_, latent.data(), op.rank + op.rope_dim);
  }
  latents_[op.layer] = buffers_[op.latents];
}

void DoubleModel::Apply(const HeadLinearOp& op) {
  const size_t heads = op.weights.size();
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::vector<double>& in = buffers_[op.in][t];
    const size_t width = in.size() / heads;
    std::vector<double> out;
    for (size_t head = 0; head < heads; ++head) {
      const auto begin = in.begin() + static_cast<int64_t>(head * width);
      const int64_t k = program_.weights[op.weights[head]].cols;
      const std::vector<double> y = Product(op.weights[head], kNoId, {begin, begin + k});
      out.insert(out.end(), y.begin(), y.end());
      out.insert(out.end(), begin + k, begin + static_cast<int64_t>(width));
    }
    buffers_[op.out][t] = out;
  }
}

void DoubleModel::Apply(const LatentAttentionOp& op) {
  const int width = op.rank + op.rope_dim;
  const Rows& latents = latents_.at(op.layer);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> out;
    for (int head = 0; head < op.heads; ++head) {
      const double* q = buffers_[op.queries][t].data() + head * width;
      std::vector<double> scores;
      for (size_t key = 0; key <= t; ++key) {
        scores.push_back(op.scale * std::inner_product(q, q + width, latents[key].begin(), 0.0));
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      std::vector<double> sum(static_cast<size_t>(op.rank), 0.0);
      double total = 0.0;
      for (size_t key = 0; key <= t; ++key) {
        const double p = std::exp(scores[key] - top);
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += p * latents[key][d];
        total += p;
      }
      for (const double v : sum) out.push_back(v / total);
    }
    buffers_[op.out][t] = out;
  }
}

void DoubleModel::Apply(const GatherRowsOp& op) { buffers_[op.out] = buffers_[op.in]; }

void DoubleModel::Apply(const LogitsOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> y = Product(op.head, op.bias, buffers_[op.in][t]);
    for (double& v : y) {
      v *= op.scale;
      if (op.softcap > 0) v = op.softcap * std::tanh(v / op.softcap);
    }
    buffers_[op.out][t] = y;
  }
}

}  // namespace quire::kernels::test

// The float64 meaning of the ops of recurrent layers.
#include <algorithm>
#include <cmath>

#include "tests/kernels/double_model.h"

namespace quire::kernels::test {
namespace {

double Logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double LogOfOnePlusExp(double x) { return std::log1p(std::exp(x)); }

void Shorten(double* x, int count, double scale) {
  double sum = 1e-6;
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  for (int i = 0; i < count; ++i) x[i] *= scale / std::sqrt(sum);
}

}  // namespace

void DoubleModel::Apply(const CausalConvOp& op) {
  const size_t channels = static_cast<size_t>(program_.buffers[op.out].width);
  const int taps = program_.states[static_cast<size_t>(op.layer)].taps;
  const std::vector<double>& weight = Vector(op.weight);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    std::vector<double> out(channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = op.bias == kNoId ? 0.0 : Vector(op.bias)[c];
      for (int j = 0; j < taps; ++j) {
        const int64_t at = static_cast<int64_t>(t) - taps + 1 + j;
        if (at < 0) continue;
        const std::vector<double>& in = buffers_[op.in][static_cast<size_t>(at)];
        const double x = op.gated ? in[c] * in[2 * channels + c] : in[c];
        sum += weight[static_cast<size_t>(j) * channels + c] * x;
      }
      if (op.silu) sum *= Logistic(sum);
      out[c] = op.gated ? buffers_[op.in][t][channels + c] * sum : sum;
    }
    buffers_[op.out][t] = out;
  }
}

void DoubleModel::Apply(const RecurrenceOp& op) {
  const bool delta = op.kind == RecurrenceOp::Kind::kGatedDelta;
  const int keys = op.key_heads * op.key_dim, values = op.value_heads * op.value_dim;
  for (auto& out : buffers_[op.out]) out.assign(static_cast<size_t>(values), 0.0);
  for (auto& factors : buffers_[op.factors]) factors.clear();
  for (int head = 0; head < op.value_heads; ++head) {
    const int key_head = op.tiled ? head % op.key_heads : head / (op.value_heads / op.key_heads);
    std::vector<double> s(static_cast<size_t>(op.key_dim * op.value_dim), 0.0);
    for (size_t t = 0; t < tokens_.size(); ++t) {
      const std::vector<double>& in = buffers_[op.in][t];
      const auto part = [&](int at, int count) {
        return std::vector<double>(in.begin() + at, in.begin() + at + count);
      };
      std::vector<double> q = part((delta ? 0 : values + keys) + key_head * op.key_dim, op.key_dim);
      std::vector<double> k = part((delta ? keys : values) + key_head * op.key_dim, op.key_dim);
      const int value = (delta ? 2 * keys : 0) + head * op.value_dim;
      const std::vector<double> v = part(value, op.value_dim);
      if (delta) {
        Shorten(q.data(), op.key_dim, 1.0 / std::sqrt(op.key_dim));
        Shorten(k.data(), op.key_dim, 1.0);
      }
      const std::vector<double>& gates = buffers_[op.gates][t];
      const double a = gates[static_cast<size_t>(delta ? op.value_heads + head : head)];
      const double step = LogOfOnePlusExp(a + Vector(op.bias)[static_cast<size_t>(head)]);
      const double g = std::exp(Vector(op.decay)[static_cast<size_t>(head)] * step);
      const double b = delta ? Logistic(gates[static_cast<size_t>(head)]) : step;
      for (int j = 0; j < op.value_dim; ++j) {
        double seen = 0.0, out = 0.0;
        const auto at = [&](int i) -> double& {
          return s[static_cast<size_t>(i * op.value_dim + j)];
        };
        for (int i = 0; i < op.key_dim; ++i) seen += k[static_cast<size_t>(i)] * (at(i) *= g);
        const double change = b * (v[static_cast<size_t>(j)] - (delta ? seen : 0.0));
        for (int i = 0; i < op.key_dim; ++i) {
          out += q[static_cast<size_t>(i)] * (at(i) += k[static_cast<size_t>(i)] * change);
        }
        if (op.skip != kNoId) {
          out += Vector(op.skip)[static_cast<size_t>(head)] * v[static_cast<size_t>(j)];
        }
        buffers_[op.out][t][static_cast<size_t>(head * op.value_dim + j)] = out;
      }
    }
  }
}

void DoubleModel::Apply(const GatedNormOp& op) {
  const std::vector<double>& weight = Vector(op.weight);
  const size_t group = static_cast<size_t>(op.group);
  for (size_t t = 0; t < buffers_[op.in].size(); ++t) {
    std::vector<double> y = buffers_[op.in][t];
    const std::vector<double>& gate = buffers_[op.gate][t];
    for (size_t i = 0; op.gate_first && i < y.size(); ++i) y[i] *= gate[i] * Logistic(gate[i]);
    for (size_t begin = 0; begin < y.size(); begin += group) {
      double square = 0.0;
      for (size_t i = 0; i < group; ++i) {
        square += y[begin + i] * y[begin + i] / static_cast<double>(group);
      }
      for (size_t i = 0; i < group; ++i) {
        y[begin + i] *= weight[(begin + i) % weight.size()] / std::sqrt(square + op.epsilon);
      }
    }
    for (size_t i = 0; !op.gate_first && i < y.size(); ++i) y[i] *= gate[i] * Logistic(gate[i]);
    buffers_[op.out][t] = y;
  }
}

void DoubleModel::Apply(const GateOp& op) {
  for (size_t t = 0; t < buffers_[op.in].size(); ++t) {
    std::vector<double> y = buffers_[op.in][t];
    for (size_t i = 0; i < y.size(); ++i) y[i] *= Logistic(buffers_[op.gate][t][i]);
    buffers_[op.out][t] = y;
  }
}

}  // namespace quire::kernels::test

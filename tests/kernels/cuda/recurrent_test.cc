// Recurrent layers' convolutions and recurrences: the CPU's bits, in outputs and in states, near
// float64, in any chunk and company.
#include <algorithm>

#include "kernels/cpu/recurrent.h"
#include "kernels/cuda/ops/recurrent/causal_conv.h"
#include "kernels/cuda/ops/recurrent/recurrence.h"
#include "tests/kernels/cuda/state_bed.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kTokens = 84;     // of the sequence that is looked at: past its merged blocks
constexpr int kNeighbours = 5;  // tokens of another, beside each of its chunks

// Chunks of the sequence in slot 0; the neighbour's tokens come first in each launch.
std::vector<std::vector<Piece>> Chunks(int chunk, int tokens = kTokens) {
  std::vector<std::vector<Piece>> launches;
  for (int begin = 0; begin < tokens; begin += chunk) {
    launches.push_back({{2, 0, kNeighbours}, {0, begin, std::min(chunk, tokens - begin)}});
  }
  return launches;
}

// Of the neighbour, before those of slot 0.
int TokensBefore(const std::vector<Piece>& pieces) {
  return pieces.front().slot == 0 ? 0 : pieces.front().count;
}

// The rows of a launch out of those of both sequences.
std::vector<float> RowsOf(const std::vector<Piece>& pieces, const std::vector<float>& own,
                          const std::vector<float>& others, int width) {
  std::vector<float> rows;
  for (const Piece& piece : pieces) {
    const std::vector<float>& from = piece.slot == 0 ? own : others;
    const auto begin = from.begin() + int64_t{piece.first_position} * width;
    rows.insert(rows.end(), begin, begin + int64_t{piece.count} * width);
  }
  return rows;
}

struct ConvCase {
  int channels;
  int taps;
  bool gated = false;
  bool silu = false;
  bool bias = false;
  bool narrow = false;
};

struct ConvData {
  explicit ConvData(const ConvCase& c)
      : width(c.gated ? 3 * c.channels : c.channels),
        own(RandomFloats(static_cast<size_t>(kTokens) * static_cast<size_t>(width), 21)),
        others(RandomFloats(static_cast<size_t>(kNeighbours) * static_cast<size_t>(width), 22)),
        weight(RandomFloats(static_cast<size_t>(c.taps) * static_cast<size_t>(c.channels), 23)),
        bias(c.bias ? RandomFloats(static_cast<size_t>(c.channels), 24) : std::vector<float>()) {}
  int width;
  std::vector<float> own, others, weight, bias;
};

// Outputs of slot 0, token by token, on the device or by the CPU's kernel.
class ConvRun {
 public:
  ConvRun(const ConvCase& c, uint64_t seed) : c_(c), data_(c), bed_(seed), states_(bed_, Shape()) {
    weight_ = bed_.Put(data_.weight);
    if (c.bias) bias_ = bed_.Put(data_.bias);
  }
  StateShape Shape() const { return {.channels = c_.channels, .taps = c_.taps}; }

  std::vector<float> Device(const std::vector<std::vector<Piece>>& launches, int padding = 0) {
    std::vector<float> out;
    for (const std::vector<Piece>& pieces : launches) {
      const std::vector<float> in = RowsOf(pieces, data_.own, data_.others, data_.width);
      const size_t tokens = in.size() / static_cast<size_t>(data_.width);
      const size_t n = tokens * static_cast<size_t>(c_.channels);
      CausalConvParams params;
      params.in = bed_.Put(in);
      params.in_stride = data_.width;
      params.channels = params.out_stride = c_.channels;
      params.taps = c_.taps;
      params.weight = weight_;
      params.bias = bias_;
      params.silu = c_.silu;
      params.gated = c_.gated;
      if (c_.narrow) params.narrow = bed_.New<uint16_t>(n);
      if (!c_.narrow) params.out = bed_.New<float>(n);
      params.runs = states_.Runs(pieces, padding);
      params.pages = states_.Pages(states_.layer().inputs);
      bed_.Check(LaunchCausalConv(bed_.runtime(), bed_.stream(), params));
      std::vector<float> rows;
      if (c_.narrow) {
        for (const uint16_t bits : bed_.Get(params.narrow, n)) rows.push_back(Widen(bits));
      } else {
        rows = bed_.Get(params.out, n);
      }
      out.insert(out.end(), rows.begin() + TokensBefore(pieces) * c_.channels, rows.end());
    }
    return out;
  }

  std::vector<float> Cpu(const std::vector<std::vector<Piece>>& launches) {
    std::vector<float> out;
    for (const std::vector<Piece>& pieces : launches) {
      const std::vector<float> in = RowsOf(pieces, data_.own, data_.others, data_.width);
      const size_t tokens = in.size() / static_cast<size_t>(data_.width);
      std::vector<float> rows(tokens * static_cast<size_t>(c_.channels));
      cpu::ConvJob job;
      job.in = in.data();
      job.in_stride = data_.width;
      job.channels = c_.channels;
      job.taps = c_.taps;
      job.weight = data_.weight.data();
      job.bias = c_.bias ? data_.bias.data() : nullptr;
      job.silu = c_.silu;
      job.gated = c_.gated;
      job.out = rows.data();
      job.out_stride = c_.channels;
      job.pages = states_.HostPages(states_.layer().inputs);
      job.rows = states_.HostRows(pieces);
      const int units = (c_.channels + kStateChannels - 1) / kStateChannels;
      for (size_t row = 0; row < job.rows.size(); ++row) {
        cpu::CausalConv<cpu::Vec16Plain>(job, static_cast<int>(row), 0, units);
      }
      out.insert(out.end(), rows.begin() + kNeighbours * c_.channels, rows.end());
    }
    if (c_.narrow) {
      for (float& x : out) x = Widen(device::Bf16Bits(x));
    }
    return out;
  }

  double Exact(int token, int channel) const {
    double sum = c_.bias ? data_.bias[static_cast<size_t>(channel)] : 0.0;
    const auto in = [&](int t, int part) {
      return static_cast<double>(
          data_.own[static_cast<size_t>(t * data_.width + part * c_.channels + channel)]);
    };
    for (int j = 0; j < c_.taps; ++j) {
      const int at = token - c_.taps + 1 + j;
      if (at < 0) continue;
      const double x = c_.gated ? in(at, 0) * in(at, 2) : in(at, 0);
      sum += data_.weight[static_cast<size_t>(j * c_.channels + channel)] * x;
    }
    if (c_.silu) sum /= 1.0 + std::exp(-sum);
    return c_.gated ? in(token, 1) * sum : sum;
  }

  DeviceBed& bed() { return bed_; }
  StateBed& states() { return states_; }
  // Of inputs, outputs and the state at the end, and for each run of the weights and of the inputs
  // before it.
  double BytesOnce(int tokens) const {
    const int kept = c_.taps - 1;
    const int runs = (tokens + kStateRun - 1) / kStateRun;
    const int vectors = runs * (c_.taps + (c_.bias ? 1 : 0)) + (runs + 1) * kept;
    const double outputs = tokens * (c_.narrow ? 2.0 : 4.0) * c_.channels;
    return tokens * 4.0 * data_.width + outputs + 4.0 * vectors * c_.channels;
  }

 private:
  const ConvCase c_;
  const ConvData data_;
  DeviceBed bed_;
  StateBed states_;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
};

TEST(CudaCausalConv, HasTheCpusBitsNearFloat64) {
  for (const ConvCase& c :
       {ConvCase{72, 4, false, true, true}, ConvCase{520, 3, true}, ConvCase{8, 2, false, true},
        ConvCase{136, 8, true, false, true, true}, ConvCase{64, 4, true, false, false, true}}) {
    SCOPED_TRACE(testing::Message() << c.channels << " channels, taps " << c.taps);
    ConvRun run(c, static_cast<uint64_t>(c.channels));
    const auto launches = Chunks(kTokens);
    const std::vector<float> got = run.Device(launches);
    ASSERT_EQ(got, run.Cpu(launches));
    run.states().ExpectSamePages();
    for (int token = 0; token < kTokens; ++token) {
      for (int channel = 0; channel < c.channels; channel += 3) {
        const double exact = run.Exact(token, channel);
        const double slack = (c.narrow ? Bf16Rounding(exact) : 0.0) + 2e-5;
        ASSERT_NEAR(got[static_cast<size_t>(token * c.channels + channel)], exact, slack) << token;
      }
    }
  }
}

TEST(CudaCausalConv, BitsOfATokenAreTheSameInAnyChunk) {
  for (const ConvCase& c : {ConvCase{72, 4, false, true, true}, ConvCase{72, 6, true}}) {
    ConvRun whole(c, 5);
    const std::vector<float> wanted = whole.Cpu(Chunks(kTokens));
    for (const int chunk :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
      ConvRun run(c, static_cast<uint64_t>(chunk));
      const auto launches = Chunks(chunk);
      ASSERT_EQ(run.Device(launches, /*padding=*/2), wanted) << "chunks of " << chunk;
      run.Cpu(launches);
      run.states().ExpectSamePages();
    }
  }
}

TEST(CudaCausalConv, KeepsItsBudget) {
  // Two states are kept of it, whose inputs are read again.
  for (const auto& [taps, kernel] :
       {std::pair(4, "causal_conv_4"), std::pair(8, "causal_conv_8")}) {
    ConvRun run({512, taps, false, true, true}, 7);
    run.Device({{{0, 0, 64}}});
    ExpectWithinBudget(run.bed().runtime(), kernel, run.BytesOnce(64), 0);
  }
}

TEST(CudaCausalConv, WhatItCannotTakeIsRefused) {
  DeviceBed bed;
  CausalConvParams params;
  params.channels = 64;
  for (const int taps : {1, kMostTaps + 1}) {
    params.taps = taps;
    EXPECT_NE(LaunchCausalConv(bed.runtime(), bed.stream(), params), "") << taps;
  }
  params.taps = 4;
  EXPECT_EQ(LaunchCausalConv(bed.runtime(), bed.stream(), params), "");  // no rows
  params.channels = 60;
  EXPECT_NE(LaunchCausalConv(bed.runtime(), bed.stream(), params), "");
}

struct RecurCase {
  RecurrenceOp::Kind kind;
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  bool tiled = false;
};
constexpr auto kDelta = RecurrenceOp::Kind::kGatedDelta;
constexpr auto kMamba2 = RecurrenceOp::Kind::kMamba2;

class RecurRun {
 public:
  RecurRun(const RecurCase& c, uint64_t seed)
      : c_(c),
        keys_(c.key_heads * c.key_dim),
        values_(c.value_heads * c.value_dim),
        width_(2 * keys_ + values_),
        gates_width_(c.kind == kDelta ? 2 * c.value_heads : c.value_heads),
        bed_(seed),
        states_(bed_, {.channels = 64,
                       .taps = 2,
                       .heads = c.value_heads,
                       .key_dim = c.key_dim,
                       .value_dim = c.value_dim}) {
    const auto heads = static_cast<size_t>(c.value_heads);
    own_ = RandomFloats(size_t{kTokens} * static_cast<size_t>(width_), 31);
    others_ = RandomFloats(size_t{kNeighbours} * static_cast<size_t>(width_), 32);
    own_gates_ = RandomFloats(size_t{kTokens} * static_cast<size_t>(gates_width_), 33);
    other_gates_ = RandomFloats(size_t{kNeighbours} * static_cast<size_t>(gates_width_), 34);
    bias_ = RandomFloats(heads, 35);
    skip_ = RandomFloats(heads, 36);
    for (size_t head = 0; head < heads; ++head) decay_.push_back(-0.02f - 0.1f * head);
    params_.kind = c.kind;
    params_.tiled = c.tiled;
    params_.key_heads = c.key_heads;
    params_.value_heads = c.value_heads;
    params_.key_dim = c.key_dim;
    params_.value_dim = c.value_dim;
    params_.decay = bed_.Put(decay_);
    params_.bias = bed_.Put(bias_);
    if (c.kind == kMamba2) params_.skip = bed_.Put(skip_);
    params_.in_stride = width_;
    params_.gates_stride = gates_width_;
    params_.out_stride = values_;
    params_.pages = states_.Pages(states_.layer().matrices);
  }

  std::vector<float> Device(const std::vector<std::vector<Piece>>& launches, int padding = 0) {
    std::vector<float> out;
    for (const std::vector<Piece>& pieces : launches) {
      const std::vector<float> in = RowsOf(pieces, own_, others_, width_);
      const size_t n = in.size() / static_cast<size_t>(width_) * static_cast<size_t>(values_);
      params_.in = bed_.Put(in);
      params_.gates = bed_.Put(RowsOf(pieces, own_gates_, other_gates_, gates_width_));
      params_.out = bed_.New<float>(n);
      params_.runs = states_.Runs(pieces, padding);
      bed_.Check(LaunchRecurrence(bed_.runtime(), bed_.stream(), params_));
      const std::vector<float> rows = bed_.Get(params_.out, n);
      out.insert(out.end(), rows.begin() + TokensBefore(pieces) * values_, rows.end());
    }
    return out;
  }

  std::vector<float> Cpu(const std::vector<std::vector<Piece>>& launches) {
    std::vector<float> out;
    for (const std::vector<Piece>& pieces : launches) {
      std::vector<float> in = RowsOf(pieces, own_, others_, width_);
      const std::vector<float> gates = RowsOf(pieces, own_gates_, other_gates_, gates_width_);
      const int tokens = static_cast<int>(in.size()) / width_;
      std::vector<float> factors(static_cast<size_t>(2 * c_.value_heads * tokens));
      std::vector<float> rows(static_cast<size_t>(values_ * tokens));
      const cpu::RecurrenceJob job = HostJob(pieces, in, gates, factors, rows);
      cpu::PrepareRecurrence<cpu::Vec16Plain>(job, 0, tokens);
      std::vector<float> scratch(static_cast<size_t>(16 * c_.key_dim));
      for (int row = 0; row < static_cast<int>(pieces.size()); ++row) {
        for (int head = 0; head < c_.value_heads; ++head) {
          for (int strip = 0; strip < (c_.value_dim + 15) / 16; ++strip) {
            cpu::Recur<cpu::Vec16Plain>(job, {row, head, strip}, scratch.data());
          }
        }
      }
      out.insert(out.end(), rows.begin() + kNeighbours * values_, rows.end());
    }
    return out;
  }

  // Of the first token on, [tokens][values].
  std::vector<double> Exact() const;

  DeviceBed& bed() { return bed_; }
  StateBed& states() { return states_; }
  // Of a row of one token that has a state: read and written once.
  double BytesOnce() const {
    const double state = 4.0 * c_.value_heads * c_.key_dim * c_.value_dim;
    return 2 * state + 4.0 * (width_ + gates_width_ + values_);
  }

 private:
  cpu::RecurrenceJob HostJob(const std::vector<Piece>& pieces, std::vector<float>& in,
                             const std::vector<float>& gates, std::vector<float>& factors,
                             std::vector<float>& rows) {
    const bool delta = c_.kind == kDelta;
    cpu::RecurrenceJob job;
    job.kind = c_.kind;
    job.key_heads = c_.key_heads;
    job.tiled = c_.tiled;
    job.value_heads = c_.value_heads;
    job.key_dim = c_.key_dim;
    job.value_dim = c_.value_dim;
    job.decay = decay_.data();
    job.bias = bias_.data();
    job.skip = delta ? nullptr : skip_.data();
    job.in = in.data();
    job.in_stride = width_;
    job.q = delta ? 0 : values_ + keys_;
    job.k = delta ? keys_ : values_;
    job.v = delta ? 2 * keys_ : 0;
    job.gates = gates.data();
    job.gates_stride = gates_width_;
    job.factors = factors.data();
    job.factors_stride = 2 * c_.value_heads;
    job.out = rows.data();
    job.out_stride = values_;
    job.pages = states_.HostPages(states_.layer().matrices);
    job.rows = states_.HostRows(pieces);
    return job;
  }

  const RecurCase c_;
  const int keys_, values_, width_, gates_width_;
  DeviceBed bed_;
  StateBed states_;
  std::vector<float> own_, others_, own_gates_, other_gates_, decay_, bias_, skip_;
  RecurrenceParams params_;
};

std::vector<double> RecurRun::Exact() const {
  const bool delta = c_.kind == kDelta;
  std::vector<double> all(static_cast<size_t>(kTokens * values_));
  for (int head = 0; head < c_.value_heads; ++head) {
    const int key_head = c_.tiled ? head % c_.key_heads : head / (c_.value_heads / c_.key_heads);
    std::vector<double> s(static_cast<size_t>(c_.key_dim * c_.value_dim));
    for (int t = 0; t < kTokens; ++t) {
      const float* in = own_.data() + t * width_;
      const float* q = in + (delta ? 0 : values_ + keys_) + key_head * c_.key_dim;
      const float* k = in + (delta ? keys_ : values_) + key_head * c_.key_dim;
      const float* v = in + (delta ? 2 * keys_ : 0) + head * c_.value_dim;
      double q_by = 1.0, k_by = 1.0;
      if (delta) {
        double q_length = 1e-6, k_length = 1e-6;
        for (int i = 0; i < c_.key_dim; ++i) {
          q_length += double{q[i]} * q[i];
          k_length += double{k[i]} * k[i];
        }
        q_by = 1.0 / std::sqrt(q_length * c_.key_dim);
        k_by = 1.0 / std::sqrt(k_length);
      }
      const float* gates = own_gates_.data() + t * gates_width_;
      const auto h = static_cast<size_t>(head);
      const double step =
          std::log1p(std::exp(double{gates[delta ? c_.value_heads + head : head]} + bias_[h]));
      const double g = std::exp(decay_[h] * step);
      const double b = delta ? 1.0 / (1.0 + std::exp(-double{gates[head]})) : step;
      for (int j = 0; j < c_.value_dim; ++j) {
        double* column = s.data() + j * c_.key_dim;
        double seen = 0.0, out = 0.0;
        for (int i = 0; i < c_.key_dim; ++i) seen += k_by * k[i] * (column[i] *= g);
        const double change = b * (v[j] - (delta ? seen : 0.0));
        for (int i = 0; i < c_.key_dim; ++i) {
          column[i] += k_by * k[i] * change;
          out += q_by * q[i] * column[i];
        }
        if (!delta) out += double{skip_[h]} * v[j];
        all[static_cast<size_t>(t * values_ + head * c_.value_dim + j)] = out;
      }
    }
  }
  return all;
}

const RecurCase kCases[] = {{kDelta, 2, 4, 20, 24},   {kDelta, 2, 6, 16, 8, true},
                            {kDelta, 1, 2, 132, 40},  {kMamba2, 1, 3, 19, 9},
                            {kMamba2, 2, 2, 128, 33}, {kMamba2, 1, 1, 256, 16}};

TEST(CudaRecurrence, HasTheCpusBitsNearFloat64) {
  for (const RecurCase& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.key_dim << " keys, " << c.value_dim << " values");
    RecurRun run(c, static_cast<uint64_t>(c.key_dim));
    const auto launches = Chunks(kTokens);
    const std::vector<float> got = run.Device(launches);
    ASSERT_EQ(got, run.Cpu(launches));
    run.states().ExpectSamePages();
    const std::vector<double> exact = run.Exact();
    double largest = 0.0;
    for (const double x : exact) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(got[i], exact[i], 1e-5 * largest) << i;
  }
}

TEST(CudaRecurrence, BitsOfATokenAreTheSameInAnyChunk) {
  for (const RecurCase& c : {RecurCase{kDelta, 1, 2, 20, 8}, RecurCase{kMamba2, 1, 2, 20, 8}}) {
    RecurRun whole(c, 6);
    const std::vector<float> wanted = whole.Cpu(Chunks(kTokens));
    for (const int chunk :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
      RecurRun run(c, static_cast<uint64_t>(chunk));
      const auto launches = Chunks(chunk);
      ASSERT_EQ(run.Device(launches, /*padding=*/2), wanted) << "chunks of " << chunk;
      run.Cpu(launches);
      run.states().ExpectSamePages();
    }
  }
}

TEST(CudaRecurrence, KeepsItsBudget) {
  // Decoding: the state is nearly all.
  for (const auto& [c, kernel] : {std::pair(RecurCase{kDelta, 1, 2, 128, 128}, "gated_delta_128"),
                                  std::pair(RecurCase{kDelta, 1, 1, 256, 64}, "gated_delta_256"),
                                  std::pair(RecurCase{kMamba2, 1, 2, 128, 64}, "mamba2_128"),
                                  std::pair(RecurCase{kMamba2, 1, 1, 256, 64}, "mamba2_256")}) {
    RecurRun run(c, 8);
    run.Device({{{0, 70, 1}}});
    ExpectWithinBudget(run.bed().runtime(), kernel, run.BytesOnce(), 0);
  }
}

TEST(CudaRecurrence, WhatItCannotTakeIsRefused) {
  DeviceBed bed;
  RecurrenceParams params;
  params.key_heads = 2;
  params.value_heads = 4;
  params.value_dim = 8;
  for (const int keys : {0, kMostKeyDim + 1}) {
    params.key_dim = keys;
    EXPECT_NE(LaunchRecurrence(bed.runtime(), bed.stream(), params), "") << keys;
  }
  params.key_dim = 8;
  EXPECT_EQ(LaunchRecurrence(bed.runtime(), bed.stream(), params), "");  // no rows
  params.value_heads = 3;
  EXPECT_NE(LaunchRecurrence(bed.runtime(), bed.stream(), params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test

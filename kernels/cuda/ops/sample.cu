#include "kernels/cuda/ops/sample.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/ops/sample_cut.h"

namespace quire::kernels::cuda {

inline constexpr uint32_t kInfinityKey = 0xff800000u;       // OrderedKey of +∞
inline constexpr uint32_t kMinusInfinityKey = 0x007fffffu;  // of −∞

// As sampling::Peak.
struct DevicePeak {
  bool usable;
  float value;
  int32_t id;  // −1: all are −∞
};

QUIRE_DEVICE void TakeLogit(float z, int id, KeyedId& best) {
  // A NaN becomes a key above all, which the block's maximum hands on.
  if (z != z) {
    best.Take(~0ull, 0);
  } else {
    best.Take(sampling::OrderedKey(z), static_cast<uint32_t>(id));
  }
}

QUIRE_DEVICE DevicePeak PeakOf(SampleShared& shared, const RowOfLogits& row, KeyedId own) {
  const KeyedId best = BlockBest(shared, own);
  DevicePeak peak{best.key < kInfinityKey, FloatOfBits(kMinusInfinityBits), -1};
  if (!peak.usable || best.key <= kMinusInfinityKey) return peak;
  peak.id = static_cast<int32_t>(best.id);
  peak.value = row.Get(peak.id);
  return peak;
}

// The one pass over global memory: keeps what fits in shared memory, finds the peak.
QUIRE_DEVICE DevicePeak ReadRow(SampleShared& shared, const RowOfLogits& row) {
  KeyedId best;
  const int vectors = row.count / 4;
  for (int v = ThreadIndex(); v < vectors; v += kSampleThreads) {
    const Vector16 four = Load16(row.global + 4 * v);
    if (4 * v < row.cached) Store16(row.cache + 4 * v, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) TakeLogit(FloatOfBits(four.word[i]), 4 * v + i, best);
  }
  const int id = 4 * vectors + ThreadIndex();
  if (id < row.count) {
    const float z = row.global[id];
    if (id < row.cached) row.cache[id] = z;
    TakeLogit(z, id, best);
  }
  BlockBarrier();
  return PeakOf(shared, row, best);
}

QUIRE_DEVICE DevicePeak FindPeak(SampleShared& shared, const RowOfLogits& row) {
  KeyedId best;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    TakeLogit(row.Get(id), id, best);
  }
  return PeakOf(shared, row, best);
}

// --- what is told of the raw row -----------------------------------------------------------------

// What turns a raw logit into a logprob.
struct Logprobs {
  double peak;
  double log_sum;

  QUIRE_DEVICE float Of(float z) const {
    return static_cast<float>((static_cast<double>(z) - peak) - log_sum);
  }
};

QUIRE_DEVICE double LogOfRawMass(SampleShared& shared, const RowOfLogits& row, float peak) {
  uint64_t mass = 0;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    mass += sampling::Mass(sampling::ExpOfNegative(row.Get(id) - peak));
  }
  const uint64_t total = BlockSum(shared, mass);
  return sampling::Log(static_cast<double>(total) / sampling::kMassUnit);
}

// The best `wanted` raw logits, in order, to the output.
QUIRE_DEVICE void TellTop(SampleShared& shared, const RowOfLogits& row, int wanted,
                          const Logprobs& logprobs, SampleOutput& output) {
  InPlay possible;
  Measure measure;
  measure.origin = static_cast<float>(logprobs.peak);
  CutTarget target;
  target.known = true;
  target.weight = static_cast<uint64_t>(wanted);
  possible.nearest = Cut(shared, row, possible, measure, target);
  List(shared, row, possible, [](int, float) { return true; });
  // The place of each among at most 20 is the number of those that come before it.
  const int count = static_cast<int>(shared.listed);
  if (ThreadIndex() < count) {
    const float value = shared.list_values[ThreadIndex()];
    const int32_t id = shared.list_ids[ThreadIndex()];
    int place = 0;
    for (int i = 0; i < count; ++i) {
      const float other = shared.list_values[i];
      place += other > value || (other == value && shared.list_ids[i] < id) ? 1 : 0;
    }
    output.top_ids[place] = id;
    output.top_logprobs[place] = logprobs.Of(value);
  }
  if (ThreadIndex() == 0) output.top_count = count;
}

QUIRE_DEVICE int32_t RankOf(SampleShared& shared, const RowOfLogits& row, int token) {
  const float own = row.Get(token);
  uint64_t before = 0;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    const float z = row.Get(id);
    before += z > own || (z == own && id < token) ? 1 : 0;
  }
  return 1 + static_cast<int32_t>(BlockSum(shared, before));
}

// --- changes -------------------------------------------------------------------------------------

// f(first entry of the id, entries of the id) for this thread's entries of a list sorted by id:
// equal ids are one thread's work.
template <class Entry, class F>
QUIRE_DEVICE void EachId(const RowOfLogits& row, const Entry* list, int count, const F& f) {
  for (int first = ThreadIndex(); first < count; first += kSampleThreads) {
    const int32_t id = list[first].id;
    if (id < 0 || id >= row.count || (first > 0 && list[first - 1].id == id)) continue;
    int end = first + 1;
    while (end < count && list[end].id == id) ++end;
    f(id, first, end);
  }
}

QUIRE_DEVICE void KeepRaw(const RowOfLogits& row, const DeviceSampleRow& how) {
  EachId(row, how.logit_bias, how.bias_count,
         [&](int id, int first, int) { how.raw_biased[first] = row.Get(id); });
  EachId(row, how.token_counts, how.token_count,
         [&](int id, int first, int) { how.raw_counted[first] = row.Get(id); });
  BlockBarrier();
}

QUIRE_DEVICE void ChangeLogits(const RowOfLogits& row, const DeviceSampleRow& how) {
  if (how.mask_words > 0) {
    for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
      const uint32_t word = id / 32 < how.mask_words ? how.allowed_mask[id / 32] : 0u;
      if ((word >> (id % 32) & 1u) == 0) *row.At(id) = FloatOfBits(kMinusInfinityBits);
    }
    BlockBarrier();
  }
  // An id may be banned twice: atomics, which may meet.
  for (int i = ThreadIndex(); i < how.banned_count; i += kSampleThreads) {
    const int32_t id = how.banned_ids[i];
    if (id < 0 || id >= row.count) continue;
    AtomicExchange(reinterpret_cast<uint32_t*>(row.At(id)), kMinusInfinityBits);
  }
  BlockBarrier();
  EachId(row, how.logit_bias, how.bias_count, [&](int id, int first, int end) {
    float z = row.Get(id);
    for (int i = first; i < end; ++i) z = z + how.logit_bias[i].bias;
    *row.At(id) = z;
  });
  BlockBarrier();
  EachId(row, how.token_counts, how.token_count, [&](int id, int first, int end) {
    float z = row.Get(id);
    for (int i = first; i < end; ++i) {
      z = sampling::Penalise(z, how.token_counts[i].output_count, how.repetition_penalty,
                             how.frequency_penalty, how.presence_penalty);
    }
    *row.At(id) = z;
  });
  BlockBarrier();
}

// The raw logit of the chosen token. What lies in shared memory was changed there alone.
QUIRE_DEVICE float RawOf(SampleShared& shared, const RowOfLogits& row, int token) {
  const DeviceSampleRow& how = shared.row;
  if (how.changes == 0) return row.Get(token);
  BlockBarrier();
  if (ThreadIndex() == 0) shared.found = 0;
  BlockBarrier();
  EachId(row, how.logit_bias, how.bias_count, [&](int id, int first, int) {
    if (id != token) return;
    shared.raw_biased = how.raw_biased[first];
    AtomicAdd(&shared.found, 1u);
  });
  EachId(row, how.token_counts, how.token_count, [&](int id, int first, int) {
    if (id != token) return;
    shared.raw_counted = how.raw_counted[first];
    AtomicAdd(&shared.found, 2u);
  });
  BlockBarrier();
  const uint32_t found = shared.found;
  if ((found & 1u) != 0) return shared.raw_biased;
  return (found & 2u) != 0 ? shared.raw_counted : row.global[token];
}

// --- the draw ------------------------------------------------------------------------------------

QUIRE_DEVICE uint64_t KeyOfScore(double score) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, score + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}

// A thread's best score so far. With u a token's random number and `missing` the upper 24 bits of
// 1 − u, its noise is at most −ln(missing / 2^24): where e^distance · 2^24 · e^−best is below
// `missing`, the token is out of reach. The factor leaves room for rounding.
struct BestScore {
  bool some = false;
  double score = 0.0;
  uint32_t id = 0xffffffffu;
  float scale = 0.0f;

  QUIRE_DEVICE void Consider(const sampling::NoisePosition& at, int token, float distance) {
    if (some && OutOfReach(at, token, distance)) return;
    const double own =
        static_cast<double>(distance) + sampling::Gumbel(at, static_cast<uint32_t>(token));
    const uint32_t own_id = static_cast<uint32_t>(token);
    if (some && !(own > score || (own == score && own_id < id))) return;
    some = true;
    score = own;
    id = own_id;
    const float rounded = static_cast<float>(own);
    const float e = rounded >= 0.0f ? sampling::ExpOfNegative(-rounded)
                                    : 1.0f / sampling::ExpOfNegative(rounded);
    scale = 16777216.0f * 1.0001f * e;
  }

  QUIRE_DEVICE bool OutOfReach(const sampling::NoisePosition& at, int token, float distance) const {
    if (static_cast<double>(distance) + sampling::kLargestGumbel < score) return true;
    const uint32_t high = static_cast<uint32_t>(at.output_index >> 32);
    const sampling::PhiloxBlock counter{{static_cast<uint32_t>(token),
                                         static_cast<uint32_t>(at.output_index), at.choice,
                                         static_cast<uint32_t>(at.purpose) ^ (high << 8)}};
    const sampling::PhiloxBlock random = sampling::Philox(counter, static_cast<uint32_t>(at.seed),
                                                          static_cast<uint32_t>(at.seed >> 32));
    const float missing = static_cast<float>(static_cast<int>(~random.word[0] >> 8));
    return sampling::ExpOfNegative(distance) * scale < missing;
  }
};

QUIRE_DEVICE int32_t DrawOne(SampleShared& shared, const RowOfLogits& row, const InPlay& in_play,
                             int peak_id) {
  const DeviceSampleRow& how = shared.row;
  const sampling::NoisePosition at{how.seed, how.output_index, how.choice,
                                   sampling::Purpose::kSample};
  BestScore best;
  if (in_play.Has(peak_id, 0.0f)) best.Consider(at, peak_id, 0.0f);
  in_play.Each(row, [&](int id, float distance) {
    if (id != peak_id) best.Consider(at, id, distance);
  });
  KeyedId own;
  if (best.some) own.Take(KeyOfScore(best.score), best.id);
  return static_cast<int32_t>(BlockBest(shared, own).id);
}

QUIRE_DEVICE void CutToTypical(SampleShared& shared, const RowOfLogits& row, InPlay& in_play) {
  uint64_t mass = 0;
  uint64_t weighted = 0;
  in_play.Each(row, [&](int, float distance) {
    const float weight = sampling::ExpOfNegative(distance);
    mass += sampling::Mass(weight);
    weighted += sampling::Mass(-distance * weight);
  });
  mass = BlockSum(shared, mass);
  weighted = BlockSum(shared, weighted);
  const float mean = -static_cast<float>(static_cast<double>(weighted) / static_cast<double>(mass));
  const Measure measure{mean, true, true};
  CutTarget target;
  target.share = shared.row.typical_p;
  const Threshold typical = Cut(shared, row, in_play, measure, target);
  in_play.mean = mean;
  in_play.typical = typical;
  in_play.cut_to_typical = true;
}

QUIRE_DEVICE int32_t Draw(SampleShared& shared, const RowOfLogits& row, const DevicePeak& peak) {
  const DeviceSampleRow& how = shared.row;
  InPlay in_play;
  in_play.peak = peak.value;
  in_play.temperature = how.temperature;
  in_play.min_p = how.min_p;
  Measure measure;
  CutTarget target;
  if (how.top_k > 0) {
    target.known = true;
    target.weight = static_cast<uint64_t>(how.top_k);
    in_play.nearest = Cut(shared, row, in_play, measure, target);
  }
  if (how.top_p < 1.0f) {
    measure.by_mass = true;
    target.known = false;
    target.share = how.top_p;
    in_play.nearest = Cut(shared, row, in_play, measure, target);
  }
  if (how.typical_p < 1.0f) CutToTypical(shared, row, in_play);
  return DrawOne(shared, row, in_play, peak.id);
}

// --- the whole -----------------------------------------------------------------------------------

QUIRE_DEVICE void ClearOutput(SampleOutput& output) {
  if (ThreadIndex() < kMaxTopLogprobs) {
    output.top_ids[ThreadIndex()] = 0;
    output.top_logprobs[ThreadIndex()] = 0.0f;
  }
  if (ThreadIndex() == 0) {
    output.token = -1;
    output.not_a_number = false;
    output.logprob = 0.0f;
    output.rank = 0;
    output.top_count = 0;
  }
  BlockBarrier();
}

// Before the changes: logprobs of the best, and all of a scored token. True when that was all.
QUIRE_DEVICE bool TellRaw(SampleShared& shared, const RowOfLogits& row, Logprobs& logprobs,
                          SampleOutput& output) {
  const DeviceSampleRow& how = shared.row;
  if (how.logprobs > 0) {
    logprobs.log_sum = LogOfRawMass(shared, row, static_cast<float>(logprobs.peak));
    const int wanted = how.logprobs - 1 < kMaxTopLogprobs ? how.logprobs - 1 : kMaxTopLogprobs;
    if (wanted > 0) TellTop(shared, row, wanted, logprobs, output);
  }
  if (how.scored_token < 0) return false;
  const int32_t rank = RankOf(shared, row, how.scored_token);
  if (ThreadIndex() == 0) {
    output.token = how.scored_token;
    output.rank = rank;
    output.logprob = logprobs.Of(row.Get(how.scored_token));
  }
  return true;
}

QUIRE_KERNEL(sample, SampleParams, kSampleThreads, 1) {
  SampleShared& shared = *Shared<SampleShared>();
  const int r = BlockX();
  SampleOutput& output = params.outputs[r];
  {
    const auto* words = reinterpret_cast<const uint32_t*>(params.sample_rows + r);
    constexpr int kWords = sizeof(DeviceSampleRow) / 4;
    if (ThreadIndex() < kWords) {
      reinterpret_cast<uint32_t*>(&shared.row)[ThreadIndex()] = words[ThreadIndex()];
    }
  }
  ClearOutput(output);
  const DeviceSampleRow& how = shared.row;
  const RowOfLogits row{params.logits + r * params.stride, Shared<float>(kSampleFixedBytes),
                        params.cached, params.vocabulary};
  DevicePeak peak = ReadRow(shared, row);
  if (peak.id < 0) {
    if (ThreadIndex() == 0) output.not_a_number = !peak.usable;
    return;
  }
  Logprobs logprobs{static_cast<double>(peak.value), 0.0};
  if (TellRaw(shared, row, logprobs, output)) return;
  if (how.changes != 0) {
    BlockBarrier();  // everyone is done with the raw row
    if (how.logprobs > 0) KeepRaw(row, how);
    ChangeLogits(row, how);
    peak = FindPeak(shared, row);
    if (peak.id < 0) {
      if (ThreadIndex() == 0) output.not_a_number = !peak.usable;
      return;
    }
  }
  const int32_t token = how.temperature < 1e-5f ? peak.id : Draw(shared, row, peak);
  float raw = 0.0f;
  if (how.logprobs > 0 && token >= 0) raw = RawOf(shared, row, token);
  if (ThreadIndex() == 0) {
    output.token = token;
    if (how.logprobs > 0 && token >= 0) output.logprob = logprobs.Of(raw);
  }
}

namespace {

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

constexpr size_t RoundUp(size_t bytes) { return (bytes + 15) / 16 * 16; }

// Lays lists one behind another in the packed buffer.
struct Packer {
  std::byte* host;
  std::byte* device;
  size_t used = 0;

  // Room for `count` of T: where it will lie on the device.
  template <class T>
  T* Room(size_t count) {
    T* at = reinterpret_cast<T*>(device + used);
    used += RoundUp(count * sizeof(T));
    return at;
  }
  template <class T>
  const T* Add(std::span<const T> list) {
    if (host != nullptr && !list.empty()) memcpy(host + used, list.data(), list.size_bytes());
    return Room<T>(list.size());
  }
};

DeviceSampleRow PackRow(const SampleRow& row, Packer& packer) {
  DeviceSampleRow out{};
  out.temperature = row.temperature;
  out.top_p = row.top_p;
  out.min_p = row.min_p;
  out.typical_p = row.typical_p;
  out.repetition_penalty = row.repetition_penalty;
  out.frequency_penalty = row.frequency_penalty;
  out.presence_penalty = row.presence_penalty;
  out.top_k = row.top_k;
  out.seed = row.seed;
  out.output_index = row.output_index;
  out.choice = row.choice;
  out.logprobs = row.logprobs;
  out.scored_token = row.scored_token;
  const auto counts = HasPenalties(row) ? row.token_counts : std::span<const TokenCount>();
  out.mask_words = static_cast<int32_t>(row.allowed_mask.size());
  out.banned_count = static_cast<int32_t>(row.banned_ids.size());
  out.bias_count = static_cast<int32_t>(row.logit_bias.size());
  out.token_count = static_cast<int32_t>(counts.size());
  out.changes = out.mask_words + out.banned_count + out.bias_count + out.token_count > 0 ? 1 : 0;
  out.allowed_mask = packer.Add(row.allowed_mask);
  out.banned_ids = packer.Add(row.banned_ids);
  out.logit_bias = packer.Add(row.logit_bias);
  out.token_counts = packer.Add(counts);
  out.raw_biased = packer.Room<float>(row.logit_bias.size());
  out.raw_counted = packer.Room<float>(counts.size());
  return out;
}

bool IsPlain(const DeviceSampleRow& row) {
  return row.temperature < 1e-5f && row.changes == 0 && row.logprobs <= 0 && row.scored_token < 0;
}

}  // namespace

size_t PackedSampleRowsBytes(std::span<const SampleRow> rows) {
  Packer packer{nullptr, nullptr};
  packer.Room<DeviceSampleRow>(rows.size());
  for (const SampleRow& row : rows) PackRow(row, packer);
  return packer.used;
}

bool PackSampleRows(std::span<const SampleRow> rows, void* host, void* device) {
  Packer packer{static_cast<std::byte*>(host), static_cast<std::byte*>(device)};
  packer.Room<DeviceSampleRow>(rows.size());
  bool plain = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    const DeviceSampleRow row = PackRow(rows[i], packer);
    plain = plain && IsPlain(row);
    memcpy(static_cast<std::byte*>(host) + i * sizeof(row), &row, sizeof(row));
  }
  return plain;
}

runtime::Error LaunchSample(runtime::Runtime& runtime, runtime::StreamId stream,
                            SampleParams params) {
  static_assert(kSampleFixedBytes <= runtime::kLeastSharedBytes / 2);
  if (params.vocabulary <= 0 || params.vocabulary >= 1 << 24 || params.stride % 4 != 0 ||
      params.stride < params.vocabulary) {
    return "sample: " + std::to_string(params.vocabulary) + " ids in rows of " +
           std::to_string(params.stride) +
           " logits: 1 to 16777215 in rows of a multiple of 4 are needed";
  }
  if (params.rows <= 0) return {};
  const auto room = static_cast<int>((runtime.SharedBytesPerBlock() - kSampleFixedBytes) / 16 * 4);
  params.cached = params.plain ? 0 : std::min({params.vocabulary, kCachedLogits, room});
  const auto bytes = static_cast<uint32_t>(kSampleFixedBytes + (params.cached + 3) / 4 * 16);
  return runtime.Launch(stream, QUIRE_KERNEL_OF(sample, kSampleThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows), 1, bytes, params));
}

}  // namespace quire::kernels::cuda

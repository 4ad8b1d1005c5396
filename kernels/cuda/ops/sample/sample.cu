#include "kernels/cuda/ops/sample/sample.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/ops/sample/sample_changes.h"
#include "kernels/cuda/ops/sample/sample_draw.h"
#include "kernels/cuda/ops/sample/sample_raw.h"

namespace quire::kernels::cuda {

// Before the changes: logprobs of the best, and all of a scored token. True when that was all.
QUIRE_DEVICE bool TellRaw(SampleShared& shared, const RowOfLogits& row, Logprobs& logprobs,
                          SampleOutput& output) {
  const DeviceSampleRow& how = shared.row;
  if (how.logprobs > 0) {
    const auto peak = static_cast<float>(logprobs.peak);
    logprobs.log_sum = LogOfMass(RawMass(shared, row, peak));
    const int wanted = TopWanted(how);
    if (wanted > 0) {
      ListTop(shared, row, wanted, peak);
      TellTop(shared, static_cast<int>(shared.listed), wanted, logprobs, output);
    }
  }
  if (how.scored_token < 0) return false;
  const float own = row.Get(how.scored_token);
  const uint64_t before = CountBefore(shared, row, own, how.scored_token);
  if (ThreadIndex() == 0) {
    output.token = how.scored_token;
    output.rank = 1 + static_cast<int32_t>(before);
    output.logprob = logprobs.Of(own);
  }
  return true;
}

QUIRE_KERNEL(sample, SampleParams, kSampleThreads, 1) {
  SampleShared& shared = *Shared<SampleShared>();
  const int r = BlockX();
  SampleOutput& output = params.outputs[r];
  LoadWords(shared.row, params.sample_rows[r]);
  ClearOutput(output);
  const DeviceSampleRow& how = shared.row;
  const RowOfLogits row{params.logits + r * params.stride, Shared<float>(kSampleFixedBytes),
                        params.cached, params.vocabulary};
  DevicePeak peak = PeakOf(row, ReadRow(shared, row));
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
    peak = PeakOf(row, FindPeak(shared, row));
    if (peak.id < 0) {
      if (ThreadIndex() == 0) output.not_a_number = !peak.usable;
      return;
    }
  }
  int32_t token = peak.id;
  if (how.temperature >= kLeastTemperature) {
    token = static_cast<int32_t>(Draw(shared, row, AllInPlay(how, peak.value), peak.id).id);
  }
  if (ThreadIndex() == 0) {
    output.token = token;
    if (how.logprobs > 0 && token >= 0) output.logprob = logprobs.Of(RawOf(row, how, token));
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

  // Room for `count` of T: its place on the device.
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
  static_cast<SampleNumbers&>(out) = row;
  out.output_index = row.output_index;
  out.choice = row.choice;
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
  return row.temperature < kLeastTemperature && row.changes == 0 && row.logprobs <= 0 &&
         row.scored_token < 0;
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

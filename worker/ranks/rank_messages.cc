#include "worker/ranks/rank_messages.h"

#define XXH_STATIC_LINKING_ONLY  // a state on the stack
#include <xxhash.h>

#include <algorithm>

#include "common/wire/sampling.h"
#include "worker/runner/flat_bytes.h"
#include "worker/runner/step_masks.h"

namespace quire {
namespace {

absl::Status Damaged(const char* what) {
  return InvalidArgument(std::string("the rank's ") + what + " is damaged or beyond its limits");
}

void PutTop(FlatWriter& out, const TopRange& top) {
  out.Put(top.begin);
  out.Put(top.count);
}

void GetTop(FlatReader& in, TopRange& top) {
  top.begin = in.Get<uint32_t>();
  top.count = static_cast<uint32_t>(in.InRange(0, kMaxLogprobs + 1));
}

// The lists that samples and scores point into have been read after them.
bool TopsHold(const StepResult& step, int32_t vocab_size) {
  const uint64_t size = step.top_ids.size();
  const auto within = [size](const auto& token) {
    return uint64_t{token.top.begin} + token.top.count <= size;
  };
  const auto known = [vocab_size](TokenId id) { return id >= 0 && id < vocab_size; };
  return size == step.top_logprobs.size() &&
         std::all_of(step.top_ids.begin(), step.top_ids.end(), known) &&
         std::all_of(step.samples.begin(), step.samples.end(), within) &&
         std::all_of(step.scores.begin(), step.scores.end(), within);
}

void PutSample(FlatWriter& out, const SampledToken& sample) {
  out.Put(sample.row);
  out.Put(sample.sequence);
  out.Put(sample.token);
  out.Put<uint8_t>(sample.not_a_number ? 1 : 0);
  out.Put(sample.logprob);
  PutTop(out, sample.top);
}

bool GetSample(FlatReader& in, const StepLimits& limits, SampledToken& sample) {
  sample.row = in.InRange(0, limits.max_rows);
  sample.sequence = in.Get<uint64_t>();
  sample.token = in.InRange(-1, limits.vocab_size);
  sample.not_a_number = in.GetFlag();
  sample.logprob = in.Get<float>();
  GetTop(in, sample.top);
  return in.ok();
}

void PutScore(FlatWriter& out, const ScoredToken& score) {
  out.Put(score.position);
  out.Put<uint8_t>(score.not_a_number ? 1 : 0);
  out.Put(score.logprob);
  out.Put(score.rank);
  PutTop(out, score.top);
}

bool GetScore(FlatReader& in, const StepLimits& limits, ScoredToken& score) {
  score.position = in.InRange(0, int64_t{limits.max_model_len} + 1);
  score.not_a_number = in.GetFlag();
  score.logprob = in.Get<float>();
  score.rank = in.InRange(0, int64_t{limits.vocab_size} + 1);
  GetTop(in, score.top);
  return in.ok();
}

// Bytes that one of them takes at least.
constexpr size_t kSampleBytes = 29;
constexpr size_t kScoreBytes = 21;

constexpr int64_t kMaxDeviceBytes = int64_t{1} << 50;    // so that sums over ranks stay in range
constexpr int64_t kMaxElapsedMicros = int64_t{1} << 40;  // of a step: so that sums stay in range

}  // namespace

void EncodeRankSetup(const RankSetup& setup, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.Put(kRankMessagesVersion);
  out.Put(setup.rank);
  out.Put(setup.size);
  out.Put(setup.arena_bytes);
  for (const int32_t value :
       {setup.limits.max_rows, setup.limits.max_tokens, setup.limits.max_model_len,
        setup.limits.block_size, setup.limits.groups, setup.limits.vocab_size}) {
    out.Put(value);
  }
  out.Put(setup.limits.page_count);
  out.Put(setup.limits.max_loras);
  out.PutText(setup.text_digest);
  out.PutText(setup.device);
  out.End();
}

absl::Status DecodeRankSetup(std::span<const std::byte> bytes, RankSetup& setup) {
  FlatReader in(bytes);
  if (in.Get<uint32_t>() != kRankMessagesVersion) return Damaged("setup");
  setup.rank = in.Get<int32_t>();
  setup.size = in.Get<int32_t>();
  setup.arena_bytes = in.Get<uint64_t>();
  for (int32_t* value :
       {&setup.limits.max_rows, &setup.limits.max_tokens, &setup.limits.max_model_len,
        &setup.limits.block_size, &setup.limits.groups, &setup.limits.vocab_size}) {
    *value = in.InRange(1, INT32_MAX);
  }
  setup.limits.page_count = in.Get<int64_t>();
  setup.limits.max_loras = in.InRange(0, INT32_MAX);
  setup.text_digest = in.GetText(kMaxRankTextBytes);
  setup.device = in.GetText(kMaxRankTextBytes);
  const bool good = in.ok() && in.AtEnd() && setup.rank >= 0 && setup.rank < setup.size &&
                    setup.limits.page_count > 0 &&
                    static_cast<size_t>(setup.limits.max_rows) <= kMaxStepRows;
  return good ? absl::OkStatus() : Damaged("setup");
}

void EncodeRankAdapterSlot(const RankAdapterSlot& slot, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.Put(slot.slot);
  out.Put(slot.entry);
  out.Put(slot.number);
  out.End();
}

absl::Status DecodeRankAdapterSlot(std::span<const std::byte> bytes, const StepLimits& limits,
                                   RankAdapterSlot& slot) {
  FlatReader in(bytes);
  slot.slot = in.InRange(0, limits.max_loras);
  slot.entry = in.InRange(0, INT32_MAX);
  slot.number = in.Get<uint64_t>();
  const bool good = in.ok() && in.AtEnd() && slot.slot < limits.max_loras && slot.number > 0;
  return good ? absl::OkStatus() : Damaged("adapter");
}

void EncodeRankReady(const RankReady& ready, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.PutText(ready.identity);
  out.Put(ready.resident_bytes);
  out.Put(ready.page_count);
  out.Put(ready.device_total_bytes);
  out.Put(ready.device_free_bytes);
  out.End();
}

absl::Status DecodeRankReady(std::span<const std::byte> bytes, RankReady& ready) {
  FlatReader in(bytes);
  ready.identity = in.GetText(kMaxRankTextBytes);
  ready.resident_bytes = in.Get<int64_t>();
  ready.page_count = in.Get<int64_t>();
  ready.device_total_bytes = in.Get<int64_t>();
  ready.device_free_bytes = in.Get<int64_t>();
  const bool good = in.ok() && in.AtEnd() && ready.page_count >= 0 &&
                    ready.device_total_bytes >= 0 && ready.device_free_bytes >= 0 &&
                    ready.device_total_bytes <= kMaxDeviceBytes &&
                    ready.device_free_bytes <= ready.device_total_bytes;
  return good ? absl::OkStatus() : Damaged("greeting");
}

void EncodeRankStep(const RankStep& step, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.Put(step.wait_micros);
  out.End();
}

void EncodeRankMasks(const RankMasks& masks, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.PutList(masks.sequences);
  out.PutList(masks.words);
  out.End();
}

absl::Status DecodeRankMasks(std::span<const std::byte> bytes, const StepLimits& limits,
                             RankMasks& masks) {
  FlatReader in(bytes);
  const int64_t each = (int64_t{limits.vocab_size} + 31) / 32;
  const int64_t most = limits.max_rows + static_cast<int64_t>(kMaxMaskedDrafts);
  in.GetList(masks.sequences, most);
  in.GetList(masks.words, most * each);
  const bool fits = masks.words.size() == masks.sequences.size() * static_cast<size_t>(each);
  if (!in.ok() || !in.AtEnd() || !fits) return InvalidArgument("the masks of a step are damaged");
  return absl::OkStatus();
}

void EncodeRankResult(const RankResult& result, std::vector<std::byte>& bytes) {
  FlatWriter out(bytes);
  out.Put(result.step.number);
  out.Put(result.digest);
  out.Put(result.step.elapsed_us);
  out.Put(result.device_free_bytes);
  out.Put<uint8_t>(result.full ? 1 : 0);
  if (result.full) {
    out.Put(static_cast<uint32_t>(result.step.samples.size()));
    for (const SampledToken& sample : result.step.samples) PutSample(out, sample);
    out.Put(static_cast<uint32_t>(result.step.scores.size()));
    for (const ScoredToken& score : result.step.scores) PutScore(out, score);
    out.PutList(result.step.top_ids);
    out.PutList(result.step.top_logprobs);
  }
  out.End();
}

absl::Status DecodeRankResult(std::span<const std::byte> bytes, const StepLimits& limits,
                              RankResult& result) {
  FlatReader in(bytes);
  result.step.number = in.Get<uint64_t>();
  result.digest = in.Get<uint64_t>();
  result.step.elapsed_us = in.Get<int64_t>();
  result.device_free_bytes = in.Get<int64_t>();
  result.full = in.GetFlag();
  const bool timed = result.step.elapsed_us >= 0 && result.step.elapsed_us <= kMaxElapsedMicros;
  const bool measured =
      result.device_free_bytes >= 0 && result.device_free_bytes <= kMaxDeviceBytes;
  if (!in.ok() || !timed || !measured) return Damaged("result");
  if (!result.full) return in.AtEnd() ? absl::OkStatus() : Damaged("result");
  // Each position of a drafted row samples.
  result.step.samples.resize(in.Count(kSampleBytes, std::max(limits.max_rows, limits.max_tokens)));
  for (SampledToken& sample : result.step.samples) {
    if (!GetSample(in, limits, sample)) return Damaged("samples");
  }
  result.step.scores.resize(in.Count(kScoreBytes, limits.max_tokens));
  for (ScoredToken& score : result.step.scores) {
    if (!GetScore(in, limits, score)) return Damaged("scores");
  }
  const int64_t most_tops = (int64_t{limits.max_rows} + limits.max_tokens) * kMaxLogprobs;
  in.GetList(result.step.top_ids, most_tops);
  in.GetList(result.step.top_logprobs, most_tops);
  const bool good = in.ok() && in.AtEnd() && TopsHold(result.step, limits.vocab_size);
  return good ? absl::OkStatus() : Damaged("result");
}

uint64_t PacketDigest(std::span<const std::byte> packet) {
  return XXH3_64bits(packet.data(), packet.size());
}

uint64_t ChainDigest(uint64_t previous, uint64_t packet_digest, const StepResult& result) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  const uint64_t head[] = {previous, packet_digest, result.number, result.samples.size()};
  XXH3_64bits_update(&state, head, sizeof(head));
  for (const SampledToken& sample : result.samples) {
    const int64_t words[] = {static_cast<int64_t>(sample.sequence), sample.token,
                             sample.not_a_number ? 1 : 0};
    XXH3_64bits_update(&state, words, sizeof(words));
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace quire

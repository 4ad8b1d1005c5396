#include "worker/runner/step_packet.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstring>
#include <string>

#include "common/check.h"
#include "worker/runner/flat_bytes.h"

namespace quire {
namespace {

constexpr uint32_t kMagic = 0x31505351;  // "QSP1"

// A row travels as five numbers, as they are in memory, a byte, and three numbers.
constexpr size_t kRowHead = 20;
constexpr size_t kRowTail = 12;
constexpr size_t kRowBytes = kRowHead + 1 + kRowTail;
static_assert(offsetof(StepRow, sample) == kRowHead);
static_assert(offsetof(StepRow, score_count) == offsetof(StepRow, score_from) + 4);
static_assert(offsetof(StepRow, draft_count) == offsetof(StepRow, score_from) + 8);

using Writer = FlatWriter;
using Reader = FlatReader;

absl::Status Damaged(std::string_view part) {
  return InvalidArgument("step packet: " + std::string(part) +
                         " is damaged or beyond the runner's limits");
}

void PutSampling(Writer& out, const SamplingParams& p) {
#define QUIRE_PUT_NUMBER(name, range, feature) out.Put(p.name);
  QUIRE_SAMPLING_NUMBERS(QUIRE_PUT_NUMBER)
#undef QUIRE_PUT_NUMBER
  for (int32_t value : {p.logprobs, p.prompt_logprobs, p.beam_width}) out.Put(value);
  out.Put(p.seed);
  out.Put<uint8_t>(p.ignore_eos ? 1 : 0);
#define QUIRE_PUT_LIST(name, most, feature) out.PutList(p.name);
  QUIRE_SAMPLING_LISTS(QUIRE_PUT_LIST)
#undef QUIRE_PUT_LIST
  out.Put(static_cast<uint32_t>(p.logit_bias.size()));
  for (const auto& [id, bias] : p.logit_bias) {
    out.Put(id);
    out.Put(bias);
  }
  out.Put(static_cast<uint32_t>(p.bad_words.size()));
  for (const std::vector<TokenId>& word : p.bad_words) out.PutList(word);
}

absl::Status GetSampling(Reader& in, const StepLimits& limits, SamplingParams& p) {
#define QUIRE_GET_NUMBER(name, range, feature) p.name = in.Get<decltype(p.name)>();
  QUIRE_SAMPLING_NUMBERS(QUIRE_GET_NUMBER)
#undef QUIRE_GET_NUMBER
  for (int32_t* value : {&p.logprobs, &p.prompt_logprobs, &p.beam_width}) {
    *value = in.Get<int32_t>();
  }
  p.seed = in.Get<uint64_t>();
  p.ignore_eos = in.GetFlag();
#define QUIRE_GET_LIST(name, most, feature) in.GetList(p.name, most);
  QUIRE_SAMPLING_LISTS(QUIRE_GET_LIST)
#undef QUIRE_GET_LIST
  p.logit_bias.resize(in.Count(8, kMaxLogitBias));
  for (auto& [id, bias] : p.logit_bias) {
    id = in.Get<int32_t>();
    bias = in.Get<float>();
  }
  p.bad_words.resize(in.Count(4, kMaxBadWords));
  for (std::vector<TokenId>& word : p.bad_words) in.GetList(word, kMaxBadWordTokens);
  if (!in.ok()) return Damaged("sampling");
  return Annotate(ValidateSamplingParams(p, limits.vocab_size), "step packet: sampling");
}

void PutBirth(Writer& out, const RowBirth& birth) {
  out.Put(birth.row);
  out.Put(birth.sequence);
  out.Put(birth.choice);
  out.Put(birth.prompt_length);
  out.PutList(birth.end_ids);
  out.Put<uint8_t>(birth.constrained ? 1 : 0);
  out.Put(birth.adapter_slot);
  PutSampling(out, birth.sampling);
}

absl::Status GetBirth(Reader& in, const StepLimits& limits, RowBirth& birth) {
  birth.row = in.InRange(0, limits.max_rows);
  birth.sequence = in.Get<uint64_t>();
  birth.choice = in.Get<uint32_t>();
  birth.prompt_length = in.InRange(1, int64_t{limits.max_model_len} + 1);
  in.GetList(birth.end_ids, limits.vocab_size);
  for (size_t i = 0; i < birth.end_ids.size(); ++i) {
    const TokenId id = birth.end_ids[i];
    if (id < 0 || id >= limits.vocab_size || (i > 0 && id <= birth.end_ids[i - 1])) {
      return Damaged("born.end_ids");
    }
  }
  birth.constrained = in.GetFlag();
  birth.adapter_slot = in.InRange(-1, limits.max_loras);
  if (!in.ok()) return Damaged("born");
  return GetSampling(in, limits, birth.sampling);
}

absl::Status GetBlocks(Reader& in, const StepLimits& limits, StepPlan& plan) {
  const int64_t blocks =
      (int64_t{limits.max_model_len} + limits.block_size - 1) / limits.block_size;
  const int64_t table_entries = int64_t{limits.max_rows} * limits.groups * blocks;
  const auto within = [](int64_t value, int64_t end) { return value >= 0 && value < end; };
  bool valid = true;
  in.GetList(plan.drops, int64_t{limits.max_rows} * limits.groups);
  for (const BlockDrop& drop : plan.drops) {
    valid = valid && within(drop.row, limits.max_rows) && within(drop.group, limits.groups) &&
            within(drop.first_live, blocks + 1);
  }
  in.GetList(plan.appends, table_entries);
  for (const BlockAppend& append : plan.appends) {
    valid = valid && within(append.row, limits.max_rows) && within(append.group, limits.groups) &&
            within(append.block, blocks) && within(append.page, limits.page_count);
  }
  in.GetList(plan.copies, limits.page_count);
  for (const PlannedCopy& copy : plan.copies) {
    valid = valid && within(copy.from, limits.page_count) && within(copy.to, limits.page_count);
  }
  return in.ok() && valid ? absl::OkStatus() : Damaged("blocks");
}

absl::Status GetRows(Reader& in, const StepLimits& limits, StepPlan& plan) {
  int64_t computed = 0;
  int64_t drafted = 0;
  std::bitset<kMaxStepRows> seen;
  QUIRE_CHECK(static_cast<size_t>(limits.max_rows) <= seen.size());
  plan.rows.resize(in.Count(kRowBytes, limits.max_rows));
  for (StepRow& row : plan.rows) {
    row.row = in.InRange(0, limits.max_rows);
    row.first_position = in.InRange(0, limits.max_model_len);
    row.q_len = in.InRange(1, int64_t{limits.max_tokens} + 1);
    row.token_offset = in.Get<int32_t>();
    row.token_count = in.InRange(0, int64_t{limits.max_model_len} + 1);
    row.sample = in.GetFlag();
    row.score_from = in.InRange(0, limits.max_model_len);
    row.score_count = in.InRange(0, int64_t{limits.max_tokens} + 1);
    row.draft_count = in.InRange(0, kMaxDraftTokens + 1);
    if (!in.ok()) return Damaged("rows");
    if (row.score_count > 0 &&
        (row.score_from < row.first_position ||
         int64_t{row.score_from} + row.score_count > int64_t{row.first_position} + row.q_len)) {
      return Damaged("rows.score_count");
    }
    if (row.draft_count > 0 &&
        (!row.sample || row.score_count > 0 || row.q_len != 1 + row.draft_count)) {
      return Damaged("rows.draft_count");
    }
    drafted += row.draft_count;
    computed += row.q_len;
    if (seen[row.row]) return Damaged("rows (one stands twice)");
    seen[row.row] = true;
    if (int64_t{row.first_position} + row.q_len > limits.max_model_len)
      return Damaged("rows.q_len");
  }
  if (computed > limits.max_tokens) return Damaged("rows (tokens of the step)");
  in.GetList(plan.tokens, int64_t{limits.max_rows} * limits.max_model_len);
  for (TokenId token : plan.tokens) {
    if (token < 0 || token >= limits.vocab_size) return Damaged("tokens");
  }
  int64_t offset = 0;
  for (const StepRow& row : plan.rows) {
    if (row.token_offset != offset) return Damaged("rows.token_offset");
    offset += row.token_count;
  }
  if (offset != static_cast<int64_t>(plan.tokens.size())) return Damaged("tokens (their count)");
  in.GetList(plan.drafts, limits.max_tokens);
  for (TokenId token : plan.drafts) {
    if (token < 0 || token >= limits.vocab_size) return Damaged("drafts");
  }
  if (drafted != static_cast<int64_t>(plan.drafts.size())) return Damaged("drafts (their count)");
  return in.ok() ? absl::OkStatus() : Damaged("tokens");
}

}  // namespace

size_t MaxAppends(const StepLimits& limits) {
  const int64_t prefilled = limits.max_tokens / limits.block_size + 1;
  return static_cast<size_t>((limits.max_rows + prefilled) * limits.groups);
}

void EncodeStepPlan(const StepPlan& plan, std::vector<std::byte>& packet) {
  Writer out(packet);
  out.Put(kMagic);
  out.Put(kStepPacketVersion);
  out.Put(plan.number);
  out.PutList(plan.retired);
  out.Put(static_cast<uint32_t>(plan.born.size()));
  for (const RowBirth& birth : plan.born) PutBirth(out, birth);
  out.PutList(plan.drops);
  out.PutList(plan.appends);
  out.PutList(plan.copies);
  out.Put(static_cast<uint32_t>(plan.rows.size()));
  std::byte* at = out.Grow(plan.rows.size() * kRowBytes);
  for (const StepRow& row : plan.rows) {
    std::memcpy(at, &row, kRowHead);
    at[kRowHead] = row.sample ? std::byte{1} : std::byte{0};
    std::memcpy(at + kRowHead + 1, &row.score_from, kRowTail);
    at += kRowBytes;
  }
  out.PutList(plan.tokens);
  out.PutList(plan.drafts);
  out.End();
}

absl::Status DecodeStepPlan(std::span<const std::byte> packet, const StepLimits& limits,
                            StepPlan& plan) {
  QUIRE_CHECK(limits.max_rows > 0 && limits.block_size > 0 && limits.groups > 0);
  plan.Clear();
  Reader in(packet);
  if (in.Get<uint32_t>() != kMagic) return Damaged("magic");
  const uint32_t version = in.Get<uint32_t>();
  if (version != kStepPacketVersion) {
    return InvalidArgument("step packet: version " + std::to_string(version) +
                           " is not served; this runner reads version " +
                           std::to_string(kStepPacketVersion));
  }
  plan.number = in.Get<uint64_t>();
  in.GetList(plan.retired, limits.max_rows);
  for (int32_t row : plan.retired) {
    if (row < 0 || row >= limits.max_rows) return Damaged("retired");
  }
  const size_t births = in.Count(29, limits.max_rows);
  plan.born.resize(births);
  for (RowBirth& birth : plan.born) QUIRE_RETURN_IF_ERROR(GetBirth(in, limits, birth));
  QUIRE_RETURN_IF_ERROR(GetBlocks(in, limits, plan));
  QUIRE_RETURN_IF_ERROR(GetRows(in, limits, plan));
  if (!in.ok() || !in.AtEnd()) return Damaged("its end");
  return absl::OkStatus();
}

}  // namespace quire

#include "kernels/cuda/ops/sample/sample_slice.h"

#include "kernels/communicator.h"
#include "kernels/cuda/ops/sample/sample_changes.h"
#include "kernels/cuda/ops/sample/sample_draw.h"
#include "kernels/cuda/ops/sample/sample_message.h"
#include "kernels/cuda/ops/sample/sample_raw.h"

namespace quire::kernels::cuda {

// The tokens of all ranks, as a row: those of a rank in its own part, padded with −∞.
constexpr int kHeardTokenBytes = sizeof(float) + sizeof(int32_t);
static_assert(kSampleFixedBytes + kMaxRanks * kMostSliceTokens * kHeardTokenBytes <=
              runtime::kLeastSharedBytes);
static_assert(kMaxRanks * kMaxTopLogprobs <= kListed);

struct SliceState {
  bool done = false;
  bool keeps_all = false;  // the cut in hand
  int32_t peak_id = -1;    // the token; of the changed row once that is known
  float peak_raw = 0.0f;
  float scored = 0.0f;
  uint32_t prefix = 0;  // digits that are found of the cut in hand
  uint64_t target = 0;
  uint64_t above = 0;
  float mean = 0.0f;
  Logprobs logprobs{};
  InPlay in_play;
};

// One row on one rank, in one launch.
struct Slice {
  const SampleSliceParams& params;
  SampleShared& shared;
  const RowOfLogits row;
  SampleOutput& output;
  const int position;
  SliceState state;

  QUIRE_DEVICE const DeviceSampleRow& How() const { return shared.row; }
  // The lists change logits after the logprobs of the raw row were sent.
  QUIRE_DEVICE bool ChangesLate() const { return How().changes != 0 && How().logprobs > 0; }
  QUIRE_DEVICE std::byte* Said(int at) const {
    return params.said + static_cast<int64_t>(position) * params.now.stride + at;
  }
  template <class T>
  QUIRE_DEVICE const T* Heard(int rank, int at) const {
    const int64_t of_rank = static_cast<int64_t>(params.before.rows) * rank + position;
    return reinterpret_cast<const T*>(params.heard + of_rank * params.before.stride + at);
  }
  QUIRE_DEVICE const SliceHead& HeardHead(int rank) const { return *Heard<SliceHead>(rank, 0); }

  QUIRE_DEVICE bool IsToken(int32_t id) const { return id >= 0 && id < params.vocabulary; }

  QUIRE_DEVICE void End(int32_t token, float raw) {
    state.done = true;
    if (ThreadIndex() != 0) return;
    output.token = token;
    if (How().logprobs > 0 && token >= 0) output.logprob = state.logprobs.Of(raw);
  }
  QUIRE_DEVICE void EndWithout(bool usable) {
    state.done = true;
    if (ThreadIndex() == 0) output.not_a_number = !usable;
  }
};

// --- peaks ---------------------------------------------------------------------------------------

QUIRE_DEVICE SliceHead::Peak OwnPeak(const Slice& slice, KeyedId best) {
  SliceHead::Peak own;
  own.key = static_cast<uint32_t>(best.key);
  const DevicePeak peak = PeakOf(slice.row, best);
  if (peak.id < 0) return own;
  own.id = slice.row.TokenAt(peak.id);
  own.value = own.raw = peak.value;
  return own;
}

QUIRE_DEVICE void SayPeaks(Slice& slice, SliceHead& head) {
  head.raw = OwnPeak(slice, ReadRow(slice.shared, slice.row));
  head.changed = head.raw;
  const DeviceSampleRow& how = slice.How();
  if (how.scored_token >= 0) {
    const int scored = how.scored_token - slice.row.first_id;
    const bool here = scored >= 0 && scored < slice.row.count;
    head.scored = here ? slice.row.Get(scored) : FloatOfBits(kMinusInfinityBits);
    return;
  }
  if (how.changes == 0 || slice.ChangesLate()) return;
  BlockBarrier();  // everyone is done with the raw row
  ChangeLogits(slice.row, how);
  head.changed = OwnPeak(slice, FindPeak(slice.shared, slice.row));
}

// The best of the ranks' peaks; ids ascend with ranks, so that of equal ones the first is lowest.
QUIRE_DEVICE SliceHead::Peak BestPeak(const Slice& slice, bool changed) {
  SliceHead::Peak best;
  for (int rank = 0; rank < slice.params.ranks; ++rank) {
    const SliceHead& head = slice.HeardHead(rank);
    const SliceHead::Peak& own = changed ? head.changed : head.raw;
    if (own.key > best.key) best = own;
  }
  return best;
}

// False when the row has ended: no number, or nothing that may be chosen.
QUIRE_DEVICE bool IsPeak(Slice& slice, const SliceHead::Peak& peak) {
  const bool is_number = peak.key < kInfinityKey;
  if (is_number && peak.key > kMinusInfinityKey && slice.IsToken(peak.id)) return true;
  slice.EndWithout(is_number);
  return false;
}

// The row's lists have been followed: from here on a token is chosen.
QUIRE_DEVICE void TakePeak(Slice& slice, const SliceHead::Peak& peak) {
  if (!IsPeak(slice, peak)) return;
  slice.state.peak_id = peak.id;
  slice.state.peak_raw = peak.raw;
  slice.state.in_play = AllInPlay(slice.How(), peak.value);
}

QUIRE_DEVICE void HearPeaks(Slice& slice) {
  const SliceHead::Peak raw = BestPeak(slice, false);
  if (!IsPeak(slice, raw)) return;
  const DeviceSampleRow& how = slice.How();
  slice.state.logprobs = Logprobs{static_cast<double>(raw.value), 0.0};
  if (how.scored_token >= 0) {
    slice.state.scored = slice.HeardHead(0).scored;
    for (int rank = 1; rank < slice.params.ranks; ++rank) {
      const float own = slice.HeardHead(rank).scored;
      if (own > slice.state.scored) slice.state.scored = own;
    }
    return;
  }
  if (slice.ChangesLate()) return;
  TakePeak(slice, BestPeak(slice, true));
  if (slice.state.done || !IsGreedy(how) || how.logprobs > 0) return;
  slice.End(slice.state.peak_id, 0.0f);
}

// --- reports about the raw row -------------------------------------------------------------------

QUIRE_DEVICE void SayTop(Slice& slice, int wanted, SliceHead& head) {
  SampleShared& shared = slice.shared;
  ListTop(shared, slice.row, wanted, static_cast<float>(slice.state.logprobs.peak));
  head.top = static_cast<int32_t>(shared.listed);
  auto* top = reinterpret_cast<SliceTop*>(slice.Said(slice.params.now.top_at));
  for (int i = ThreadIndex(); i < head.top; i += kSampleThreads) {
    top[i] = SliceTop{shared.list_values[i], slice.row.TokenAt(shared.list_ids[i])};
  }
}

QUIRE_DEVICE void SayRaw(Slice& slice, SliceHead& head) {
  const DeviceSampleRow& how = slice.How();
  if (how.logprobs > 0) {
    head.raw_mass = RawMass(slice.shared, slice.row, static_cast<float>(slice.state.logprobs.peak));
    const int wanted = TopWanted(how);
    if (wanted > 0) SayTop(slice, wanted, head);
  }
  if (how.scored_token >= 0) {
    head.before = static_cast<int32_t>(CountBefore(slice.shared, slice.row, slice.state.scored,
                                                   how.scored_token - slice.row.first_id));
    return;
  }
  if (!slice.ChangesLate()) return;
  BlockBarrier();  // everyone is done with the raw row
  KeepRaw(slice.row, how);
  ChangeLogits(slice.row, how);
  const KeyedId best = FindPeak(slice.shared, slice.row);
  head.changed = OwnPeak(slice, best);
  if (head.changed.id >= 0) {
    head.changed.raw = RawOf(slice.row, how, static_cast<int>(best.id));
  }
}

QUIRE_DEVICE void HearTop(Slice& slice, int wanted) {
  SampleShared& shared = slice.shared;
  int count = 0;
  for (int rank = 0; rank < slice.params.ranks; ++rank) {
    const int told = slice.HeardHead(rank).top;
    const int top = told < 0 ? 0 : told < wanted ? told : wanted;
    const SliceTop* of_rank = slice.Heard<SliceTop>(rank, slice.params.before.top_at);
    if (ThreadIndex() < top) {
      shared.list_values[count + ThreadIndex()] = of_rank[ThreadIndex()].value;
      shared.list_ids[count + ThreadIndex()] = of_rank[ThreadIndex()].id;
    }
    count += top;
  }
  BlockBarrier();
  TellTop(shared, count, wanted, slice.state.logprobs, slice.output);
  BlockBarrier();
}

QUIRE_DEVICE void HearRaw(Slice& slice) {
  const DeviceSampleRow& how = slice.How();
  uint64_t mass = 0;
  int32_t before = 0;
  for (int rank = 0; rank < slice.params.ranks; ++rank) {
    mass += slice.HeardHead(rank).raw_mass;
    before += slice.HeardHead(rank).before;
  }
  if (how.logprobs > 0) {
    slice.state.logprobs.log_sum = LogOfMass(mass);
    const int wanted = TopWanted(how);
    if (wanted > 0) HearTop(slice, wanted);
  }
  if (how.scored_token >= 0) {
    slice.state.done = true;
    if (ThreadIndex() != 0) return;
    slice.output.token = how.scored_token;
    slice.output.rank = 1 + before;
    slice.output.logprob = slice.state.logprobs.Of(slice.state.scored);
    return;
  }
  if (slice.ChangesLate()) TakePeak(slice, BestPeak(slice, true));
  if (slice.state.done || !IsGreedy(how)) return;
  slice.End(slice.state.peak_id, slice.state.peak_raw);
}

// --- cuts by digits ------------------------------------------------------------------------------

QUIRE_DEVICE int ShiftOf(int digit) { return 8 * (kOrderDigits - 1 - digit); }

// The slice, as what a cut is looked for in.
struct SliceTokens {
  const Slice& slice;

  template <class F>
  QUIRE_DEVICE void Each(const SampleShared&, const F& f) const {
    slice.state.in_play.Each(slice.row, f);
  }
};

QUIRE_DEVICE void SayDigit(Slice& slice, CutKind kind, int digit) {
  if (digit > 0 && slice.state.keeps_all) return;
  SampleShared& shared = slice.shared;
  const Measure measure = MeasureOf(kind, slice.state.mean);
  const int shift = ShiftOf(digit);
  const uint32_t prefix = slice.state.prefix;
  ClearBins(shared, kDigitBins);
  slice.state.in_play.Each(slice.row, [&](int, float value) {
    const uint32_t order = measure.OrderOf(value);
    if (!HasPrefix(order, shift, prefix)) return;
    AddToBin(shared, 255 - DigitOf(order, shift), measure.WeightOf(value));
  });
  BlockBarrier();
  auto* bins = reinterpret_cast<uint64_t*>(slice.Said(slice.params.now.body_at));
  for (int i = ThreadIndex(); i < kDigitBins; i += kSampleThreads) bins[i] = BinWeight(shared, i);
}

// Of the tokens at the end of the cut those of lower ranks come first.
QUIRE_DEVICE Threshold EndOfCut(Slice& slice, const Measure& measure, Crossing at) {
  uint64_t own = 0;
  for (int rank = 0; rank <= slice.params.rank; ++rank) {
    at.above += own;
    own = slice.Heard<uint64_t>(rank, slice.params.before.body_at)[at.bin];
  }
  Threshold end{slice.state.prefix, 0x7fffffff};
  if (at.above >= at.target) {
    end.last_id = -1;
  } else if (at.above + own >= at.target) {
    end.last_id = LastOfOrder(slice.shared, SliceTokens{slice}, measure, end.order, at);
  }
  return end;
}

QUIRE_DEVICE void HearDigit(Slice& slice, CutKind kind, int digit) {
  SliceState& state = slice.state;
  SampleShared& shared = slice.shared;
  if (digit == 0) {
    state.prefix = 0;
    state.above = 0;
  } else if (state.keeps_all) {
    return;
  }
  BlockBarrier();
  for (int i = ThreadIndex(); i < kDigitBins; i += kSampleThreads) {
    uint64_t weight = 0;
    for (int rank = 0; rank < slice.params.ranks; ++rank) {
      weight += slice.Heard<uint64_t>(rank, slice.params.before.body_at)[i];
    }
    shared.low[i] = static_cast<uint32_t>(weight);
    shared.high[i] = static_cast<uint32_t>(weight >> 32);
  }
  if (ThreadIndex() == 0) shared.crossing = Crossing{};
  CutTarget target = TargetOf(kind, slice.How());
  if (digit > 0) target.weight = state.target;
  const Crossing at = FindCrossing<kDigitBins>(shared, target, digit == 0, state.above);
  if (digit == 0) state.keeps_all = at.all != 0;
  state.target = at.target;
  state.above = at.above;
  state.prefix = state.prefix << 8 | static_cast<uint32_t>(255 - at.bin);
  if (state.keeps_all) {
    Narrow(state.in_play, kind, Threshold{}, state.mean);
  } else if (digit == kOrderDigits - 1) {
    const Threshold end = EndOfCut(slice, MeasureOf(kind, state.mean), at);
    Narrow(state.in_play, kind, end, state.mean);
  }
}

QUIRE_DEVICE void HearMean(Slice& slice) {
  MassAndMean sum;
  for (int rank = 0; rank < slice.params.ranks; ++rank) {
    sum.mass += slice.HeardHead(rank).mass;
    sum.weighted += slice.HeardHead(rank).weighted;
  }
  slice.state.mean = sum.Mean();
}

// --- the draw ------------------------------------------------------------------------------------

// The best top_k tokens of the slice, by ascending id: no other can be among those of all.
QUIRE_DEVICE void SayTokens(Slice& slice, SliceHead& head) {
  SampleShared& shared = slice.shared;
  const DeviceSampleRow& how = slice.How();
  InPlay best = slice.state.in_play;
  best.nearest =
      Cut(shared, slice.row, best, MeasureOf(CutKind::kTopK, 0.0f), TargetOf(CutKind::kTopK, how));
  List(shared, slice.row, best, [](int, float) { return true; });
  const int count = static_cast<int>(shared.listed);
  head.tokens = count;
  auto* tokens = reinterpret_cast<SliceToken*>(slice.Said(slice.params.now.body_at));
  for (int own = ThreadIndex(); own < count; own += kSampleThreads) {
    const int32_t id = shared.list_ids[own];
    int place = 0;
    for (int i = 0; i < count; ++i) place += shared.list_ids[i] < id ? 1 : 0;
    const float raw = how.logprobs > 0 ? RawOf(slice.row, how, id) : 0.0f;
    tokens[place] = SliceToken{slice.row.Get(id), raw, slice.row.TokenAt(id)};
  }
}

// All cuts and the draw, among the tokens of all ranks.
QUIRE_DEVICE void HearTokens(Slice& slice) {
  const int count = slice.params.ranks * kMostSliceTokens;
  auto* values = Shared<float>(kSampleFixedBytes);
  auto* ids = Shared<int32_t>(kSampleFixedBytes + count * static_cast<int>(sizeof(float)));
  const auto token_at = [&](int place) {
    return slice.Heard<SliceToken>(place / kMostSliceTokens, slice.params.before.body_at) +
           place % kMostSliceTokens;
  };
  for (int place = ThreadIndex(); place < count; place += kSampleThreads) {
    const int32_t told = slice.HeardHead(place / kMostSliceTokens).tokens;
    const int of_rank = place % kMostSliceTokens;
    const bool some =
        of_rank < told && of_rank < slice.How().top_k && slice.IsToken(token_at(place)->id);
    values[place] = some ? token_at(place)->value : FloatOfBits(kMinusInfinityBits);
    ids[place] = some ? token_at(place)->id : -1;
  }
  BlockBarrier();
  const RowOfLogits tokens{nullptr, values, count, count, 0, ids};
  const auto id = static_cast<int32_t>(Draw(slice.shared, tokens, slice.state.in_play, -1).id);
  slice.state.done = true;
  for (int place = ThreadIndex(); place < count; place += kSampleThreads) {
    if (id < 0 || ids[place] != id) continue;
    slice.output.token = id;
    if (slice.How().logprobs > 0) {
      slice.output.logprob = slice.state.logprobs.Of(token_at(place)->raw);
    }
  }
}

QUIRE_DEVICE void SayBest(Slice& slice, SliceHead& head) {
  const int64_t peak = int64_t{slice.state.peak_id} - slice.row.first_id;
  const bool here = peak >= 0 && peak < slice.row.count;
  const KeyedId best =
      DrawOne(slice.shared, slice.row, slice.state.in_play, here ? static_cast<int>(peak) : -1);
  head.best_key = best.key;
  head.best_id = static_cast<int32_t>(best.id);
  if (slice.How().logprobs <= 0 || head.best_id < 0) return;
  head.best_raw = RawOf(slice.row, slice.How(), head.best_id - slice.row.first_id);
}

QUIRE_DEVICE void HearBest(Slice& slice) {
  KeyedId best;
  float raw = 0.0f;
  for (int rank = 0; rank < slice.params.ranks; ++rank) {
    const SliceHead& head = slice.HeardHead(rank);
    if (!slice.IsToken(head.best_id)) continue;  // none is in play there
    const uint32_t before = best.id;
    best.Take(head.best_key, static_cast<uint32_t>(head.best_id));
    if (best.id != before) raw = head.best_raw;
  }
  slice.End(static_cast<int32_t>(best.id), raw);
}

// --- the whole -----------------------------------------------------------------------------------

QUIRE_DEVICE bool TellsRaw(const DeviceSampleRow& how) {
  return how.logprobs > 0 || how.scored_token >= 0;
}

QUIRE_DEVICE void Hear(Slice& slice, int stage) {
  if (slice.params.round == 2 && TellsRaw(slice.How())) HearRaw(slice);
  if (slice.state.done) return;
  if (stage == kPeaks) {
    HearPeaks(slice);
  } else if (stage == kMean) {
    HearMean(slice);
  } else if (stage == kTokens) {
    HearTokens(slice);
  } else if (stage == kBest) {
    HearBest(slice);
  } else if (stage >= kDigits) {
    const int digit = stage - kDigits;
    HearDigit(slice, static_cast<CutKind>(digit / kOrderDigits), digit % kOrderDigits);
  }
}

QUIRE_DEVICE void Say(Slice& slice, int stage) {
  SliceHead head;
  if (slice.params.round == 1 && TellsRaw(slice.How())) SayRaw(slice, head);
  if (stage == kPeaks) {
    SayPeaks(slice, head);
  } else if (stage == kMean) {
    const MassAndMean sum = Weigh(slice.shared, slice.row, slice.state.in_play);
    head.mass = sum.mass;
    head.weighted = sum.weighted;
  } else if (stage == kTokens) {
    SayTokens(slice, head);
  } else if (stage == kBest) {
    SayBest(slice, head);
  } else if (stage >= kDigits) {
    const int digit = stage - kDigits;
    SayDigit(slice, static_cast<CutKind>(digit / kOrderDigits), digit % kOrderDigits);
  }
  if (ThreadIndex() == 0) *reinterpret_cast<SliceHead*>(slice.Said(0)) = head;
}

QUIRE_KERNEL(sample_slice, SampleSliceParams, kSampleThreads, 1) {
  SampleShared& shared = *Shared<SampleShared>();
  const SliceRow& of_rounds = params.slice_rows[BlockX()];
  const int r = of_rounds.row;
  const int round = params.round;
  int heard = kNothing;
  int said = kNothing;
  if (round > 0) heard = of_rounds.stages[round - 1];
  if (round < kMostSliceRounds) said = of_rounds.stages[round];
  SliceState& kept = static_cast<SliceState*>(params.states)[BlockX()];
  SliceState& loaded = *Shared<SliceState>(kSampleFixedBytes);
  LoadWords(shared.row, params.sample_rows[r]);
  if (round > 0) LoadWords(loaded, kept);
  BlockBarrier();
  Slice slice{params,
              shared,
              {params.logits + r * params.stride, nullptr, 0, params.count, params.first_id},
              params.outputs[r],
              BlockX(),
              round > 0 ? loaded : SliceState{}};
  BlockBarrier();
  if (slice.state.done) return;
  if (round == 0) ClearOutput(slice.output);
  if (heard != kNothing) Hear(slice, heard);
  if (!slice.state.done && said != kNothing) Say(slice, said);
  if (ThreadIndex() == 0) kept = slice.state;
}

size_t SliceStateBytes(int rows) { return static_cast<size_t>(rows) * sizeof(SliceState); }

runtime::Error LaunchSampleSlice(runtime::Runtime& runtime, runtime::StreamId stream,
                                 SampleSliceParams params, const SliceRounds& rounds, int round) {
  if (params.vocabulary >= 1 << 24 || params.count < 0 || params.first_id < 0 ||
      int64_t{params.first_id} + params.count > params.vocabulary || params.stride % 4 != 0 ||
      params.stride < params.count || params.ranks < 1 || params.ranks > kMaxRanks ||
      params.rank < 0 || params.rank >= params.ranks) {
    return "sample_slice: " + std::to_string(params.count) + " ids from " +
           std::to_string(params.first_id) + " of " + std::to_string(params.vocabulary) +
           " in rows of " + std::to_string(params.stride) + " logits, on rank " +
           std::to_string(params.rank) + " of " + std::to_string(params.ranks) +
           ": at most 16777215 ids in rows of a multiple of 4 on at most " +
           std::to_string(kMaxRanks) + " ranks are needed";
  }
  if (round < 0 || round > rounds.count || rounds.count == 0) return {};
  params.slice_rows = reinterpret_cast<const SliceRow*>(
      reinterpret_cast<const std::byte*>(params.sample_rows) + rounds.rows_at);
  params.round = round;
  if (round < rounds.count) params.now = rounds.of[static_cast<size_t>(round)];
  if (round > 0) params.before = rounds.of[static_cast<size_t>(round) - 1];
  const int blocks = round > 0 ? params.before.rows : params.now.rows;
  const int bytes = kSampleFixedBytes + params.ranks * kMostSliceTokens * kHeardTokenBytes;
  return runtime.Launch(
      stream, QUIRE_KERNEL_OF(sample_slice, kSampleThreads),
      runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, static_cast<uint32_t>(bytes), params));
}

}  // namespace quire::kernels::cuda

// Compiled for AVX2 and fma, which every served host has; arithmetic.h defines the arithmetic.
#include "kernels/sampling/slice_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace quire::kernels::sampling {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kBins = size_t{1} << kDigitBits;
constexpr int kFirstShift = 32 - kDigitBits;

template <class T>
const T& MessageOf(const Heard& heard, int rank) {
  return *reinterpret_cast<const T*>(heard.data + static_cast<size_t>(rank) * heard.stride);
}

template <class T>
T& As(std::span<std::byte> mine) {
  return *reinterpret_cast<T*>(mine.data());
}

}  // namespace

struct SliceSampler::PeakMessage {
  float value = kImpossible;
  int32_t id = -1;
  float raw = kImpossible;  // of that id
  float bound = kImpossible;
  float scored = kImpossible;  // raw logit of the scored token, from the rank that holds it
  int32_t usable = 0;
};

// Followed by the TopLogits.
struct SliceSampler::RawMessage {
  uint64_t mass = 0;
  int32_t before = 0;
  int32_t top_count = 0;
  PeakMessage changed;
};

struct SliceSampler::MassMessage {
  uint64_t total = 0;
  uint64_t weighted = 0;
  uint64_t held[2] = {};  // within the first and the last of kDepths
};

struct SliceSampler::DrawMessage {
  double score = -std::numeric_limits<double>::infinity();
  int32_t id = -1;
  float raw = 0.0f;
};

void SliceSampler::Reserve(int64_t ids, int64_t vocab_size) {
  peaks_.Reserve(ids);
  candidates_.Reserve(ids);
  changes_.Reserve(vocab_size);  // a row's lists name ids of all ranks
}

int64_t SliceSampler::ReservedBytes(int64_t ids, int64_t vocab_size) {
  return RowPeaks::ReservedBytes(ids) + Candidates::ReservedBytes(ids) +
         RowChanges::ReservedBytes(vocab_size);
}

void SliceSampler::Begin(std::span<float> logits, const Place& place, const SampleRow& row,
                         SampleOutput& output) {
  z_ = logits;
  place_ = place;
  row_ = &row;
  output_ = &output;
  output = SampleOutput{};
  bound_ = scored_raw_ = kImpossible;
  log_sum_ = 0.0;
  cut_ = cut_count_ = 0;
  gathered_ = target_known_ = false;
  stage_ = Stage::kPeaks;
}

bool SliceSampler::Inside(int32_t id) const {
  return id >= place_.first_id && id - place_.first_id < static_cast<int64_t>(z_.size());
}

int SliceSampler::TopCount() const { return std::clamp(row_->logprobs - 1, 0, kMaxTopLogprobs); }

float SliceSampler::LogprobOf(float logit) const {
  return static_cast<float>((static_cast<double>(logit) - raw_peak_) - log_sum_);
}

size_t SliceSampler::MessageBytes() const {
  switch (stage_) {
    case Stage::kPeaks:
      return sizeof(PeakMessage);
    case Stage::kRaw:
      return sizeof(RawMessage) + static_cast<size_t>(TopCount()) * sizeof(TopLogit);
    case Stage::kMass:
    case Stage::kWidth:
    case Stage::kTypical:
      return sizeof(MassMessage);
    case Stage::kDigit:
      return kBins * sizeof(uint64_t);
    case Stage::kDraw:
      return sizeof(DrawMessage);
    case Stage::kDone:
      break;
  }
  return 0;
}

void SliceSampler::Say(std::span<std::byte> mine) {
  std::memset(mine.data(), 0, mine.size());
  switch (stage_) {
    case Stage::kPeaks:
      As<PeakMessage>(mine) = OwnPeak();
      break;
    case Stage::kRaw:
      SayRaw(mine);
      break;
    case Stage::kMass:
      SayMass(As<MassMessage>(mine));
      break;
    case Stage::kWidth:
      SayWidth(As<MassMessage>(mine));
      break;
    case Stage::kTypical:
      SayTypical(As<MassMessage>(mine));
      break;
    case Stage::kDigit:
      SayDigit(reinterpret_cast<uint64_t*>(mine.data()));
      break;
    case Stage::kDraw:
      SayDraw(As<DrawMessage>(mine));
      break;
    case Stage::kDone:
      break;
  }
}

void SliceSampler::Hear(const Heard& heard) {
  switch (stage_) {
    case Stage::kPeaks:
      return HearPeaks(heard);
    case Stage::kRaw:
      return HearRaw(heard);
    case Stage::kMass:
    case Stage::kWidth:
    case Stage::kTypical: {
      MassMessage sum;
      for (int rank = 0; rank < place_.ranks; ++rank) {
        const auto& one = MessageOf<MassMessage>(heard, rank);
        sum.total += one.total;
        sum.weighted += one.weighted;
        for (int i = 0; i < 2; ++i) sum.held[i] += one.held[i];
      }
      return HearMass(sum);
    }
    case Stage::kDigit:
      return HearDigit(heard);
    case Stage::kDraw:
      return HearDraw(heard);
    case Stage::kDone:
      return;
  }
}

// --- the peak, and reports about the raw row -----------------------------------------------------

SliceSampler::PeakMessage SliceSampler::OwnPeak() {
  const Peak own = peaks_.Find(z_);
  PeakMessage message;
  message.usable = own.usable ? 1 : 0;
  if (row_->top_k > 0) message.bound = peaks_.LowerBound(row_->top_k);
  if (Inside(row_->scored_token)) {
    message.scored = z_[static_cast<size_t>(row_->scored_token - place_.first_id)];
  }
  if (own.id < 0) return message;
  message.value = own.value;
  message.id = own.id + place_.first_id;
  message.raw = own.value;
  return message;
}

// The ranks hold ascending ids, so of equal peaks the first rank's is the lowest.
void SliceSampler::TakePeaks(const PeakMessage* first, size_t stride) {
  peak_ = Peak{.usable = true};
  bound_ = kImpossible;
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const auto& one = *reinterpret_cast<const PeakMessage*>(
        reinterpret_cast<const std::byte*>(first) + static_cast<size_t>(rank) * stride);
    peak_.usable = peak_.usable && one.usable != 0;
    bound_ = std::max(bound_, one.bound);
    if (!IsToken(one.id) || !(peak_.id < 0 || one.value > peak_.value)) continue;
    peak_.value = one.value;
    peak_.id = one.id;
    peak_raw_ = one.raw;
  }
  if (!peak_.usable) peak_.id = -1;
}

void SliceSampler::HearPeaks(const Heard& heard) {
  TakePeaks(&MessageOf<PeakMessage>(heard, 0), heard.stride);
  for (int rank = 0; rank < place_.ranks; ++rank) {
    // Ranks that do not hold the token send −∞.
    scored_raw_ = std::max(scored_raw_, MessageOf<PeakMessage>(heard, rank).scored);
  }
  raw_peak_ = peak_.value;
  output_->not_a_number = !peak_.usable;
  if (peak_.id < 0) {
    stage_ = Stage::kDone;
  } else if (row_->logprobs > 0 || row_->scored_token >= 0 || ChangesLogits(*row_)) {
    stage_ = Stage::kRaw;
  } else {
    Choose();
  }
}

void SliceSampler::SayRaw(std::span<std::byte> mine) {
  auto& message = As<RawMessage>(mine);
  if (row_->logprobs > 0) {
    message.mass = SumMasses(z_, peak_.value, 1.0f);
    TopLogit* top = reinterpret_cast<TopLogit*>(mine.data() + sizeof(RawMessage));
    if (TopCount() > 0) message.top_count = FindTop(z_, peaks_, TopCount(), candidates_, top);
    for (int i = 0; i < message.top_count; ++i) top[i].id += place_.first_id;
  }
  if (row_->scored_token >= 0) {
    message.before = CountBefore(z_, scored_raw_, int64_t{row_->scored_token} - place_.first_id);
    return;
  }
  if (row_->logprobs > 0) changes_.KeepRaw(z_, place_.first_id, *row_);
  if (ChangesLogits(*row_)) ChangeLogits(z_, place_.first_id, *row_);
  message.changed = OwnPeak();
  if (message.changed.id >= 0 && row_->logprobs > 0) {
    message.changed.raw = changes_.RawOf(z_, place_.first_id, *row_, message.changed.id);
  }
}

void SliceSampler::HearRaw(const Heard& heard) {
  uint64_t mass = 0;
  int32_t before = 0;
  TopLogit top[kMaxTopLogprobs];
  int held = 0;
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const auto& one = MessageOf<RawMessage>(heard, rank);
    mass += one.mass;
    before += one.before;
    const TopLogit* of_rank = reinterpret_cast<const TopLogit*>(&one + 1);
    for (int i = 0; i < std::min(one.top_count, TopCount()); ++i) {
      held = InsertTop(top, held, TopCount(), of_rank[i]);
    }
  }
  if (row_->logprobs > 0) log_sum_ = Log(static_cast<double>(mass) / kMassUnit);
  output_->top_count = held;
  for (int i = 0; i < held; ++i) {
    output_->top_ids[i] = top[i].id;
    output_->top_logprobs[i] = LogprobOf(top[i].value);
  }
  if (row_->scored_token >= 0) {
    output_->token = row_->scored_token;
    output_->rank = 1 + before;
    output_->logprob = LogprobOf(scored_raw_);
    stage_ = Stage::kDone;
    return;
  }
  TakePeaks(&MessageOf<RawMessage>(heard, 0).changed, heard.stride);
  output_->not_a_number = !peak_.usable;
  if (peak_.id < 0) {
    stage_ = Stage::kDone;
  } else {
    Choose();
  }
}

void SliceSampler::End(int32_t token, float raw) {
  output_->token = token;
  if (row_->logprobs > 0) output_->logprob = LogprobOf(raw);
  stage_ = Stage::kDone;
}

// --- the cuts ------------------------------------------------------------------------------------

void SliceSampler::Choose() {
  if (row_->temperature < kGreedyTemperature) return End(peak_.id, peak_raw_);
  PlanCuts();
  const bool narrow = row_->min_p > 0.0f || row_->top_k > 0;
  if (narrow || cut_count_ == 0) return NextCut();
  stage_ = Stage::kMass;
}

void SliceSampler::PlanCuts() {
  if (row_->top_k > 0) cuts_[cut_count_++] = CutKind::kTopK;
  if (row_->top_p < 1.0f) cuts_[cut_count_++] = CutKind::kTopP;
  if (row_->typical_p < 1.0f) cuts_[cut_count_++] = CutKind::kTypical;
}

void SliceSampler::NextCut() {
  if (cut_ == cut_count_) {
    stage_ = Stage::kDraw;
  } else if (cuts_[cut_] == CutKind::kTypical && !target_known_) {
    stage_ = Stage::kTypical;
  } else {
    stage_ = Stage::kDigit;
    shift_ = kFirstShift;
  }
}

// No token of the row that the first cut can keep is left out: top_k logits are at least `bound_`.
void SliceSampler::GatherOnce() {
  if (gathered_) return;
  gathered_ = true;
  float least = kImpossible;
  if (row_->min_p > 0.0f) least = LogitAtShare(peak_.value, row_->min_p, row_->temperature);
  if (row_->top_k > 0 && bound_ != kImpossible) {
    const float depth = DistanceOf(bound_, peak_.value, row_->temperature);
    least = std::max(least, LogitAtDepth(peak_.value, depth, row_->temperature));
  }
  GatherCandidates(z_, peak_.value, least, row_->temperature, candidates_);
  if (row_->min_p <= 0.0f) return;
  candidates_.KeepIf(
      [this](size_t i) { return ExpOfNegative(candidates_.distance[i]) >= row_->min_p; });
}

// The mass of the whole row, and for top_p of what lies near its peak.
void SliceSampler::SayMass(MassMessage& mine) {
  const float temperature = row_->temperature;
  mine.total = SumMasses(z_, peak_.value, temperature);
  if (cuts_[0] == CutKind::kTypical) {
    mine.weighted = SumWeightedMasses(z_, peak_.value, temperature);
    return;
  }
  gathered_ = true;
  GatherCandidates(z_, peak_.value, LogitAtDepth(peak_.value, kDepths[1], temperature), temperature,
                   candidates_);
  WeighAll(candidates_);
  for (size_t i = 0; i < candidates_.ids.size(); ++i) {
    for (int depth = 0; depth < 2; ++depth) {
      if (candidates_.distance[i] >= kDepths[depth]) mine.held[depth] += candidates_.mass[i];
    }
  }
}

void SliceSampler::SayWidth(MassMessage& mine) {
  const float width = kWidths[1];
  gathered_ = true;
  GatherCandidates(z_, peak_.value,
                   LogitAtDepth(peak_.value, mean_ - width - 1e-3f, row_->temperature),
                   row_->temperature, candidates_);
  candidates_.KeepIf([&](size_t i) { return std::fabs(candidates_.distance[i] - mean_) <= width; });
  mine.held[0] = WeighAll(candidates_);
}

void SliceSampler::SayTypical(MassMessage& mine) {
  GatherOnce();
  mine.total = WeighAll(candidates_);
  mine.weighted = WeightedMass(candidates_);
}

void SliceSampler::HearMass(const MassMessage& sum) {
  const Stage stage = stage_;
  if (stage == Stage::kWidth) {
    // What is near holds too little: the cut goes through the whole row.
    if (sum.held[0] < target_) {
      GatherCandidates(z_, peak_.value, kImpossible, row_->temperature, candidates_);
    }
    return NextCut();
  }
  target_known_ = true;
  if (cuts_[cut_] == CutKind::kTopP) {
    target_ = ShareOf(row_->top_p, sum.total);
    if (sum.held[0] >= target_) {
      candidates_.KeepIf([this](size_t i) { return candidates_.distance[i] >= kDepths[0]; });
    } else if (sum.held[1] < target_) {
      GatherCandidates(z_, peak_.value, kImpossible, row_->temperature, candidates_);
    }
    return NextCut();
  }
  mean_ = MeanDistance(sum.weighted, sum.total);
  target_ = ShareOf(row_->typical_p, sum.total);
  if (stage == Stage::kMass) {
    stage_ = Stage::kWidth;
  } else {
    NextCut();
  }
}

void SliceSampler::SayDigit(uint64_t* counts) {
  Candidates& c = candidates_;
  const CutKind kind = cuts_[cut_];
  if (shift_ == kFirstShift) {
    GatherOnce();
    if (kind != CutKind::kTopK) WeighAll(c);
    if (kind == CutKind::kTypical) {
      OrderByTypicality(c, mean_);
    } else {
      OrderByDistance(c);
    }
  }
  const CutBy by = kind == CutKind::kTopK ? CutBy::kCount : CutBy::kMass;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    const uint64_t order = c.order[i];
    if (shift_ != kFirstShift && (order >> (shift_ + kDigitBits)) != prefix_) continue;
    counts[(order >> shift_) & (kBins - 1)] += WeightOf(c, by, i);
  }
}

// As Cut begins, with the weight of the candidates of all ranks.
void SliceSampler::BeginDigits(uint64_t total) {
  if (cuts_[cut_] == CutKind::kTopK) {
    target_ = static_cast<uint64_t>(row_->top_k);
  } else if (!target_known_) {
    target_ = ShareOf(row_->top_p, total);
  }
  target_ = std::min(std::max<uint64_t>(target_, 1), total);
  target_known_ = false;
  above_ = prefix_ = 0;
}

void SliceSampler::HearDigit(const Heard& heard) {
  std::array<uint64_t, kBins> weights = {};
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const uint64_t* counts = &MessageOf<uint64_t>(heard, rank);
    for (size_t i = 0; i < kBins; ++i) weights[i] += counts[i];
  }
  const CutBy by = cuts_[cut_] == CutKind::kTopK ? CutBy::kCount : CutBy::kMass;
  if (shift_ == kFirstShift) {
    uint64_t total = 0;
    for (const uint64_t weight : weights) total += weight;
    BeginDigits(total);
    if (by == CutBy::kCount && total <= target_) {
      ++cut_;
      return NextCut();
    }
  }
  size_t value = kBins - 1;
  while (value > 0 && above_ + weights[value] < target_) above_ += weights[value--];
  prefix_ = (prefix_ << kDigitBits) | value;
  if (shift_ > 0) {
    shift_ -= kDigitBits;
    return;
  }
  // At the threshold the ids of lower ranks come first.
  for (int rank = 0; rank < place_.rank; ++rank) {
    above_ += (&MessageOf<uint64_t>(heard, rank))[value];
  }
  CutAt(candidates_, by, {static_cast<uint32_t>(prefix_), above_, target_});
  ++cut_;
  NextCut();
}

// --- the draw ------------------------------------------------------------------------------------

void SliceSampler::SayDraw(DrawMessage& mine) {
  const NoisePosition at{row_->seed, row_->output_index, row_->choice, Purpose::kSample};
  Best best;
  if (cut_count_ == 0 && row_->min_p <= 0.0f) {
    best = DrawAmongAll(z_, place_.first_id, peak_, row_->temperature, at);
  } else {
    GatherOnce();
    for (size_t i = 0; i < candidates_.ids.size(); ++i) {
      Consider(at, candidates_.distance[i], candidates_.ids[i] + place_.first_id, best);
    }
  }
  // Every rank draws the peak's token, and the rank that holds it reports it.
  mine = DrawMessage{};
  if (!Inside(best.id)) return;
  mine.score = best.score;
  mine.id = best.id;
  if (row_->logprobs > 0) mine.raw = changes_.RawOf(z_, place_.first_id, *row_, best.id);
}

void SliceSampler::HearDraw(const Heard& heard) {
  DrawMessage best;
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const auto& one = MessageOf<DrawMessage>(heard, rank);
    if (IsToken(one.id) && one.score > best.score) best = one;
  }
  End(best.id, best.raw);
}

}  // namespace quire::kernels::sampling

// Sampling where each rank holds a slice of the vocabulary: the ranks exchange messages so that all
// of them find the same token, and the same bits of logprobs, as Sampler does in the whole row.
//
// One row at a time, in rounds: every rank sends a message of equal size, then receives those of
// all. Messages are peaks, sums of integer masses, histograms of integer keys and best (value, id)
// pairs: never the logits. Belongs to one thread at a time; its caller exchanges the messages.
// Invariants:
// 1. What a rank does next, and the size of its next message, depend only on the row and on
//    received messages: they are equal on all ranks.
// 2. A received value is never used as an index: a rank that sends nonsense spoils the row, not its
//    peers.
// 3. Sums over ranks are sums of integers, maxima are exact: no result depends on where the
//    vocabulary is cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sampling/candidates.h"
#include "kernels/sampling/row_changes.h"
#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {

// The messages of all ranks in a round, for one row: that of rank q begins at data + q · stride.
struct Heard {
  const std::byte* data = nullptr;
  size_t stride = 0;
};

class SliceSampler {
 public:
  static constexpr size_t kMostMessageBytes = 2048;

  // Allocates all the memory that slices of this many ids can need: none is allocated afterwards.
  void Reserve(int64_t ids, int64_t vocab_size);
  static int64_t ReservedBytes(int64_t ids, int64_t vocab_size);

  struct Place {
    int rank = 0;
    int ranks = 1;
    int32_t first_id = 0;    // of the slice
    int32_t vocab_size = 0;  // of all ranks
  };
  // Begins a row. `logits` is this rank's slice; it, the row and the output stay until done().
  // Equal rows on all ranks. Leaves in `logits` the values after biases, bans and penalties.
  void Begin(std::span<float> logits, const Place& place, const SampleRow& row,
             SampleOutput& output);

  bool done() const { return stage_ == Stage::kDone; }
  // The size for the current round: a multiple of 8, 0 when done.
  size_t MessageBytes() const;
  // Requires: mine.size() = MessageBytes(), mine and the received messages aligned to 8.
  void Say(std::span<std::byte> mine);
  void Hear(const Heard& heard);

 private:
  enum class Stage : uint8_t {
    kPeaks,    // of the raw row
    kRaw,      // sum of masses, best tokens, and the peak after the row's changes
    kMass,     // of the whole row, where a cut by mass comes first
    kWidth,    // mass of what is near the mean
    kTypical,  // mass and mean of the candidates
    kDigit,    // histogram of one digit of the cut's order
    kDraw,
    kDone,
  };
  enum class CutKind : uint8_t { kTopK, kTopP, kTypical };

  struct PeakMessage;
  struct RawMessage;
  struct MassMessage;
  struct DrawMessage;

  bool Inside(int32_t id) const;
  bool IsToken(int32_t id) const { return id >= 0 && id < place_.vocab_size; }
  PeakMessage OwnPeak();
  void TakePeaks(const PeakMessage* first, size_t stride);
  int TopCount() const;
  float LogprobOf(float logit) const;

  void SayRaw(std::span<std::byte> mine);
  void SayMass(MassMessage& mine);
  void SayWidth(MassMessage& mine);
  void SayTypical(MassMessage& mine);
  void SayDigit(uint64_t* counts);
  void SayDraw(DrawMessage& mine);
  void HearPeaks(const Heard& heard);
  void HearRaw(const Heard& heard);
  void HearMass(const MassMessage& sum);
  void HearDigit(const Heard& heard);
  void HearDraw(const Heard& heard);

  void Choose();  // after the peak is known
  void PlanCuts();
  void NextCut();     // to its first round, or to the draw
  void GatherOnce();  // the candidates that min_p and top_k leave, once
  void BeginDigits(uint64_t total);
  void End(int32_t token, float raw);

  std::span<float> z_;
  Place place_;
  const SampleRow* row_ = nullptr;
  SampleOutput* output_ = nullptr;
  Stage stage_ = Stage::kDone;

  RowPeaks peaks_;
  Candidates candidates_;
  RowChanges changes_;

  Peak peak_;                  // of the whole row; the raw one until kRaw has been received
  float peak_raw_ = 0.0f;      // raw logit of the peak's token
  float bound_ = kImpossible;  // at least top_k logits of the row are this large
  float scored_raw_ = kImpossible;
  double raw_peak_ = 0.0;
  double log_sum_ = 0.0;

  std::array<CutKind, 3> cuts_ = {};
  int cut_count_ = 0;
  int cut_ = 0;  // the current one
  bool gathered_ = false;
  bool target_known_ = false;  // of the current cut, before its digits
  int shift_ = 0;              // of the current digit
  uint64_t target_ = 0;
  uint64_t above_ = 0;   // weight of higher orders than the digits found
  uint64_t prefix_ = 0;  // the digits found
  float mean_ = 0.0f;
};

}  // namespace quire::kernels::sampling

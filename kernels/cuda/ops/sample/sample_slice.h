// Sampling where each rank holds a slice of the vocabulary: launches between which all ranks
// receive what each has found in its slice. The logits stay in place.
//
// A step's rows go through rounds. The launch of round r reads the messages of round r − 1 and
// writes what the others need next; then the caller gathers the messages of all ranks. One more
// launch reads the last. Messages are peaks, sums of integer masses, histograms of integer keys and
// best (value, id) pairs. Invariants:
// 1. The parameters of the rows alone determine the number of rounds and the size of every message:
//    they are equal on all ranks, and nothing waits for the result of a round.
// 2. Every output has the bits of LaunchSample over the whole row, on all ranks: sums are of
//    integers, maxima are exact, ties go to the lower rank, which has the lower ids.
// 3. A received value is never used as an index, nor as the id of a token that does not exist: a
//    rank that sends nonsense spoils the row, not its peers.
#pragma once

#include <array>

#include "kernels/cuda/ops/sample/sample.h"

namespace quire::kernels::cuda {

// Up to this top_k every rank sends its best tokens, and cut and draw use only those: two rounds.
// Above it a cut takes four, one for each digit of its order.
inline constexpr int kMostSliceTokens = 128;
// Peaks, raw row, three cuts, the mean of one, draw.
inline constexpr int kMostSliceRounds = 16;
inline constexpr int kMostSliceMessage = 96 + 160 + 2048;  // bytes

// What a row does in each round; 0: nothing more.
struct SliceRow {
  int32_t row = 0;  // of the logits and outputs
  uint8_t stages[kMostSliceRounds] = {};
};

// The messages of a round: of its first `rows` positions, `stride` bytes each.
struct SliceRound {
  int rows = 0;
  int body_at = 0;  // a histogram, or tokens
  int top_at = 0;   // the best raw logits
  int stride = 0;

  size_t Bytes() const { return static_cast<size_t>(rows) * static_cast<size_t>(stride); }
};

struct SliceRounds {
  int count = 0;
  size_t rows_at = 0;  // of the SliceRows, in what is packed
  std::array<SliceRound, kMostSliceRounds> of;
};

// Like PackedSampleRowsBytes and PackSampleRows, for the launches below. Positions are rows in the
// order of how many rounds they need, most first.
size_t PackedSliceRowsBytes(std::span<const SampleRow> rows);
SliceRounds PackSliceRows(std::span<const SampleRow> rows, void* host, void* device);

// Bytes of the state that is kept of rows between launches.
size_t SliceStateBytes(int rows);

struct SampleSliceParams {
  // [rows, stride] float32: this rank's slices, `count` columns of tokens from `first_id` on.
  // Left changed by the lists of rows. Aligned to 16 bytes.
  float* logits = nullptr;
  int64_t stride = 0;  // a multiple of 4
  int count = 0;
  int first_id = 0;
  int vocabulary = 0;  // ids of all ranks
  int rank = 0;
  int ranks = 1;
  const DeviceSampleRow* sample_rows = nullptr;  // as packed
  void* states = nullptr;                        // SliceStateBytes, aligned to 16
  SampleOutput* outputs = nullptr;               // [rows], whole after the last launch
  std::byte* said = nullptr;                     // this rank's messages of a round
  const std::byte* heard = nullptr;              // those of all ranks, one after the other
  // Filled in by LaunchSampleSlice.
  const SliceRow* slice_rows = nullptr;
  int round = 0;
  SliceRound now;
  SliceRound before;
};

// The launch of `round`, 0 to rounds.count.
runtime::Error LaunchSampleSlice(runtime::Runtime& runtime, runtime::StreamId stream,
                                 SampleSliceParams params, const SliceRounds& rounds, int round);

}  // namespace quire::kernels::cuda

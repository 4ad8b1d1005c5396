// One step's work as kernels see it: its tokens, their positions, and the pages that they read and
// write.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sampling/sample_row.h"

namespace quire::kernels {

// One sequence in the step. Its tokens are consecutive in StepBatch::tokens and in position.
struct BatchRow {
  int first_token = 0;     // index into StepBatch::tokens
  int token_count = 0;     // q_len
  int first_position = 0;  // of the first of these tokens; keys before it are in the pages
  // Page ids by cache group, then by logical block (position / block_size). Entries of blocks
  // behind a sliding window are −1 and never read.
  std::span<const std::span<const int32_t>> block_tables;
  // The place that the sequence keeps from step to step, below ProgramOptions::max_rows: a device
  // may know its pages and its last sample from earlier steps. −1 in all rows: the batch is
  // independent of others.
  int32_t slot = -1;
  // The slot of its adapter, below ProgramOptions::max_loras, which holds one; −1: it has none.
  int32_t adapter = -1;
};

// A page that is copied before anything is computed (copy-on-write).
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
};

// From now on block `block` of the sequence in a slot is in `page`.
struct TableChange {
  int32_t slot = 0;
  int32_t group = 0;
  int32_t block = 0;
  int32_t page = 0;
};

// Represents the last sample of a slot in StepBatch::tokens, which the host may not know yet. Only
// programs with more than one step in flight get it.
constexpr int32_t LastSampleOf(int32_t slot) { return -1 - slot; }

// What is known of a batch's sample rows only while its step computes.
class LateMasks {
 public:
  virtual ~LateMasks() = default;
  // Waits for the masks and fills in allowed_mask of the rows that have one. Repeated calls do
  // nothing.
  virtual void Fill() = 0;
};

struct StepBatch {
  std::span<const int32_t> tokens;     // [tokens]
  std::span<const int32_t> positions;  // [tokens]
  std::span<const BatchRow> rows;
  std::span<const PageCopy> copies;
  // [samples] indices into tokens whose logits are needed. Any number: more than the program's
  // max_samples are processed in slices, with the memory of one.
  std::span<const int32_t> sampled_tokens;
  std::span<const SampleRow> sample_rows;  // [samples] how each is sampled
  std::span<SampleOutput> sample_outputs;  // [samples] results
  // Changes in the tables of slots since the last batch, also for rows that this one does not
  // compute.
  std::span<const TableChange> table_changes = {};
  // [samples] the slot whose last sample it is, −1: none; empty: none of them has one.
  std::span<const int32_t> sample_slots = {};
  // Called on the thread that runs or launches the step, when all that comes before the sampling
  // has been computed or queued, and before sample_rows are read. May be null.
  LateMasks* late_masks = nullptr;
  // [tokens][StepProgram::input_width] what InputOps read; empty where the program has none.
  std::span<const float> inputs = {};
};

}  // namespace quire::kernels

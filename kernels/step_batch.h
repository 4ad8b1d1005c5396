// One step's work as kernels see it: which tokens, at which positions, reading and writing which
// pages.
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
};

// A page to be copied before anything is computed (copy-on-write).
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct StepBatch {
  std::span<const int32_t> tokens;     // [tokens]
  std::span<const int32_t> positions;  // [tokens]
  std::span<const BatchRow> rows;
  std::span<const PageCopy> copies;
  // [samples] indices into tokens whose logits are wanted. Any number: what goes beyond the
  // program's max_samples is done in slices, with the memory of one.
  std::span<const int32_t> sampled_tokens;
  std::span<const SampleRow> sample_rows;  // [samples] how each is sampled
  std::span<SampleOutput> sample_outputs;  // [samples] results
};

}  // namespace quire::kernels

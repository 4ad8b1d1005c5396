// One token for each row of logits, by the rules at the head of kernels/sampling/sample_row.h.
//
// Every choice, count and logprob has the same bits as the result of kernels/sampling/sampler.h for
// the row: masses and histograms are sums of integers, noise depends on the token's id, and ties go
// to the lowest id. Each block handles one row and sees no other.
//
// The block reads a row once and keeps the first of its logits in shared memory, kCachedLogits or
// as many as the device has room for; every pass reads the others again (up to three passes without
// a cut, about eight with one). For rows that are only greedy (SampleParams::plain) nothing is
// kept: one pass at any width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/sampling/sample_row.h"

namespace quire::kernels::cuda {

inline constexpr int kCachedLogits = 48 * 1024;
inline constexpr float kLeastTemperature = 1e-5f;  // below it a row is greedy

// A SampleRow whose lists are in device memory. Made by PackSampleRows.
struct DeviceSampleRow : SampleNumbers {
  int32_t scored_token;
  uint64_t output_index;
  uint32_t choice;
  int32_t mask_words;  // 0: every id is allowed
  int32_t banned_count;
  int32_t bias_count;
  int32_t token_count;  // 0 where the row has no penalties
  int32_t changes;      // whether the lists may change a logit
  const uint32_t* allowed_mask;
  const int32_t* banned_ids;
  const TokenBias* logit_bias;
  const TokenCount* token_counts;
  float* raw_biased;   // [bias_count] where the kernel keeps raw logits
  float* raw_counted;  // [token_count]
};

// Bytes that PackSampleRows fills: the rows, their lists, and room for the kernel's own data.
size_t PackedSampleRowsBytes(std::span<const SampleRow> rows);
// Writes to `host` (aligned to 16) the data that must be copied to `device` before LaunchSample.
// Two launches at a time must not share the copy. Returns SampleParams::plain.
bool PackSampleRows(std::span<const SampleRow> rows, void* host, void* device);

struct SampleParams {
  // [rows, stride] float32; the first `vocabulary` columns count. A row whose lists change logits
  // may stay changed after those that were kept. Aligned to 16 bytes.
  float* logits = nullptr;
  int64_t stride = 0;  // a multiple of 4
  int rows = 0;
  int vocabulary = 0;
  const DeviceSampleRow* sample_rows = nullptr;  // [rows] as packed
  SampleOutput* outputs = nullptr;               // [rows], every field of it is written
  bool plain = false;                            // the result of PackSampleRows
  // Filled in by LaunchSample: logits that are kept in shared memory.
  int cached = 0;
};

runtime::Error LaunchSample(runtime::Runtime& runtime, runtime::StreamId stream,
                            SampleParams params);

}  // namespace quire::kernels::cuda

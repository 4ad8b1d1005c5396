// The job that turns latents and queries and puts latents into pages.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

struct LatentJob {
  float* queries = nullptr;
  int64_t queries_stride = 0;
  float* latents = nullptr;
  int64_t latents_stride = 0;
  int heads = 0;
  int query_dim = 0;
  int rank = 0;
  int rope_dim = 0;
  const float* norm = nullptr;
  float epsilon = 0.0f;
  bool pairs = false;
  const float* angles = nullptr;  // as in RopeJob
  LayerPages pages;               // latents are at value_offset
  std::span<const BatchRow> rows;
};

}  // namespace quire::kernels::cpu

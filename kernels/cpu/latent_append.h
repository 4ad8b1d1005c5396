// Latents of multi-head latent attention: their norm, the rotation of keys and queries, and their
// rows in pages.
#pragma once

#include <algorithm>

#include "kernels/cpu/latent_job.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope_append.h"

namespace quire::kernels::cpu {

inline constexpr int kMaxLatentRope = 1024;

// Neighbouring pairs become halves, which is how Rotate turns them.
template <class V>
void HalvePairs(float* x, int dim) {
  float halves[kMaxLatentRope];
  const int half = dim / 2;
  for (int i = 0; i < half; ++i) {
    halves[i] = x[2 * i];
    halves[half + i] = x[2 * i + 1];
  }
  std::copy(halves, halves + dim, x);
}

template <class V>
void LatentAppend(const LatentJob& job, int row_index, int token_begin, int token_end) {
  const BatchRow& row = job.rows[row_index];
  const int half = job.rope_dim / 2;
  NormJob norm;
  norm.weight = job.norm;
  norm.epsilon = job.epsilon;
  norm.width = job.rank;
  // A latent is stored as a value is: a row of a page.
  RopeJob store;
  store.head_dim = job.rank + job.rope_dim;
  store.pages = job.pages;
  const auto turn = [&job, half](float* x, const float* angles) {
    if (job.pairs) HalvePairs<V>(x, job.rope_dim);
    Rotate<V>(x, angles, half);
  };
  for (int i = token_begin; i < token_end; ++i) {
    const int token = row.first_token + i;
    const int position = row.first_position + i;
    const float* angles = job.angles + static_cast<int64_t>(token) * 2 * half;
    float* latent = job.latents + token * job.latents_stride;
    NormRow<V>(norm, latent, latent);
    turn(latent + job.rank, angles);
    for (int head = 0; head < job.heads; ++head) {
      float* query = job.queries + token * job.queries_stride + head * job.query_dim;
      turn(query + job.query_dim - job.rope_dim, angles);
    }
    const int32_t page_id = row.block_tables[job.pages.group][position / job.pages.block_size];
    std::byte* page = job.pages.pool + page_id * job.pages.page_bytes;
    StoreValue<V>(store, page, 0, position % job.pages.block_size, latent);
  }
}

}  // namespace quire::kernels::cpu

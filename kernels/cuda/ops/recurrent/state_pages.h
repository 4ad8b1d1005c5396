// Where kernels find the states of a step's rows: in pages of the pool, by a slot's block tables.
//
// A launch reads the state before a row's first token from the block of the token before it, and
// writes the block of each token that it computes (kernels/state_layout.h). Where neighbouring
// blocks have one page, only the state at the end of the last of them is written. All reads and
// writes of an element are of one thread, so a state may be written where it was read.
#pragma once

#include "kernels/cuda/device/kernel.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/state_layout.h"

namespace quire::kernels::cuda {

// Up to kStateRun tokens of one sequence of a step, from its token `first` on.
struct StateRun {
  int sequence = 0;
  int first = 0;
};
inline constexpr int kStateRun = 32;

// The runs of a step: first those that begin its rows, one for each, then all others. A run that
// begins behind its sequence's tokens is padding: it reads and writes nothing.
struct StateRuns {
  const AttentionSequence* sequences = nullptr;
  const StateRun* runs = nullptr;
  int rows = 0;   // runs that begin a row
  int count = 0;  // of all runs
};

// The pages of one layer's units of a use.
struct StatePages {
  unsigned char* pool = nullptr;
  int64_t page_bytes = 0;
  int block_shift = 4;              // log2 of the tokens of a block
  const int32_t* tables = nullptr;  // [groups of states][slots][blocks] page ids
  int64_t group_stride = 0;         // slots · blocks
  int slot_stride = 0;              // blocks
  StatePart part;
};

// One unit of a row.
struct UnitOfRow {
  const int32_t* table;  // page by block
  unsigned char* place;  // in page 0
  int64_t page_bytes;
  int block_shift;
  AttentionSequence row;

  QUIRE_DEVICE float* At(int block) const {
    return reinterpret_cast<float*>(place + table[block] * page_bytes);
  }
  QUIRE_DEVICE int BlockOf(int token) const { return (row.first_position + token) >> block_shift; }
  // Before the row's first token. Requires: something is before it.
  QUIRE_DEVICE const float* Before() const { return At(BlockOf(-1)); }
  // Behind a token of the row.
  QUIRE_DEVICE float* Behind(int token) const { return At(BlockOf(token)); }
  // Whether the state behind this token stays.
  QUIRE_DEVICE bool Stays(int token) const {
    if (token + 1 == row.token_count) return true;
    const int block = BlockOf(token);
    return BlockOf(token + 1) != block && table[block + 1] != table[block];
  }
  // The last token of the row that is in this token's block.
  QUIRE_DEVICE int LastOfBlock(int token) const {
    const int last = ((BlockOf(token) + 1) << block_shift) - row.first_position - 1;
    return last < row.token_count ? last : row.token_count - 1;
  }
};

// As StatePart::PlaceOf, which is of the host alone.
QUIRE_DEVICE UnitOfRow UnitOf(const StatePages& pages, const AttentionSequence& row, int slot,
                              int unit) {
  const StatePart& part = pages.part;
  int group = part.group;
  int64_t offset = part.offset + unit * part.unit_bytes;
  if (unit >= part.first_count) {
    const int further = unit - part.first_count;
    group += 1 + further / part.page_count;
    offset = further % part.page_count * part.unit_bytes;
  }
  UnitOfRow of;
  of.table = pages.tables + group * pages.group_stride + int64_t{slot} * pages.slot_stride;
  of.place = pages.pool + offset;
  of.page_bytes = pages.page_bytes;
  of.block_shift = pages.block_shift;
  of.row = row;
  return of;
}

}  // namespace quire::kernels::cuda

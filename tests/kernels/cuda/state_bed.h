// States of a few sequences in pages, on a device and for the CPU's kernels beside each other.
//
// Owned by one test. Pages begin as NaN. Units of a layer begin within a page and go on in others,
// as those of a later layer of a model do.
#pragma once

#include <bit>
#include <random>
#include <vector>

#include "kernels/cpu/recurrent_jobs.h"
#include "kernels/cpu/vec16_plain.h"
#include "kernels/cuda/ops/recurrent/state_pages.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {

// Tokens of one sequence in a launch.
struct Piece {
  int slot = 0;
  int first_position = 0;
  int count = 0;
};

class StateBed {
 public:
  static constexpr int kBlock = 16;
  static constexpr int kBlocks = 8;
  static constexpr int kSlots = 3;
  static constexpr int kFirstGroup = 1;  // groups of keys and values are before those of states

  // The layer is the second of two alike.
  StateBed(DeviceBed& bed, const StateShape& shape, uint64_t seed = 1) : bed_(bed) {
    page_bytes_ = 64 + 3 * LargestStateUnit({shape}) / 2;
    page_bytes_ -= page_bytes_ % 64;
    layout_ = PlaceStates({shape, shape}, page_bytes_);
    const int groups = kFirstGroup + layout_.groups;
    const int pages = groups * kSlots * kBlocks;
    host_.assign(static_cast<size_t>(pages * page_bytes_), std::byte{0xff});
    pool_ = bed.New<unsigned char>(host_.size());
    std::vector<int32_t> free(static_cast<size_t>(pages));
    for (int i = 0; i < pages; ++i) free[static_cast<size_t>(i)] = i;
    std::shuffle(free.begin(), free.end(), std::mt19937_64(seed));
    tables_ = free;  // [groups][slots][blocks]
    // Blocks 1 to 3 of slot 0 have the pages of block 3: the states between are not kept.
    for (int group = 0; group < groups; ++group) {
      int32_t* table = tables_.data() + group * kSlots * kBlocks;
      table[1] = table[2] = table[3];
    }
    device_tables_ = bed.Put(tables_);
  }

  const StateLayout::Layer& layer() const { return layout_.layers[1]; }

  // The pieces' tokens follow each other. Padding: runs, and a slot, of no sequence.
  StateRuns Runs(const std::vector<Piece>& pieces, int padding = 0) {
    std::vector<AttentionSequence> sequences(kSlots + 1);
    std::vector<StateRun> first, further;
    int token = 0;
    for (const Piece& piece : pieces) {
      sequences[static_cast<size_t>(piece.slot)] = {token, piece.count, piece.first_position};
      first.push_back({piece.slot, 0});
      for (int at = kStateRun; at < piece.count; at += kStateRun) {
        further.push_back({piece.slot, at});
      }
      token += piece.count;
    }
    first.resize(first.size() + static_cast<size_t>(padding), {kSlots, 0});
    StateRuns runs;
    runs.rows = static_cast<int>(first.size());
    first.insert(first.end(), further.begin(), further.end());
    runs.count = static_cast<int>(first.size());
    runs.sequences = bed_.Put(sequences);
    runs.runs = bed_.Put(first);
    return runs;
  }

  StatePages Pages(const StatePart& part) const {
    StatePages pages;
    pages.pool = pool_;
    pages.page_bytes = page_bytes_;
    pages.block_shift = 4;
    pages.group_stride = kSlots * kBlocks;
    pages.tables = device_tables_ + kFirstGroup * pages.group_stride;
    pages.slot_stride = kBlocks;
    pages.part = part;
    return pages;
  }

  cpu::StatePages HostPages(const StatePart& part) {
    return {host_.data(), page_bytes_, kBlock, kFirstGroup, part};
  }
  // Valid until the next call.
  std::span<const BatchRow> HostRows(const std::vector<Piece>& pieces) {
    rows_.clear();
    spans_.clear();
    spans_.reserve(pieces.size());
    int token = 0;
    for (const Piece& piece : pieces) {
      auto& tables = spans_.emplace_back();
      for (int group = 0; group < kFirstGroup + layout_.groups; ++group) {
        tables.emplace_back(tables_.data() + (group * kSlots + piece.slot) * kBlocks, kBlocks);
      }
      rows_.push_back({token, piece.count, piece.first_position, tables, piece.slot});
      token += piece.count;
    }
    return rows_;
  }

  // Whether pages on the device have the bits of those that the CPU wrote, where that one wrote
  // numbers (it fills up strips of sixteen with zeros).
  void ExpectSamePages() {
    const std::vector<unsigned char> device = bed_.Get(pool_, host_.size());
    int wrong = 0;
    int numbers = 0;
    for (size_t at = 0; at < host_.size(); at += 4) {
      uint32_t own = 0;
      uint32_t cpus = 0;
      std::memcpy(&own, device.data() + at, 4);
      std::memcpy(&cpus, host_.data() + at, 4);
      const bool filled_up = own == 0xffffffffu && cpus == 0;
      numbers += cpus != 0xffffffffu ? 1 : 0;
      wrong += own == cpus || filled_up ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "of " << numbers << " numbers that are kept";
    EXPECT_GT(numbers, 0);
  }

 private:
  DeviceBed& bed_;
  StateLayout layout_;
  int64_t page_bytes_ = 0;
  unsigned char* pool_ = nullptr;
  std::vector<std::byte> host_;
  std::vector<int32_t> tables_;
  const int32_t* device_tables_ = nullptr;
  std::vector<BatchRow> rows_;
  std::vector<std::vector<std::span<const int32_t>>> spans_;
};

}  // namespace quire::kernels::cuda::test

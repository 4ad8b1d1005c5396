// The weight of one module as a quantised checkpoint stores it: where codes, scales and zeros lie,
// and how they become the normal form of kernels/grouped_blocks.h.
//
// A value that points into the mapped tensors of a TensorTable. Format readers make it once shapes
// and types are checked; Write may be called from any thread.
// 1. Every place that a code, a scale or a zero is read from lies inside its tensor.
// 2. Every integer is unsigned: w = (code − zero) · scale, both in 0 … 2^bits − 1. Other codes have
//    no zero: w = their number · scale.
// 3. Write does not fail: Check has found every scale and code that is no number before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor.h"
#include "worker/load/group_scales.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

// Codes of `bits` bits that fill the words of a line one after another from the lowest bits; a code
// may begin in one word and end in the next.
struct CodeLines {
  const Tensor* tensor = nullptr;  // absent: there are none
  int bits = 8;
  int word_bytes = 4;       // 4, or 1 where 8 bits are a word
  int64_t line_stride = 0;  // in words
  int64_t word_stride = 1;
  // AWQ: the eight codes of a word are in the order 0 2 4 6 1 3 5 7.
  bool interleaved = false;
  // bitsandbytes: the first of two codes is the high half of a byte.
  bool high_first = false;

  uint32_t At(int64_t line, int64_t element) const;
  // `count` codes of one line from `first` on.
  void Read(int64_t line, int64_t first, int64_t count, uint8_t* codes) const;
  // Whether words of four bytes hold eight codes each, and those of one place lie side by side.
  bool HasNibbleColumns() const {
    return bits == 4 && word_bytes == 4 && word_stride != 1 && !interleaved && !high_first;
  }
  // The first `count` codes, a multiple of 8, of some lines end to end. Requires HasNibbleColumns.
  void ReadLines(int64_t line, int64_t lines, int64_t count, uint8_t* codes) const;
  // Eight codes from `first`, a multiple of 8, of 4 bits each that are interleaved.
  void Read8(int64_t line, int64_t first, uint8_t (&codes)[8]) const;

 private:
  uint64_t Word(int64_t line, int64_t word) const;
  void Read32(int64_t line, int64_t first, uint8_t* codes) const;
};

// What a code is: an integer, a number of e4m3 or e2m1, or a place in a table of bitsandbytes.
enum class CodeKind : uint8_t { kInteger, kE4m3, kE2m1, kNf4, kFp4 };

struct QuantisedMatrix {
  std::string module;  // for messages
  int64_t rows = 0;    // outputs
  int64_t cols = 0;    // inputs
  CodeKind kind = CodeKind::kInteger;
  CodeLines codes;  // lines are rows, or inputs where lines_are_inputs
  bool lines_are_inputs = false;
  // Codes are one line of all rows end to end, and groups are runs of it; strides count for
  // nothing.
  bool flat = false;
  uint32_t flipped = 0;  // bits that are stored the other way round: the sign of two's complement

  GroupScales scales;
  int64_t rows_per_scale = 1;
  int64_t scale_row_stride = 0;  // in elements
  int64_t scale_group_stride = 0;
  int64_t group = 0;                    // inputs that share a scale
  std::vector<int32_t> group_of_input;  // where they are not neighbours, else empty
  // Columns are inputs in this order where it is not empty; all of the above counts columns.
  std::vector<int32_t> order;
  bool large_scales = false;  // some scale of e4m3 is kF8ScaleLimit or more

  kernels::ActivationRounding rounding = {};  // of its inputs, without weight_group

  CodeLines zeros;        // line is the group, element the row
  uint32_t zero = 0;      // where there are none
  uint32_t zero_add = 0;  // what files of older GPTQ leave out, modulo 2^bits

  // What Write makes: kG4 to kF8, kF4_16, kMXFP4, kNF4 or kFP4, which are exact, or kF32 (each
  // weight rounded once) where groups are not whole runs of a block's neighbours.
  kernels::DType Form() const;
  // Of the inputs of columns from `col` on.
  kernels::ActivationRounding RoundingFrom(int64_t col) const;
  // Puts columns in the order of their groups, so that a group's are neighbours, and codes can stay
  // codes. Does nothing where some group has another number of inputs than it should, or inputs are
  // rounded by groups.
  void OrderByGroups();

  struct Slice {
    int64_t row = 0;
    int64_t rows = 0;
    int64_t col = 0;  // a multiple of a block of Form(); columns in an order are whole rows
    int64_t cols = 0;
  };
  // INVALID_ARGUMENT names the tensor with a scale or a code of the slice that is no number.
  absl::Status Check(const Slice& slice) const;
  // The slice in Form(), rows end to end. Requires: Check of these rows has passed.
  void Write(const Slice& slice, std::byte* out) const;
  // The same in float32, its columns end to end.
  void WriteTransposed(const Slice& slice, float* out) const;
  // Where the codes of these rows lie, if that is one run of bytes; else nothing.
  std::span<const std::byte> BytesOfRows(int64_t first, int64_t count) const;

 private:
  // What the codes from some column up to `end` share.
  struct Group {
    float scale = 0.0f;
    int zero = 0;
    int64_t place = 0;  // of the scale
    int64_t end = 0;
  };
  Group GroupFrom(int64_t row, int64_t col) const;
  int64_t GroupAt(int64_t row, int64_t col) const;
  int64_t GroupEnd(int64_t row, int64_t col) const;
  int64_t ScalePlace(int64_t row, int64_t col) const;
  uint32_t ZeroAt(int64_t row, int64_t group_index) const;
  std::vector<int64_t> ColumnsOfGroups(const Slice& slice) const;
  absl::Status CheckScale(int64_t row, int64_t col) const;
  absl::Status CheckCodes(const Slice& slice) const;

  // Rows that are written together: as many as share a word where lines are inputs.
  static constexpr int64_t kRowsAtOnce = 8;
  void ReadRows(const Slice& rows, uint8_t* codes) const;
  void WriteRow(kernels::DType form, int64_t row, const Slice& slice, const uint8_t* codes,
                std::byte* out) const;
  void WriteFloats(int64_t row, const Slice& slice, const uint8_t* codes, float* out) const;
  float NumberOf(uint8_t code, int zero) const;
};

}  // namespace quire::load

// From the codes, scales and zeros of a checkpoint to the blocks of kernels/grouped_blocks.h.
#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kernels/gguf_blocks.h"
#include "kernels/grouped_blocks.h"
#include "worker/load/quantised_matrix.h"

namespace quire::load {
namespace {

using kernels::DType;
namespace grouped = kernels::grouped;

constexpr int kSignedOffset = 1 << 7;  // codes of kG8 are signed

void PutRun(DType form, const uint8_t* codes, int run, std::byte* block) {
  uint8_t q[grouped::kRun];
  std::memcpy(q, codes, sizeof(q));
  if (form == DType::kMXFP4 || grouped::HasNibbles(form)) {
    grouped::PutNibbles(form, block, run, q);
    return;
  }
  if (form == DType::kG8) {
    for (uint8_t& code : q) code ^= kSignedOffset;
  }
  std::memcpy(block + grouped::HeadBytes(form), q, sizeof(q));
}

}  // namespace

// The codes of a slice of at most kRowsAtOnce rows, rows end to end.
void QuantisedMatrix::ReadRows(const Slice& slice, uint8_t* read) const {
  const int64_t count = slice.rows * slice.cols;
  QUIRE_CHECK(slice.rows <= kRowsAtOnce && slice.row + slice.rows <= rows);
  const bool whole = slice.cols == cols && cols % 8 == 0;
  if (!lines_are_inputs && !flat && whole && codes.HasNibbleColumns()) {
    codes.ReadLines(slice.row, slice.rows, slice.cols, read);
  } else if (!lines_are_inputs) {
    for (int64_t i = 0; i < slice.rows; ++i) {
      const int64_t row = slice.row + i;
      codes.Read(flat ? 0 : row, flat ? row * cols + slice.col : slice.col, slice.cols,
                 read + i * slice.cols);
    }
  } else if (codes.interleaved && slice.rows == 8 && slice.row % 8 == 0) {
    for (int64_t j = 0; j < slice.cols; ++j) {
      uint8_t eight[8];
      codes.Read8(slice.col + j, slice.row, eight);
      for (int64_t i = 0; i < 8; ++i) read[i * slice.cols + j] = eight[i];
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = codes.At(slice.col + i % slice.cols, slice.row + i / slice.cols);
      read[i] = static_cast<uint8_t>(code);
    }
  }
  std::vector<uint8_t> in_file(order.size());
  for (int64_t i = 0; !order.empty() && i < slice.rows; ++i) {
    uint8_t* const row = read + i * slice.cols;
    std::copy_n(row, slice.cols, in_file.begin());
    for (size_t j = 0; j < order.size(); ++j) row[j] = in_file[static_cast<size_t>(order[j])];
  }
  const auto turned = static_cast<uint8_t>(flipped);
  for (int64_t i = 0; turned != 0 && i < count; ++i) read[i] ^= turned;
}

void QuantisedMatrix::WriteRow(DType form, int64_t row, const Slice& slice, const uint8_t* read,
                               std::byte* out) const {
  const int64_t elements = BlockElements(form);
  const int64_t end = slice.col + slice.cols;
  Group own{.end = slice.col};
  for (int64_t col = slice.col; col < end; col += elements, out += BlockBytes(form)) {
    if (col >= own.end) own = GroupFrom(row, col);
    if (form == DType::kMXFP4) {
      *out = scales.tensor->bytes[static_cast<size_t>(own.place)];
    } else {
      grouped::PutHead(form, own.scale, own.zero - (form == DType::kG8 ? kSignedOffset : 0), out);
    }
    if (form == DType::kF4_16) {
      if (col + 16 >= own.end) own = GroupFrom(row, col + 16);
      std::memcpy(out + sizeof(own.scale), &own.scale, sizeof(own.scale));
    }
    for (int run = 0; run < elements / grouped::kRun; ++run, read += grouped::kRun)
      PutRun(form, read, run, out);
  }
}

float QuantisedMatrix::NumberOf(uint8_t code, int zero_of_code) const {
  switch (kind) {
    case CodeKind::kE4m3:
      return grouped::E4m3(code);
    case CodeKind::kE2m1:
      return 0.5f * static_cast<float>(kernels::gguf::kE2m1Table[code & 15u]);
    case CodeKind::kNf4:
      return grouped::kNf4Values[code & 15u];
    case CodeKind::kFp4:
      return grouped::kFp4Values[code & 15u];
    case CodeKind::kInteger:
      break;
  }
  return static_cast<float>(static_cast<int>(code) - zero_of_code);
}

void QuantisedMatrix::WriteFloats(int64_t row, const Slice& slice, const uint8_t* read,
                                  float* out) const {
  Group own{.end = slice.col};
  for (int64_t col = slice.col; col < slice.col + slice.cols; ++col) {
    if (col >= own.end) own = GroupFrom(row, col);
    *out++ = own.scale * NumberOf(*read++, own.zero);
  }
}

void QuantisedMatrix::WriteTransposed(const Slice& slice, float* out) const {
  std::vector<uint8_t> read(static_cast<size_t>(slice.cols));
  std::vector<float> values(static_cast<size_t>(slice.cols));
  for (int64_t row = 0; row < slice.rows; ++row) {
    ReadRows({slice.row + row, 1, slice.col, slice.cols}, read.data());
    WriteFloats(slice.row + row, slice, read.data(), values.data());
    for (int64_t col = 0; col < slice.cols; ++col) {
      out[col * slice.rows + row] = values[static_cast<size_t>(col)];
    }
  }
}

void QuantisedMatrix::Write(const Slice& slice, std::byte* out) const {
  const DType form = Form();
  const int64_t bytes = slice.cols / BlockElements(form) * BlockBytes(form);
  QUIRE_CHECK(slice.cols % BlockElements(form) == 0 && slice.col % BlockElements(form) == 0);
  std::vector<uint8_t> read(static_cast<size_t>(kRowsAtOnce * slice.cols));
  for (int64_t row = slice.row; row < slice.row + slice.rows;) {
    // As far as the next word of eight rows.
    const int64_t count = std::min(kRowsAtOnce - row % kRowsAtOnce, slice.row + slice.rows - row);
    ReadRows({row, count, slice.col, slice.cols}, read.data());
    for (int64_t i = 0; i < count; ++i, ++row, out += bytes) {
      const uint8_t* const codes_of_row = read.data() + i * slice.cols;
      if (form == DType::kF32) {
        WriteFloats(row, slice, codes_of_row, reinterpret_cast<float*>(out));
      } else {
        WriteRow(form, row, slice, codes_of_row, out);
      }
    }
  }
}

}  // namespace quire::load

#include "worker/load/quantised_matrix.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/gguf_blocks.h"
#include "kernels/grouped_blocks.h"

namespace quire::load {
namespace {

using kernels::DType;
namespace grouped = kernels::grouped;

constexpr int kRun = grouped::kRun;
constexpr int kSignedOffset = 1 << 7;  // codes of kG8 are signed

absl::Status NotANumber(const Tensor& tensor, int64_t row, int64_t col) {
  return absl::InvalidArgumentError(absl::StrCat(tensor.file, ": tensor \"", tensor.name,
                                                 "\" holds NaN at [", row, ", ", col,
                                                 "]; every weight must be a number"));
}

}  // namespace

uint64_t CodeLines::Word(int64_t line, int64_t word) const {
  const std::byte* at =
      tensor->bytes.data() + (line * line_stride + word * word_stride) * word_bytes;
  if (word_bytes == 1) return static_cast<uint8_t>(*at);
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint32_t CodeLines::At(int64_t line, int64_t element) const {
  static constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  int64_t place = interleaved ? element - element % 8 + kPlaces[element % 8] : element;
  if (high_first) place ^= 1;
  const int word_bits = 8 * word_bytes;
  const int64_t word = place * bits / word_bits;
  const int shift = static_cast<int>(place * bits % word_bits);
  uint64_t value = Word(line, word);
  if (shift + bits > word_bits) value |= Word(line, word + 1) << word_bits;
  return static_cast<uint32_t>(value >> shift) & ((1u << bits) - 1);
}

void CodeLines::Read32(int64_t line, int64_t first, uint8_t (&codes)[32]) const {
  // Most files: bytes or nibbles one after another, since words are little-endian.
  if (word_stride == 1 && (bits == 8 || bits == 4)) {
    const std::byte* at = tensor->bytes.data() + line * line_stride * word_bytes + first * bits / 8;
    uint8_t bytes[32];
    std::memcpy(bytes, at, static_cast<size_t>(4 * bits));
    if (bits == 8) {
      std::memcpy(codes, bytes, sizeof(codes));
      return;
    }
    for (int j = 0; j < 16; ++j) {
      codes[2 * j + (high_first ? 1 : 0)] = bytes[j] & 15;
      codes[2 * j + (high_first ? 0 : 1)] = bytes[j] >> 4;
    }
    return;
  }
  const int word_bits = 8 * word_bytes;
  int64_t word = first * bits / word_bits;
  uint64_t value = 0;
  int held = 0;
  for (uint8_t& code : codes) {
    if (held < bits) {
      value |= Word(line, word++) << held;
      held += word_bits;
    }
    code = static_cast<uint8_t>(value & ((1u << bits) - 1));
    value >>= bits;
    held -= bits;
  }
  if (!high_first) return;
  for (int j = 0; j < 32; j += 2) std::swap(codes[j], codes[j + 1]);
}

DType QuantisedMatrix::Form() const {
  const auto whole = [this](int64_t run) {
    return group_of_input.empty() && cols % run == 0 && (group % run == 0 || group >= cols);
  };
  if (kind == CodeKind::kNf4 || kind == CodeKind::kFp4) {
    if (cols % BlockElements(DType::kNF4) != 0 || group % BlockElements(DType::kNF4) != 0) {
      return DType::kF32;
    }
    return kind == CodeKind::kNf4 ? DType::kNF4 : DType::kFP4;
  }
  if (kind == CodeKind::kE2m1 && scales.kind != GroupScales::Kind::kExponent) {
    return cols % kRun == 0 && group % 16 == 0 ? DType::kF4_16 : DType::kF32;
  }
  if (!whole(kRun)) return DType::kF32;
  if (kind == CodeKind::kE2m1) return DType::kMXFP4;
  if (kind == CodeKind::kE4m3) return DType::kF8;
  if (codes.bits > 4) return DType::kG8;
  return whole(BlockElements(DType::kG4_128)) ? DType::kG4_128 : DType::kG4;
}

kernels::ActivationRounding QuantisedMatrix::RoundingFrom(int64_t col) const {
  kernels::ActivationRounding own = rounding;
  if (own.code == kernels::ActivationRounding::Code::kNone || group >= cols) return own;
  // A slice that begins within a group has groups of two lengths: no number of inputs is right.
  own.weight_group = col % group == 0 ? group : 1;
  return own;
}

uint32_t QuantisedMatrix::CodeAt(int64_t row, int64_t col) const {
  if (flat) return codes.At(0, row * cols + col) ^ flipped;
  return (lines_are_inputs ? codes.At(col, row) : codes.At(row, col)) ^ flipped;
}

// Of its row, or of the matrix where that is flat.
int64_t QuantisedMatrix::GroupAt(int64_t row, int64_t col) const {
  if (flat) return (row * cols + col) / group;
  if (!group_of_input.empty()) return group_of_input[static_cast<size_t>(col)];
  return group >= cols ? 0 : col / group;
}

int64_t QuantisedMatrix::ScalePlace(int64_t row, int64_t col) const {
  const int64_t index = GroupAt(row, col);
  return flat ? index : row / rows_per_scale * scale_row_stride + index * scale_group_stride;
}

absl::Status QuantisedMatrix::ReadScale(int64_t row, int64_t col, float& scale) const {
  scale = scales.At(ScalePlace(row, col));
  if (std::isfinite(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(scales.tensor->file, ": tensor \"", scales.tensor->name, "\" holds ", scale,
                   " as the scale of row ", row, ", group ", GroupAt(row, col),
                   "; every scale must be a finite number"));
}

uint32_t QuantisedMatrix::ZeroAt(int64_t row, int64_t group_index) const {
  if (zeros.tensor == nullptr) return zero;
  return ((zeros.At(group_index, row) ^ flipped) + zero_add) & ((1u << codes.bits) - 1);
}

absl::Status QuantisedMatrix::ReadCodes(int64_t row, int64_t col, uint8_t (&read)[32]) const {
  if (lines_are_inputs) {
    for (int j = 0; j < kRun; ++j) read[j] = static_cast<uint8_t>(codes.At(col + j, row));
  } else if (flat) {
    codes.Read32(0, row * cols + col, read);
  } else {
    codes.Read32(row, col, read);
  }
  if (flipped != 0) {
    for (uint8_t& code : read) code ^= static_cast<uint8_t>(flipped);
  }
  if (kind != CodeKind::kE4m3) return absl::OkStatus();
  bool wrong = false;
  for (const uint8_t code : read) wrong |= grouped::IsE4m3Nan(code);
  for (int j = 0; wrong && j < kRun; ++j) {
    if (grouped::IsE4m3Nan(read[j])) return NotANumber(*codes.tensor, row, col + j);
  }
  return absl::OkStatus();
}

// What is before the codes of a block.
absl::Status QuantisedMatrix::WriteHead(DType form, int64_t row, int64_t col,
                                        std::byte* out) const {
  float scale = 0.0f;
  QUIRE_RETURN_IF_ERROR(ReadScale(row, col, scale));
  if (form == DType::kMXFP4) {
    *out = scales.tensor->bytes[static_cast<size_t>(ScalePlace(row, col))];
    return absl::OkStatus();
  }
  int zero_of_codes = 0;
  if (grouped::HasZero(form)) zero_of_codes = static_cast<int>(ZeroAt(row, GroupAt(row, col)));
  if (form == DType::kG8) zero_of_codes -= kSignedOffset;
  grouped::PutHead(form, scale, zero_of_codes, out);
  if (form != DType::kF4_16) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(ReadScale(row, col + 16, scale));
  std::memcpy(out + sizeof(scale), &scale, sizeof(scale));
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::WriteBlock(DType form, int64_t row, int64_t col,
                                         std::byte* out) const {
  QUIRE_RETURN_IF_ERROR(WriteHead(form, row, col, out));
  for (int run = 0; run < BlockElements(form) / kRun; ++run) {
    uint8_t read[kRun];
    QUIRE_RETURN_IF_ERROR(ReadCodes(row, col + run * kRun, read));
    if (form == DType::kMXFP4 || grouped::HasNibbles(form)) {
      grouped::PutNibbles(form, out, run, read);
      continue;
    }
    if (form == DType::kG8) {
      for (uint8_t& code : read) code = static_cast<uint8_t>(code - kSignedOffset);
    }
    std::memcpy(out + grouped::HeadBytes(form), read, kRun);
  }
  return absl::OkStatus();
}

float QuantisedMatrix::NumberOf(uint32_t code, int64_t row, int64_t col) const {
  const auto byte = static_cast<uint8_t>(code);
  switch (kind) {
    case CodeKind::kE4m3:
      return grouped::E4m3(byte);
    case CodeKind::kE2m1:
      return 0.5f * static_cast<float>(kernels::gguf::kE2m1Table[byte & 15u]);
    case CodeKind::kNf4:
      return grouped::kNf4Values[byte & 15u];
    case CodeKind::kFp4:
      return grouped::kFp4Values[byte & 15u];
    case CodeKind::kInteger:
      break;
  }
  return static_cast<float>(static_cast<int>(code) -
                            static_cast<int>(ZeroAt(row, GroupAt(row, col))));
}

absl::Status QuantisedMatrix::WriteFloats(int64_t row, const Slice& slice, std::byte* out) const {
  for (int64_t col = slice.col; col < slice.col + slice.cols; ++col, out += sizeof(float)) {
    float scale = 0.0f;
    QUIRE_RETURN_IF_ERROR(ReadScale(row, col, scale));
    const uint32_t code = CodeAt(row, col);
    if (kind == CodeKind::kE4m3 && grouped::IsE4m3Nan(static_cast<uint8_t>(code))) {
      return NotANumber(*codes.tensor, row, col);
    }
    const float value = scale * NumberOf(code, row, col);
    std::memcpy(out, &value, sizeof(value));
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::WriteTransposed(const Slice& slice, float* out) const {
  std::vector<float> values(static_cast<size_t>(slice.cols));
  for (int64_t row = 0; row < slice.rows; ++row) {
    QUIRE_RETURN_IF_ERROR(
        WriteFloats(slice.row + row, slice, reinterpret_cast<std::byte*>(values.data())));
    for (int64_t col = 0; col < slice.cols; ++col) {
      out[col * slice.rows + row] = values[static_cast<size_t>(col)];
    }
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::Write(const Slice& slice, std::byte* out) const {
  const DType form = Form();
  const int64_t elements = BlockElements(form);
  for (int64_t row = slice.row; row < slice.row + slice.rows; ++row) {
    if (form == DType::kF32) {
      QUIRE_RETURN_IF_ERROR(WriteFloats(row, slice, out));
      out += 4 * slice.cols;
      continue;
    }
    for (int64_t col = slice.col; col < slice.col + slice.cols; col += elements) {
      QUIRE_RETURN_IF_ERROR(WriteBlock(form, row, col, out));
      out += BlockBytes(form);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::load

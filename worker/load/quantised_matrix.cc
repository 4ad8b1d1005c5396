#include "worker/load/quantised_matrix.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/grouped_blocks.h"

namespace quire::load {
namespace {

using kernels::DType;
namespace grouped = kernels::grouped;

constexpr int kRun = grouped::kRun;

float HalfToFloat(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

}  // namespace

float FloatElement(const Tensor& tensor, int64_t i) {
  if (*tensor.type == DType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
  if (*tensor.type == DType::kF16) return HalfToFloat(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

namespace {

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
  const int64_t place = interleaved ? element - element % 8 + kPlaces[element % 8] : element;
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
      codes[2 * j] = bytes[j] & 15;
      codes[2 * j + 1] = bytes[j] >> 4;
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
}

DType QuantisedMatrix::Form() const {
  const auto whole = [this](int64_t run) {
    return group_of_input.empty() && cols % run == 0 && (group % run == 0 || group >= cols);
  };
  if (!whole(kRun)) return DType::kF32;
  if (e4m3) return DType::kF8;
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

absl::Status QuantisedMatrix::ReadScale(int64_t row, int64_t group_index, float& scale) const {
  scale = FloatElement(*scales,
                       row / rows_per_scale * scale_row_stride + group_index * scale_group_stride);
  if (std::isfinite(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      scales->file, ": tensor \"", scales->name, "\" holds ", scale, " as the scale of row ", row,
      ", group ", group_index, "; every scale must be a finite number"));
}

uint32_t QuantisedMatrix::ZeroAt(int64_t row, int64_t group_index) const {
  if (zeros.tensor == nullptr) return zero;
  return ((zeros.At(group_index, row) ^ flipped) + zero_add) & ((1u << codes.bits) - 1);
}

absl::Status QuantisedMatrix::ReadCodes(int64_t row, int64_t col, uint8_t (&read)[32]) const {
  if (lines_are_inputs) {
    for (int j = 0; j < kRun; ++j) read[j] = static_cast<uint8_t>(codes.At(col + j, row));
  } else {
    codes.Read32(row, col, read);
  }
  if (flipped != 0) {
    for (uint8_t& code : read) code ^= static_cast<uint8_t>(flipped);
  }
  if (!e4m3) return absl::OkStatus();
  bool wrong = false;
  for (const uint8_t code : read) wrong |= grouped::IsE4m3Nan(code);
  for (int j = 0; wrong && j < kRun; ++j) {
    if (grouped::IsE4m3Nan(read[j])) return NotANumber(*codes.tensor, row, col + j);
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::WriteBlock(int64_t row, int64_t col, std::byte* out) const {
  const DType form = Form();
  const int64_t index = group >= cols ? 0 : col / group;
  float scale = 0.0f;
  QUIRE_RETURN_IF_ERROR(ReadScale(row, index, scale));
  // Codes of G8 are signed.
  const int offset = form == DType::kG8 ? 1 << 7 : 0;
  grouped::PutHead(form, scale, static_cast<int>(ZeroAt(row, index)) - offset, out);
  for (int run = 0; run < BlockElements(form) / kRun; ++run) {
    uint8_t read[kRun];
    QUIRE_RETURN_IF_ERROR(ReadCodes(row, col + run * kRun, read));
    if (grouped::HasNibbles(form)) {
      grouped::PutNibbles(out, run, read);
      continue;
    }
    for (uint8_t& code : read) code = static_cast<uint8_t>(code - offset);
    std::memcpy(out + grouped::HeadBytes(form), read, kRun);
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::WriteFloats(int64_t row, const Slice& slice, std::byte* out) const {
  for (int64_t col = slice.col; col < slice.col + slice.cols; ++col, out += sizeof(float)) {
    const int64_t index = !group_of_input.empty() ? group_of_input[static_cast<size_t>(col)]
                          : group >= cols         ? 0
                                                  : col / group;
    float scale = 0.0f;
    QUIRE_RETURN_IF_ERROR(ReadScale(row, index, scale));
    const uint32_t code = (lines_are_inputs ? codes.At(col, row) : codes.At(row, col)) ^ flipped;
    if (e4m3 && grouped::IsE4m3Nan(static_cast<uint8_t>(code))) {
      return NotANumber(*codes.tensor, row, col);
    }
    const float integer =
        static_cast<float>(static_cast<int>(code) - static_cast<int>(ZeroAt(row, index)));
    const float value = scale * (e4m3 ? grouped::E4m3(static_cast<uint8_t>(code)) : integer);
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
      QUIRE_RETURN_IF_ERROR(WriteBlock(row, col, out));
      out += BlockBytes(form);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::load

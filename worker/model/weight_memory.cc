#include "worker/model/weight_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kernels/cpu/half.h"
#include "worker/load/mapped_file.h"

namespace quire::model {
namespace {

using kernels::DType;
using kernels::WeightSource;

// To the nearest even. False: a finite number becomes infinite.
bool StoreFloat(DType type, float value, std::byte* to) {
  if (type == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return true;
  }
  const bool half = type == DType::kF16;
  const uint16_t bits =
      half ? kernels::cpu::FloatToHalf(value) : kernels::cpu::FloatToBFloat(value);
  std::memcpy(to, &bits, sizeof(bits));
  const float kept = half ? kernels::cpu::HalfToFloat(bits) : kernels::cpu::BFloatToFloat(bits);
  return std::isfinite(kept) || !std::isfinite(value);
}

}  // namespace

bool IsFloat(DType type) { return kernels::BlockElements(type) == 1; }

float FloatAt(const WeightSource& source, int64_t i) {
  if (source.type == DType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, source.data + i * 4, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, source.data + i * 2, sizeof(bits));
  return source.type == DType::kF16 ? kernels::cpu::HalfToFloat(bits)
                                    : kernels::cpu::BFloatToFloat(bits);
}

WeightMemory::~WeightMemory() {
  for (std::span<std::byte> block : blocks_) munmap(block.data(), block.size());
}

std::byte* WeightMemory::Allocate(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QUIRE_CHECK_MSG(data != MAP_FAILED, "out of memory for weights");
  blocks_.emplace_back(static_cast<std::byte*>(data), size);
  return blocks_.back().data();
}

bool WeightMemory::MustConvert(const WeightSource& source) const {
  return float_type_.has_value() && IsFloat(source.type) && source.type != *float_type_;
}

WeightSource WeightMemory::Convert(const WeightSource& source, const std::string& name) {
  if (!MustConvert(source)) return source;
  WeightSource made{*float_type_, source.rows, source.cols};
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  promises_.push_back({source, 1, *float_type_, data, name});
  converted_to_ = float_type_;
  return made;
}

WeightSource WeightMemory::Gather(const WeightSource& source, int64_t column_step,
                                  const std::string& name) {
  WeightSource made{float_type_.value_or(source.type), source.rows, source.cols};
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  promises_.push_back({source, column_step, made.type, data, name});
  if (MustConvert(source)) converted_to_ = float_type_;
  return made;
}

WeightSource WeightMemory::Later(DType type, int64_t rows, int64_t cols,
                                 std::function<void(std::byte* to)> write) {
  WeightSource made{type, rows, cols};
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  later_.push_back([data, write = std::move(write)] { write(data); });
  return made;
}

WeightSource WeightMemory::MakeRows(DType type, int64_t rows, int64_t cols, WriteRows write,
                                    std::span<const std::byte> file) {
  QUIRE_CHECK(!IsFloat(type));
  WeightSource made{type, rows, cols};
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  ++quantised_.kept;
  auto writer = std::make_unique<MadeRows>();
  writer->write = std::move(write);
  writer->file = file;
  writer->rows = rows;
  writer->to = data;
  made.writer = writer.get();
  made_rows_.push_back(std::move(writer));
  return made;
}

absl::StatusOr<WeightSource> WeightMemory::ConvertVector(const WeightSource& source,
                                                         const std::string& name) {
  if (!MustConvert(source)) return source;
  const WeightSource made = Convert(source, name);
  const Promise promise = std::move(promises_.back());
  promises_.pop_back();
  QUIRE_RETURN_IF_ERROR(Write(promise));
  return made;
}

absl::Status WeightMemory::Write(const Promise& promise) const {
  const int64_t bytes = kernels::BlockBytes(promise.type);
  std::byte* to = promise.to;
  for (int64_t row = 0; row < promise.from.rows; ++row) {
    WeightSource one = promise.from;
    one.data = promise.from.Row(row);
    for (int64_t i = 0; i < one.cols; ++i, to += bytes) {
      const float value = FloatAt(one, i * promise.column_step);
      if (StoreFloat(promise.type, value, to)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--dtype: tensor \"", promise.name, "\" holds ", value, ", which ",
          promise.type == DType::kF16 ? "float16" : "bfloat16", " cannot; use float32 or auto"));
    }
  }
  return absl::OkStatus();
}

void WeightMemory::QuantisedRows::Write(int64_t first, int64_t count, std::byte* out) const {
  QUIRE_CHECK(!transposed && first >= 0 && first + count <= slice.rows);
  from.Write({slice.row + first, count, slice.col, slice.cols}, out);
}

std::span<const std::byte> WeightMemory::QuantisedRows::BytesBehind(int64_t first,
                                                                    int64_t count) const {
  const std::span<const std::byte> bytes = from.BytesOfRows(slice.row + first, count);
  // Rows that lie across all of the tensor are read to the end.
  if (bytes.empty() && first + count == slice.rows) return from.codes.tensor->bytes;
  return bytes;
}

WeightMemory::QuantisedRows& WeightMemory::KeepRows(load::QuantisedMatrix matrix,
                                                    const load::QuantisedMatrix::Slice& slice,
                                                    std::byte* to) {
  auto rows = std::make_unique<QuantisedRows>();
  rows->from = std::move(matrix);
  rows->slice = slice;
  rows->to = to;
  quantised_rows_.push_back(std::move(rows));
  return *quantised_rows_.back();
}

WeightSource WeightMemory::Make(load::QuantisedMatrix matrix,
                                const load::QuantisedMatrix::Slice& slice) {
  WeightSource made{matrix.Form(), slice.rows, slice.cols};
  made.rounding = matrix.RoundingFrom(slice.col);
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  ++(IsFloat(made.type) ? quantised_.as_float32 : quantised_.kept);
  if (IsFloat(made.type)) quantised_.float32_bytes += made.Bytes();
  const QuantisedRows& rows = KeepRows(std::move(matrix), slice, data);
  made.writer = &rows;
  if (!rows.from.order.empty()) made.order = rows.from.order.data();
  return made;
}

WeightSource WeightMemory::MakeTransposed(load::QuantisedMatrix matrix,
                                          const load::QuantisedMatrix::Slice& slice) {
  WeightSource made{DType::kF32, slice.cols, slice.rows};
  std::byte* const data = Allocate(made.Bytes());
  made.data = data;
  ++quantised_.as_float32;
  quantised_.float32_bytes += made.Bytes();
  KeepRows(std::move(matrix), slice, data).transposed = true;
  return made;
}

absl::Status WeightMemory::Fill(const std::function<void(const void* data, int64_t bytes)>& release,
                                bool writers_only) {
  for (const Promise& promise : promises_) QUIRE_RETURN_IF_ERROR(Write(promise));
  promises_.clear();
  if (!writers_only) {
    for (const std::unique_ptr<MadeRows>& made : made_rows_) {
      later_.emplace_back([&made = *made, &release] {
        made.write(0, made.rows, made.to);
        if (release) release(made.file.data(), static_cast<int64_t>(made.file.size()));
      });
    }
  }
  // Matrices are divided among threads; the reported error is the first bad one's.
  std::vector<absl::Status> results(quantised_rows_.size());
  std::atomic<size_t> next{0};
  const size_t count = results.size() + later_.size();
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      if (i >= results.size()) {
        later_[i - results.size()]();
        continue;
      }
      const QuantisedRows& rows = *quantised_rows_[i];
      results[i] = rows.from.Check(rows.slice);
      if (!results[i].ok() || (writers_only && !rows.transposed)) continue;
      if (rows.transposed) {
        rows.from.WriteTransposed(rows.slice, reinterpret_cast<float*>(rows.to));
      } else {
        rows.from.Write(rows.slice, rows.to);
      }
      const std::span<const std::byte> codes = rows.from.codes.tensor->bytes;
      if (release) release(codes.data(), static_cast<int64_t>(codes.size()));
    }
  };
  std::vector<std::thread> helpers;
  const size_t threads = std::min<size_t>(std::thread::hardware_concurrency(), count);
  for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  later_.clear();
  for (const absl::Status& result : results) QUIRE_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

void WeightMemory::Release(const void* data, int64_t bytes) const {
  const auto* byte = static_cast<const std::byte*>(data);
  for (std::span<std::byte> block : blocks_) {
    if (byte >= block.data() && byte < block.data() + block.size()) load::DropPages(data, bytes);
  }
}

}  // namespace quire::model

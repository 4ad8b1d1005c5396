// Memory for weights that cannot be used in place in the file: joined biases, reordered rows,
// floats that are converted to another type, quantised checkpoints in their normal form.
//
// Owned by the loaded Model; filled while its program is built and by Fill, read-only afterwards.
// 1. A block's address stays the same until the object ends.
// 2. Only Fill converts matrices, so that a process that only plans reads and keeps none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/row_writer.h"
#include "kernels/tensor.h"
#include "worker/load/quantised_matrix.h"

namespace quire::model {

class WeightMemory {
 public:
  // Without a type, floats keep the type of their file.
  explicit WeightMemory(std::optional<kernels::DType> float_type = std::nullopt)
      : float_type_(float_type) {}
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // `bytes` zero bytes on whole pages of their own. The process ends when memory runs out.
  std::byte* Allocate(int64_t bytes);

  // `source`, a matrix, in the requested type; a quantised matrix, or one of that type, is returned
  // unchanged. `source` outlives Fill, `name` is for messages.
  kernels::WeightSource Convert(const kernels::WeightSource& source, const std::string& name);
  // The same for a matrix whose neighbours in a row lie `column_step` elements apart: its rows are
  // written end to end, also without a requested type.
  kernels::WeightSource Gather(const kernels::WeightSource& source, int64_t column_step,
                               const std::string& name);
  // A matrix whose rows end to end Fill lets `write` make, on any thread.
  kernels::WeightSource Later(kernels::DType type, int64_t rows, int64_t cols,
                              std::function<void(std::byte* to)> write);
  // Rows first … first + count − 1 of a quantised matrix, end to end.
  using WriteRows = std::function<void(int64_t first, int64_t count, std::byte* to)>;
  // A quantised matrix that `write` makes as Fill describes; `file` is what it reads alone.
  kernels::WeightSource MakeRows(kernels::DType type, int64_t rows, int64_t cols, WriteRows write,
                                 std::span<const std::byte> file);
  // The same as Convert for a vector, at once: INVALID_ARGUMENT as Fill.
  absl::StatusOr<kernels::WeightSource> ConvertVector(const kernels::WeightSource& source,
                                                      const std::string& name);
  // The slice of a quantised matrix in its normal form.
  kernels::WeightSource Make(load::QuantisedMatrix matrix,
                             const load::QuantisedMatrix::Slice& slice);
  // The same in float32, with rows and columns exchanged.
  kernels::WeightSource MakeTransposed(load::QuantisedMatrix matrix,
                                       const load::QuantisedMatrix::Slice& slice);
  // Writes the matrices that Convert and Make have promised; once, before a backend loads them.
  // With `writers_only` those of Make and MakeRows are checked, and a backend that TakesRowWriters
  // has them written. Calls `release` for bytes of files that a quantised matrix has been made
  // from. INVALID_ARGUMENT names a tensor with a number that the type cannot hold, or that is none.
  absl::Status Fill(const std::function<void(const void* data, int64_t bytes)>& release = nullptr,
                    bool writers_only = false);

  // Quantised matrices that Make holds in their normal form, and those that no form fits.
  struct QuantisedCount {
    int64_t kept = 0;
    int64_t as_float32 = 0;
    int64_t float32_bytes = 0;
  };
  const QuantisedCount& quantised() const { return quantised_; }
  // The type that something was converted to; empty: nothing was converted.
  std::optional<kernels::DType> converted_to() const { return converted_to_; }

  // Releases the pages of a block once a backend has packed it: its bytes read as zero afterwards.
  // Memory that does not belong to this object is left alone.
  void Release(const void* data, int64_t bytes) const;

 private:
  struct Promise {
    kernels::WeightSource from;
    int64_t column_step;
    kernels::DType type;
    std::byte* to;
    std::string name;
  };

  // Matrices in their normal form, or transposed in float32: what Make and MakeTransposed return.
  struct QuantisedRows final : kernels::RowWriter {
    void Write(int64_t first, int64_t count, std::byte* to) const override;
    std::span<const std::byte> BytesBehind(int64_t first, int64_t count) const override;

    load::QuantisedMatrix from;
    load::QuantisedMatrix::Slice slice;
    std::byte* to = nullptr;
    bool transposed = false;  // it is no writer of rows then
  };

  // What MakeRows returns.
  struct MadeRows final : kernels::RowWriter {
    void Write(int64_t first, int64_t count, std::byte* to) const override {
      write(first, count, to);
    }
    std::span<const std::byte> BytesBehind(int64_t first, int64_t count) const override {
      return first + count == rows ? file : std::span<const std::byte>();
    }

    WriteRows write;
    std::span<const std::byte> file;
    int64_t rows = 0;
    std::byte* to = nullptr;
  };

  bool MustConvert(const kernels::WeightSource& source) const;
  absl::Status Write(const Promise& promise) const;
  QuantisedRows& KeepRows(load::QuantisedMatrix matrix, const load::QuantisedMatrix::Slice& slice,
                          std::byte* to);

  const std::optional<kernels::DType> float_type_;
  std::optional<kernels::DType> converted_to_;
  std::vector<std::span<std::byte>> blocks_;
  std::vector<Promise> promises_;
  std::vector<std::unique_ptr<QuantisedRows>> quantised_rows_;  // kept for their writers
  std::vector<std::unique_ptr<MadeRows>> made_rows_;
  std::vector<std::function<void()>> later_;
  QuantisedCount quantised_;
};

// Whether the type is not quantised.
bool IsFloat(kernels::DType type);

// Element i of a vector of floats, whatever its type and alignment.
float FloatAt(const kernels::WeightSource& source, int64_t i);

}  // namespace quire::model

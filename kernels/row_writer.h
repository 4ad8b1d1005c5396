// Rows of a weight that are written when a backend packs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::kernels {

// Writes rows of a matrix at the time when a backend packs them, so that no memory holds all of
// them. Any thread may call it, several at a time.
class RowWriter {
 public:
  virtual ~RowWriter() = default;
  // Rows first … first + count − 1 of its source, end to end in the source's type.
  virtual void Write(int64_t first, int64_t count, std::byte* to) const = 0;
  // Bytes of a file that are not read again once these rows have been written, and all before them.
  virtual std::span<const std::byte> BytesBehind(int64_t first, int64_t count) const = 0;
};

}  // namespace quire::kernels

#include "worker/model/mxfp4_rows.h"

namespace quire::model {
namespace {

constexpr int kBytes = 16;  // of a block's elements

int CodeOf(const std::byte* block, int element) {
  const int pair = static_cast<int>(block[element / 2]);
  return element % 2 == 0 ? pair & 15 : pair >> 4;
}

}  // namespace

void WriteMxfp4Rows(const Mxfp4Rows& from, int64_t first, int64_t count, std::byte* to) {
  for (int64_t row = first; row < first + count; ++row) {
    for (int64_t i = 0; i < from.row_blocks; ++i) {
      const int64_t at = row * from.row_stride + i;
      const std::byte* block = from.blocks + at * kBytes;
      *to++ = from.scales[at];
      for (int j = 0; j < kBytes; ++j) {
        *to++ = static_cast<std::byte>(CodeOf(block, j) | CodeOf(block, j + kBytes) << 4);
      }
    }
  }
}

}  // namespace quire::model

#include "kernels/cpu/linear_int8_units.h"
#include "kernels/cpu/vec16_int8_avx2.h"

namespace quire::kernels::cpu {

const KernelTable& Avx2Int8Kernels() {
  static const KernelTable kTable = Int8Table<Vec16Int8Avx2>("avx2");
  return kTable;
}

}  // namespace quire::kernels::cpu

#include "kernels/cpu/linear_rounded.h"
#include "kernels/cpu/vec16_int8_avx2.h"

namespace quire::kernels::cpu {

const KernelTable& Avx2RoundedKernels() {
  static const KernelTable kTable = RoundedTable<Vec16Int8Avx2>("avx2");
  return kTable;
}

}  // namespace quire::kernels::cpu

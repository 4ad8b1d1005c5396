#include "kernels/cpu/linear_rounded.h"
#include "kernels/cpu/vec16_int8_avx512.h"

namespace quire::kernels::cpu {

const KernelTable& Avx512VnniRoundedKernels() {
  static const KernelTable kTable = RoundedTable<Vec16Int8Vnni>("avx512vnni");
  return kTable;
}

}  // namespace quire::kernels::cpu

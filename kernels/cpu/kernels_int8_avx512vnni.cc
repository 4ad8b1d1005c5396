#include "kernels/cpu/linear_int8_units.h"
#include "kernels/cpu/vec16_int8_avx512.h"

namespace quire::kernels::cpu {

const KernelTable& Avx512VnniKernels() {
  static const KernelTable kTable = Int8Table<Vec16Int8Vnni>("avx512vnni");
  return kTable;
}

}  // namespace quire::kernels::cpu

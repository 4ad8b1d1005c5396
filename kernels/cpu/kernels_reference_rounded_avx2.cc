#include "kernels/cpu/linear_rounded.h"
#include "kernels/cpu/vec16_int8_plain.h"

namespace quire::kernels::cpu {

const KernelTable& ReferenceRoundedKernels() {
  static const KernelTable kTable = RoundedTable<Vec16Int8Plain>("reference");
  return kTable;
}

}  // namespace quire::kernels::cpu

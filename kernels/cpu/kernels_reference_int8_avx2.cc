#include "kernels/cpu/linear_int8_units.h"
#include "kernels/cpu/vec16_int8_plain.h"

namespace quire::kernels::cpu {

const KernelTable& ReferenceInt8Kernels() {
  static const KernelTable kTable = Int8Table<Vec16Int8Plain>("reference");
  return kTable;
}

}  // namespace quire::kernels::cpu

#include "kernels/cpu/linear_int8_units.h"
#include "kernels/cpu/vec16_int8_avxvnni.h"

namespace quire::kernels::cpu {

const KernelTable& AvxVnniInt8Kernels() {
  static const KernelTable kTable = Int8Table<Vec16Int8AvxVnni>("avxvnni");
  return kTable;
}

}  // namespace quire::kernels::cpu

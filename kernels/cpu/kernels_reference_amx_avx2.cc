#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/vec16_plain.h"

namespace quire::kernels::cpu {
namespace {

// A type of its own, so that no template is shared with files compiled for other instructions.
struct Vec16PlainAmx : Vec16Plain {};

}  // namespace

const KernelTable& ReferenceAmxKernels() {
  static constexpr KernelTable kTable =
      AmxTable<Vec16PlainAmx, VectorUnit<Vec16PlainAmx>>("reference");
  return kTable;
}

}  // namespace quire::kernels::cpu

// AMX's class on the processor's tiles, and the same in AVX-512.
#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/vec16_avx512.h"

namespace quire::kernels::cpu {
namespace {

struct Vec16Amx : Vec16Avx512 {};

// GCC's intrinsics take numbers of tiles as words of source text, so templates cannot use them.
struct ProcessorTiles {
  static void Load(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Read(const void* from, int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Write(void* to, int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kSum, int kX, int kWeights>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kWeights));
  }
};

using ProcessorUnit = TileUnit<Vec16Amx, ProcessorTiles>;

}  // namespace

const KernelTable& AmxKernels() {
  static constexpr KernelTable kTable = AmxTable<Vec16Amx, ProcessorUnit>("amx");
  return kTable;
}

const KernelTable& AmxVectorKernels() {
  static constexpr KernelTable kTable = AmxTable<Vec16Amx, VectorUnit<Vec16Amx>>("amx in vectors");
  return kTable;
}

bool AmxTilesAgree(const AmxNumbers& numbers) {
  return TilesAgree<Vec16Amx, ProcessorTiles>(numbers);
}

}  // namespace quire::kernels::cpu

// AMX's class on the processor's tiles, and the same in AVX-512.
#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/vec16_avx512.h"

namespace quire::kernels::cpu {
namespace {

struct Vec16Amx : Vec16Avx512 {};

// GCC's intrinsics do not say what they read and write, beyond eight bytes of a configuration;
// Fence does, for all memory that others know of and for what `at` points to.
struct ProcessorTiles {
  static void Fence(const void* at) { asm volatile("" : : "r"(at) : "memory"); }
  static void Load(const TileConfig& config) {
    Fence(&config);
    _tile_loadconfig(&config);
  }
  static void Release() { _tile_release(); }
  template <int kTile>
  static void Zero() {
    _tile_zero(kTile);
  }
  template <int kTile>
  static void Read(const void* from, int64_t row_bytes) {
    Fence(from);
    _tile_loadd(kTile, from, row_bytes);
  }
  template <int kTile>
  static void Write(void* to, int64_t row_bytes) {
    _tile_stored(kTile, to, row_bytes);
    Fence(to);
  }
  template <int kSum, int kX, int kWeights>
  static void Dot() {
    _tile_dpbf16ps(kSum, kX, kWeights);
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

bool AmxTilesAgree() { return TilesAgree<Vec16Amx, ProcessorTiles>(); }

}  // namespace quire::kernels::cpu

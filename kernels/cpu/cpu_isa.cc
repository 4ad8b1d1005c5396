#include "kernels/cpu/cpu_isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace quire::kernels::cpu {
namespace {

// clang's look-up has no name for it. Whether the system saves its registers, AVX2's says.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// clang's look-up has no name for it either. It needs no registers but those of AVX2.
bool HasAvxVnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}

// Tiles and their products of bfloat16, and Linux' leave to use them, which it gives once for the
// whole process.
bool HasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr int kAskForState = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
  return granted;
}

}  // namespace

// The compiler's own look-up reads cpuid and, through xgetbv, what the system saves.
bool HostHas(Isa isa) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvxVnni:
      return avx2 && HasAvxVnni();
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx512Vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
    case Isa::kAmx:
      return avx512 && __builtin_cpu_supports("avx512bf16") && HasAmx();
  }
  return false;
}

}  // namespace quire::kernels::cpu

// What the processor and the system can run.
#pragma once

namespace quire::kernels::cpu {

enum class Isa { kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

// kAvx2 includes FMA and F16C, kAvx512 the F, BW, DQ and VL parts; each needs the system's support
// for its registers. kAmx includes kAvx512Bf16; asking for it asks the system for the memory of
// tiles.
bool HostHas(Isa isa);

}  // namespace quire::kernels::cpu

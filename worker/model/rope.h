// Rotary frequencies of a model, with the scalings that stretch its context.
//
// Pure functions; used while a program is built.
#pragma once

#include <span>

#include "kernels/step_program.h"
#include "worker/load/model_config.h"

namespace quire::model {

// Frequencies for `rotary_dim` (even) dimensions of each head. Sources: RoFormer (arXiv
// 2104.09864), linear interpolation (2306.15595), YaRN (2309.00071), LongRoPE (2402.13753), and the
// Llama 3.1 release for "llama3". They are rounded to float32 as the reference implementation does:
// models were trained with those values. `factors` (empty, or rotary_dim / 2 of them) additionally
// divide each frequency: GGUF's form of "llama3".
kernels::Rope MakeRope(const load::RopeConfig& config, int rotary_dim,
                       std::span<const float> factors);

}  // namespace quire::model

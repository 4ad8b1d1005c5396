// The program of Gemma 4, whose layers differ in the width of their heads and in whose keys they
// read.
//
// A pure function over a ProgramBuilder.
#pragma once

#include "worker/model/decoder_blocks.h"

namespace quire::model {

void WriteGemma4(ProgramBuilder& builder, const DecoderForm& form);

}  // namespace quire::model

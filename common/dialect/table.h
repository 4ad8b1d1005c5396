// The dialects that the table in table.cc lists; each is defined in the file of its form.
#pragma once

#include "common/dialect/dialect.h"

namespace quire::dialect {

extern const Dialect kHermes, kApriel, kLlama3Json, kGranite, kPhi4MiniJson, kCohere, kMistral,
    kDeepSeekV3, kDeepSeekV31, kKimiK2;  // json_dialects.cc
// tagged_dialects.cc
extern const Dialect kQwen3Coder, kSeedOss, kMiniMaxM2, kMiniMaxM3, kDeepSeekV32, kDeepSeekV4,
    kGlm45;
extern const Dialect kPythonic, kLlama4Pythonic, kGemma4, kFunctionGemma,
    kOpenAi;  // literal_dialects.cc

// Of harmony: the first four frame a header, the others end a message.
inline constexpr std::string_view kHarmonyMarks[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                                     "<|message|>", "<|end|>",     "<|return|>",
                                                     "<|call|>"};

}  // namespace quire::dialect

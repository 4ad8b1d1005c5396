// Translates vLLM's command line to ours: KServe, and manifests made for vLLM, use its flags.
//
// Pure. A flag of ours is never touched; one that is neither ours nor here stays as it is, for the
// schema to refuse by name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

struct VllmArguments {
  std::vector<std::string> args;
  std::vector<std::string> warnings;  // one line each: what was asked for and is not done
  std::string refusal;                // a flag that has no equal here, and what to say instead
};

// `args` as they stand after "serve"; `additional` is VLLM_ADDITIONAL_ARGS, split at blanks.
// After a first word that is the model, --served-model-name and --lora-modules take several values,
// as vLLM's do.
VllmArguments FromVllm(std::vector<std::string> args, std::string_view additional,
                       const std::function<bool(std::string_view)>& is_ours);

}  // namespace quire::cli

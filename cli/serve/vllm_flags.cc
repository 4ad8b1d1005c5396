#include "cli/serve/vllm_flags.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace quire::cli {
namespace {

struct VllmFlag {
  std::string_view name;
  bool takes_value;
  std::string_view ours;     // our flag for it; empty: the flag is dropped
  std::string_view suffix;   // the unit that vLLM leaves out
  std::string_view warning;  // how dropping it differs; empty: it makes no difference
};

constexpr VllmFlag kFlags[] = {
    {"shutdown-timeout", true, "drain-timeout", "s", ""},
    // Certificates are always read again when they change.
    {"enable-ssl-refresh", false, "", "", ""},
    // There is no log of accesses.
    {"disable-uvicorn-access-log", false, "", "", ""},
    {"disable-access-log-for-endpoints", true, "", "", ""},
    // Models are data here: none contains code that one could trust or not.
    {"trust-remote-code", false, "", "", ""},
    // Long prompts are always truncated; failed requests are logged, without their text.
    {"enable-chunked-prefill", false, "", "", ""},
    {"disable-log-requests", false, "", "", ""},
    // Tools are always read, in the model's own dialect.
    {"enable-auto-tool-choice", false, "", "", ""},
    // Each rank keeps its own part of an adapter, where its product can be cut.
    {"fully-sharded-loras", false, "", "", ""},
    {"lora-dtype", true, "", "", "adapters keep the type of their files and are summed in float32"},
    {"max-cpu-loras", true, "", "", "adapters stay in memory; --max-loras is how many"},
    {"enforce-eager", false, "", "", "answers and their bits are the same either way"},
    {"collect-detailed-traces", true, "", "", "traces always have all that there is"},
};

struct Unequal {
  std::string_view name;
  std::string_view instead;
};

constexpr Unequal kUnequal[] = {
    {"model", "the model is the first word: quire serve MODEL"},
    {"gpu-memory-utilization",
     "a share of the GPU; --kv-cache-memory-bytes says a size, and without it the batch gets what "
     "it needs"},
    {"quantization", "the checkpoint itself says how its weights are quantised"},
    {"pipeline-parallel-size",
     "a model is cut among the GPUs of one machine: --tensor-parallel-size"},
    {"data-parallel-size", "--workers is how many share the requests on this machine"},
    {"download-dir", "HF_HUB_CACHE is the folder that models are fetched to"},
};

bool IsFlag(const std::string& word) { return word.starts_with("--") && word.size() > 2; }

std::string_view NameOf(const std::string& word) {
  const std::string_view rest = std::string_view(word).substr(2);
  return rest.substr(0, std::min(rest.find('='), rest.size()));
}

std::string RefusalOf(std::string_view name) {
  const auto* found = std::find_if(std::begin(kUnequal), std::end(kUnequal),
                                   [&](const Unequal& flag) { return flag.name == name; });
  if (found == std::end(kUnequal)) return "";
  return "--" + std::string(name) + " is vLLM's: " + std::string(found->instead);
}

}  // namespace

VllmArguments FromVllm(std::vector<std::string> args, std::string_view additional,
                       const std::function<bool(std::string_view)>& is_ours) {
  std::istringstream words{std::string(additional)};
  args.insert(args.end(), std::istream_iterator<std::string>(words), {});
  const bool model_first = !args.empty() && !args.front().starts_with("-");
  VllmArguments out;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (model_first && (word == "--served-model-name" || word == "--lora-modules")) {
      while (i + 1 < args.size() && !args[i + 1].starts_with("-")) {
        out.args.push_back(word + "=" + args[++i]);
      }
      continue;
    }
    const VllmFlag* flag = nullptr;
    if (IsFlag(word) && !is_ours(NameOf(word))) {
      const auto* found = std::find_if(std::begin(kFlags), std::end(kFlags),
                                       [&](const VllmFlag& f) { return f.name == NameOf(word); });
      if (found != std::end(kFlags)) flag = found;
    }
    if (flag == nullptr) {
      if (out.refusal.empty() && IsFlag(word) && !is_ours(NameOf(word))) {
        out.refusal = RefusalOf(NameOf(word));
      }
      out.args.push_back(word);
      continue;
    }
    std::string value;
    const size_t equals = word.find('=');
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (flag->takes_value && i + 1 < args.size() && !IsFlag(args[i + 1])) {
      value = args[++i];
    }
    if (!flag->ours.empty()) {
      out.args.push_back("--" + std::string(flag->ours) + "=" + value + std::string(flag->suffix));
    }
    if (!flag->warning.empty()) {
      out.warnings.push_back("--" + std::string(flag->name) + ": " + std::string(flag->warning));
    }
  }
  return out;
}

}  // namespace quire::cli

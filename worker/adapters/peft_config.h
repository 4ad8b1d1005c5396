// adapter_config.json of a PEFT folder: which modules have low-rank adapters (LoRA), their ranks
// and scales. A key that would change results and is not served is refused by name.
//
// A value, read on the loading thread; hostile input.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"
#include "worker/adapters/name_pattern.h"

namespace quire {

inline constexpr size_t kMaxAdapterConfigBytes = 1 << 20;
inline constexpr size_t kMaxAdapterPatterns = 4096;         // of one key of the file
inline constexpr size_t kMaxAdapterPatternStates = 65'536;  // of all patterns together
inline constexpr int kMaxLoraRank = 256;  // of any adapter, whatever --max-lora-rank is

class PeftConfig {
 public:
  // INVALID_ARGUMENT in one line that begins with `path` and names the key.
  static absl::StatusOr<PeftConfig> Read(std::string_view text, const std::string& path);

  // What the file says of a module: whether target_modules means it, and rank and scale by the
  // first patterns that fit, else the file's own.
  struct Module {
    bool targeted = false;
    int rank = 0;
    double scale = 1.0;
  };
  // RESOURCE_EXHAUSTED names the key whose patterns took the last of `steps`.
  absl::StatusOr<Module> Of(std::string_view name, PatternSteps& steps) const;

 private:
  template <typename Value>
  using Patterns = std::vector<std::pair<NamePattern, Value>>;

  bool Targets(std::string_view module, PatternSteps& steps) const;
  absl::Status ReadNumbers(const json::Object& object);
  absl::Status ReadTargets(const json::Object& object);
  absl::Status ReadPatterns(const json::Object& object);

  int rank_ = 8;
  double alpha_ = 8.0;
  bool rslora_ = false;
  bool all_linear_ = false;
  std::vector<std::string> names_;    // target_modules as a list
  std::vector<NamePattern> pattern_;  // or as one expression
  Patterns<int> ranks_;
  Patterns<double> alphas_;
};

}  // namespace quire

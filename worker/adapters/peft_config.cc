#include "worker/adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// Keys without a say in what a trained adapter computes.
constexpr std::string_view kWithoutEffect[] = {"arrow_config",
                                               "auto_mapping",
                                               "base_model_name_or_path",
                                               "corda_config",
                                               "ensure_weight_tying",
                                               "eva_config",
                                               "exclude_modules",
                                               "inference_mode",
                                               "layers_pattern",
                                               "loftq_config",
                                               "layers_to_transform",
                                               "lora_dropout",
                                               "lora_ga_config",
                                               "megatron_core",
                                               "peft_version",
                                               "qalora_group_size",
                                               "revision",
                                               "task_type"};
// Keys that have their own readers below.
constexpr std::string_view kRead[] = {"peft_type",        "r",    "lora_alpha",   "use_rslora",
                                      "target_modules",   "bias", "rank_pattern", "alpha_pattern",
                                      "init_lora_weights"};
// How A and B began; other ways change the base's weights too, which the folder does not hold.
constexpr std::string_view kInitialisations[] = {"gaussian", "eva", "orthogonal"};

bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether a key with this value asks for nothing.
bool IsNeutral(const json::Value& value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) ||
         (value.is_array() && value.as_array().empty()) ||
         (value.is_object() && value.as_object().empty());
}

// At most this much of a value in a message.
std::string Shown(const json::Value& value) {
  constexpr size_t kMost = 60;
  std::string text = json::Serialize(value);
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

absl::Status CheckInitialisation(const json::Value& value) {
  if (value.is_bool() || value.is_null()) return absl::OkStatus();
  if (value.is_string() && IsOneOf(kInitialisations, json::View(value.as_string()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("init_lora_weights: ", Shown(value),
                   " changes weights of the base model, which the adapter "
                   "does not hold: not served; convert the adapter to plain LoRA (PEFT's "
                   "path_initial_model_for_weight_conversion)"));
}

// Every key that no other reader knows.
absl::Status CheckKeys(const json::Object& object) {
  for (const auto& member : object) {
    const std::string_view key(member.key().data(), member.key().size());
    if (IsOneOf(kRead, key) || IsOneOf(kWithoutEffect, key) || IsNeutral(member.value())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(key), ": is ", Shown(member.value()),
                     ", which is not served; served are adapters that leave it out"));
  }
  if (const json::Value* bias = json::Find(object, "bias"); bias != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view kind, json::AsString(*bias, "bias"));
    if (kind != "none") {
      return absl::InvalidArgumentError(absl::StrCat(
          "bias: is \"", AbslView(kind), "\", trained biases are not served; served is none"));
    }
  }
  if (const json::Value* value = json::Find(object, "init_lora_weights"); value != nullptr) {
    return CheckInitialisation(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RankFrom(const json::Value& value, std::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t rank, json::AsInt(value, key));
  if (rank >= 1 && rank <= kMaxLoraRank) return static_cast<int>(rank);
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(key), ": is ", rank, ", served are ranks from 1 to ", kMaxLoraRank));
}

absl::StatusOr<double> AlphaFrom(const json::Value& value, std::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(const double alpha, json::AsDouble(value, key));
  if (std::isfinite(static_cast<float>(alpha))) return alpha;
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(key), ": is ", alpha, ", it must be a finite float32"));
}

absl::StatusOr<NamePattern> PatternFrom(std::string_view text, std::string_view key) {
  absl::StatusOr<NamePattern> pattern = NamePattern::Parse(text);
  if (pattern.ok()) return pattern;
  return absl::InvalidArgumentError(absl::StrCat(
      AbslView(key), ": \"", AbslView(text.substr(0, 60)), "\" ", pattern.status().message()));
}

}  // namespace

absl::StatusOr<PeftConfig> PeftConfig::Read(std::string_view text, const std::string& path) {
  json::Limits limits;
  limits.max_bytes = kMaxAdapterConfigBytes;
  limits.max_depth = 16;
  const absl::StatusOr<json::Value> value = json::Parse(text, limits);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": must hold a JSON object"));
  }
  const json::Object& object = value->as_object();
  PeftConfig config;
  const json::Value* type = json::Find(object, "peft_type");
  if (type == nullptr || !type->is_string() || json::View(type->as_string()) != "LORA") {
    return absl::InvalidArgumentError(absl::StrCat(path, ": peft_type: is ",
                                                   type == nullptr ? "missing" : Shown(*type),
                                                   ", served is \"LORA\""));
  }
  for (const auto read :
       {&PeftConfig::ReadNumbers, &PeftConfig::ReadTargets, &PeftConfig::ReadPatterns}) {
    if (const absl::Status status = (config.*read)(object); !status.ok()) {
      return Annotate(status, path);
    }
  }
  if (const absl::Status status = CheckKeys(object); !status.ok()) return Annotate(status, path);
  return config;
}

absl::Status PeftConfig::ReadNumbers(const json::Object& object) {
  if (const json::Value* value = json::Find(object, "r"); value != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(rank_, RankFrom(*value, "r"));
  }
  if (const json::Value* value = json::Find(object, "lora_alpha"); value != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(alpha_, AlphaFrom(*value, "lora_alpha"));
  }
  if (const json::Value* value = json::Find(object, "use_rslora"); value != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(rslora_, json::AsBool(*value, "use_rslora"));
  }
  return absl::OkStatus();
}

absl::Status PeftConfig::ReadTargets(const json::Object& object) {
  constexpr std::string_view kKey = "target_modules";
  const json::Value* value = json::Find(object, kKey);
  if (value == nullptr) {
    return InvalidArgument(
        "target_modules: is missing; give a list of names, one regular "
        "expression, or \"all-linear\"");
  }
  if (value->is_string()) {
    const std::string_view text = json::View(value->as_string());
    all_linear_ = text == "all-linear";
    if (all_linear_) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(NamePattern pattern, PatternFrom(text, kKey));
    pattern_.push_back(std::move(pattern));
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Array* list, json::AsArray(*value, kKey));
  if (list->size() > kMaxAdapterPatterns) {
    return absl::InvalidArgumentError(absl::StrCat("target_modules: has ", list->size(),
                                                   " names, at most ", kMaxAdapterPatterns,
                                                   " are read"));
  }
  for (const json::Value& one : *list) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view name, json::AsString(one, kKey));
    names_.emplace_back(name);
  }
  return absl::OkStatus();
}

absl::Status PeftConfig::ReadPatterns(const json::Object& object) {
  size_t states = 0;
  for (const std::string_view key : {"rank_pattern", "alpha_pattern"}) {
    const json::Value* value = json::Find(object, key);
    if (value == nullptr) continue;
    QUIRE_ASSIGN_OR_RETURN(const json::Object* patterns, json::AsObject(*value, key));
    if (patterns->size() > kMaxAdapterPatterns) {
      return absl::InvalidArgumentError(absl::StrCat(AbslView(key), ": has ", patterns->size(),
                                                     " patterns, at most ", kMaxAdapterPatterns,
                                                     " are read"));
    }
    for (const auto& member : *patterns) {
      const std::string_view text(member.key().data(), member.key().size());
      QUIRE_ASSIGN_OR_RETURN(NamePattern pattern, PatternFrom(text, key));
      states += pattern.states();
      if (states > kMaxAdapterPatternStates) {
        return absl::InvalidArgumentError(
            absl::StrCat(AbslView(key), ": its patterns need more than the ",
                         kMaxAdapterPatternStates, " states that are kept"));
      }
      if (key == "rank_pattern") {
        QUIRE_ASSIGN_OR_RETURN(const int rank, RankFrom(member.value(), key));
        ranks_.emplace_back(std::move(pattern), rank);
      } else {
        QUIRE_ASSIGN_OR_RETURN(const double alpha, AlphaFrom(member.value(), key));
        alphas_.emplace_back(std::move(pattern), alpha);
      }
    }
  }
  return absl::OkStatus();
}

bool PeftConfig::Targets(std::string_view module, PatternSteps& steps) const {
  if (all_linear_) return true;
  if (!pattern_.empty()) return pattern_.front().Matches(module, steps);
  steps.Take(static_cast<int64_t>(names_.size()));
  return std::any_of(names_.begin(), names_.end(), [module](const std::string& name) {
    if (!module.ends_with(name)) return false;
    const size_t before = module.size() - name.size();
    return before == 0 || module[before - 1] == '.';
  });
}

namespace {

// Of the first pattern that fits, else `otherwise`.
template <typename Value>
Value ByPattern(const std::vector<std::pair<NamePattern, Value>>& patterns, std::string_view module,
                Value otherwise, PatternSteps& steps) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern.MatchesEnd(module, steps)) return value;
    if (steps.left == 0) break;
  }
  return otherwise;
}

absl::Status TooManySteps(std::string_view key) {
  return absl::ResourceExhaustedError(
      absl::StrCat(AbslView(key), ": to match it with all modules takes more than the ",
                   kMaxPatternSteps, " steps that are taken; give names or simpler patterns"));
}

}  // namespace

absl::StatusOr<PeftConfig::Module> PeftConfig::Of(std::string_view name,
                                                  PatternSteps& steps) const {
  Module module;
  module.targeted = Targets(name, steps);
  if (steps.left == 0) return TooManySteps("target_modules");
  module.rank = ByPattern(ranks_, name, rank_, steps);
  if (steps.left == 0) return TooManySteps("rank_pattern");
  const double alpha = ByPattern(alphas_, name, alpha_, steps);
  if (steps.left == 0) return TooManySteps("alpha_pattern");
  const double rank = module.rank;
  module.scale = alpha / (rslora_ ? std::sqrt(rank) : rank);
  return module;
}

}  // namespace quire

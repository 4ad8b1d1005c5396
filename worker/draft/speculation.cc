#include "worker/draft/speculation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/json/json.h"
#include "worker/core/step_plan.h"

namespace quire {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;
constexpr size_t kMaxTextDepth = 4;

constexpr std::string_view kMethodKey = "method";
constexpr std::string_view kCountKey = "num_speculative_tokens";
constexpr std::string_view kLookupMinKey = "prompt_lookup_min";
constexpr std::string_view kLookupMaxKey = "prompt_lookup_max";
constexpr std::string_view kModelKey = "model";
constexpr std::string_view kSkippedKey = "skip_layers";
constexpr std::string_view kRanksKey = "draft_tensor_parallel_size";

// A number of the object, or `value` as it is where the key is missing.
absl::Status ReadCount(const json::Object& object, std::string_view key, int32_t most,
                       int32_t& value) {
  const json::Value* found = json::Find(object, key);
  if (found == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t count, json::AsInt(*found, key));
  if (count < 1 || count > most) {
    return InvalidArgument(std::string(key) + ": must be 1 to " + std::to_string(most) + ", is " +
                           std::to_string(count));
  }
  value = static_cast<int32_t>(count);
  return absl::OkStatus();
}

// As in vLLM: where one of the two is missing it is the other, and both are 5 where both are.
absl::Status ReadNgram(const json::Object& object, Speculation& to) {
  int32_t least = 0;
  int32_t most = 0;
  QUIRE_RETURN_IF_ERROR(ReadCount(object, kLookupMinKey, kMaxLookupTokens, least));
  QUIRE_RETURN_IF_ERROR(ReadCount(object, kLookupMaxKey, kMaxLookupTokens, most));
  if (least == 0) least = most;
  if (most == 0) most = least;
  if (least > most) {
    return InvalidArgument(std::string(kLookupMinKey) + ": must be at most " +
                           std::string(kLookupMaxKey) + ", which is " + std::to_string(most) +
                           ", is " + std::to_string(least));
  }
  if (least > 0) to.ngram = {least, most};
  return absl::OkStatus();
}

absl::Status ReadModel(const json::Object& object, Speculation& to) {
  const json::Value* model = json::Find(object, kModelKey);
  if (model == nullptr) {
    return InvalidArgument(std::string(kModelKey) +
                           ": is missing; give the folder or .gguf file of a smaller model with "
                           "the same vocabulary");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view path, json::AsString(*model, kModelKey));
  if (path.empty()) return InvalidArgument(std::string(kModelKey) + ": must not be empty");
  to.model = std::string(path);
  int32_t ranks = 1;
  return ReadCount(object, kRanksKey, 1, ranks);
}

// The folder of a head.
absl::Status ReadHead(const json::Object& object, Speculation& to) {
  const json::Value* model = json::Find(object, kModelKey);
  if (model == nullptr) {
    return InvalidArgument(std::string(kModelKey) +
                           ": is missing; give the folder of the draft head, with config.json and "
                           "*.safetensors");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view path, json::AsString(*model, kModelKey));
  if (path.empty()) return InvalidArgument(std::string(kModelKey) + ": must not be empty");
  to.model = std::string(path);
  int32_t ranks = 1;
  return ReadCount(object, kRanksKey, 1, ranks);
}

absl::Status ReadMedusa(const json::Object& object, Speculation& to) {
  to.head = HeadMethod::kMedusa;
  return ReadHead(object, to);
}

absl::Status ReadEagle3(const json::Object& object, Speculation& to) {
  to.head = HeadMethod::kEagle3;
  return ReadHead(object, to);
}

absl::Status ReadMtp(const json::Object& object, Speculation& to) {
  to.head = HeadMethod::kMtp;
  int32_t ranks = 1;
  return ReadCount(object, kRanksKey, 1, ranks);
}

absl::Status ReadSkipped(const json::Object& object, Speculation& to) {
  const json::Value* found = json::Find(object, kSkippedKey);
  if (found == nullptr) {
    return InvalidArgument(std::string(kSkippedKey) +
                           ": is missing; list the layers that drafts leave out, such as [8, 9]");
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Array* layers, json::AsArray(*found, kSkippedKey));
  for (const json::Value& value : *layers) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t layer, json::AsInt(value, kSkippedKey));
    if (layer < 0 || layer > INT32_MAX) {
      return InvalidArgument(std::string(kSkippedKey) + ": must hold layers, from 0 on, has " +
                             std::to_string(layer));
    }
    to.skipped_layers.push_back(static_cast<int>(layer));
  }
  std::sort(to.skipped_layers.begin(), to.skipped_layers.end());
  const auto end = std::unique(to.skipped_layers.begin(), to.skipped_layers.end());
  to.skipped_layers.erase(end, to.skipped_layers.end());
  if (!to.skipped_layers.empty()) return absl::OkStatus();
  return InvalidArgument(std::string(kSkippedKey) + ": must name at least one layer");
}

std::unique_ptr<Drafter> MakeModelDrafter(const Speculation& /*speculation*/, DraftRunner second) {
  return std::make_unique<ModelDrafter>(std::move(second.options), *second.runner);
}

std::unique_ptr<Drafter> TakeHead(const Speculation& /*speculation*/, DraftRunner second) {
  return std::move(second.head);
}

struct Method {
  std::string_view name;
  std::span<const std::string_view> keys;  // besides those that all have
  absl::Status (*read)(const json::Object& object, Speculation& to);
  std::unique_ptr<Drafter> (*make)(const Speculation& speculation, DraftRunner second);
};

constexpr std::string_view kNgramKeys[] = {kLookupMinKey, kLookupMaxKey};
constexpr std::string_view kModelKeys[] = {kModelKey, kRanksKey};
constexpr std::string_view kSkipKeys[] = {kSkippedKey};
constexpr std::string_view kMtpKeys[] = {kRanksKey};

constexpr Method kMethods[] = {
    {"ngram", kNgramKeys, ReadNgram,
     [](const Speculation& speculation, DraftRunner) -> std::unique_ptr<Drafter> {
       return std::make_unique<NgramDrafter>(speculation.ngram);
     }},
    {"draft_model", kModelKeys, ReadModel, MakeModelDrafter},
    {"layer_skip", kSkipKeys, ReadSkipped, MakeModelDrafter},
    {"medusa", kModelKeys, ReadMedusa, TakeHead},
    {"eagle3", kModelKeys, ReadEagle3, TakeHead},
    {"mtp", kMtpKeys, ReadMtp, TakeHead},
};

const Method* FindMethod(std::string_view name) {
  const auto found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                  [name](const Method& method) { return method.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
}

std::string MethodNames() {
  std::string names;
  for (const Method& method : kMethods) {
    names += (names.empty() ? "" : ", ") + std::string(method.name);
  }
  return names;
}

absl::Status CheckKeys(const json::Object& object, const Method& method) {
  for (const auto& member : object) {
    const std::string_view key(member.key().data(), member.key().size());
    const bool known = key == kMethodKey || key == kCountKey ||
                       std::find(method.keys.begin(), method.keys.end(), key) != method.keys.end();
    if (known) continue;
    std::string keys = std::string(kMethodKey) + ", " + std::string(kCountKey);
    for (const std::string_view name : method.keys) keys += ", " + std::string(name);
    return InvalidArgument(std::string(key) + ": is not a key of method " +
                           std::string(method.name) + ", which has " + keys);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Speculation> ParseSpeculation(std::string_view text) {
  Speculation to;
  if (text.empty()) return to;
  const json::Limits limits{.max_bytes = kMaxTextBytes, .max_depth = kMaxTextDepth};
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text, limits));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "its value"));
  std::string_view wanted = "draft_model";  // as in vLLM, where a model and no method are given
  if (const json::Value* name = json::Find(*object, kMethodKey)) {
    QUIRE_ASSIGN_OR_RETURN(wanted, json::AsString(*name, kMethodKey));
  } else if (json::Find(*object, kModelKey) == nullptr) {
    return InvalidArgument(std::string(kMethodKey) + ": is missing; use one of " + MethodNames());
  }
  const Method* method = FindMethod(wanted);
  if (method == nullptr) {
    return InvalidArgument(std::string(kMethodKey) + ": '" + std::string(wanted) +
                           "' is not served; use one of " + MethodNames());
  }
  QUIRE_RETURN_IF_ERROR(CheckKeys(*object, *method));
  to.method = std::string(method->name);
  QUIRE_RETURN_IF_ERROR(ReadCount(*object, kCountKey, kMaxDraftTokens, to.num_speculative_tokens));
  if (to.num_speculative_tokens == 0) {
    return InvalidArgument(std::string(kCountKey) + ": is missing; give 1 to " +
                           std::to_string(kMaxDraftTokens) + ", such as 4");
  }
  QUIRE_RETURN_IF_ERROR(method->read(*object, to));
  return to;
}

std::unique_ptr<Drafter> MakeDrafter(const Speculation& speculation, DraftRunner second) {
  if (speculation.method.empty()) return nullptr;
  const Method* method = FindMethod(speculation.method);
  QUIRE_CHECK(method != nullptr);
  QUIRE_CHECK(speculation.HasModel() == (second.runner != nullptr));
  QUIRE_CHECK(speculation.HasHead() == (second.head != nullptr));
  return method->make(speculation, std::move(second));
}

}  // namespace quire

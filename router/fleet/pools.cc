#include "router/fleet/pools.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "common/check.h"

namespace quire {
namespace {

constexpr uint32_t kMaxWeight = 1'000'000;

struct Binding {
  std::string name;
  std::string value;
};

absl::StatusOr<Binding> ReadBinding(std::string_view flag, const std::string& text,
                                    std::string_view example) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return InvalidArgument(std::string(flag) + ": must be like " + std::string(example) + ", is '" +
                           text.substr(0, 200) + "'");
  }
  return Binding{text.substr(0, equals), text.substr(equals + 1)};
}

absl::Status Twice(std::string_view flag, const std::string& name) {
  return InvalidArgument(std::string(flag) + ": '" + name + "' is given twice; give it once");
}

absl::StatusOr<PoolWeight> ReadWeight(const std::string& text) {
  const size_t colon = text.rfind(':');
  PoolWeight weight;
  if (colon != std::string::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, weight.weight);
    weight.model_id = text.substr(0, colon);
    if (read.ec == std::errc() && read.ptr == end && weight.weight <= kMaxWeight) return weight;
  }
  return InvalidArgument(
      "--model-weights: must be like NAME=3f2a:90,77c1:10 with weights of 0 to " +
      std::to_string(kMaxWeight) + ", has '" + text.substr(0, 200) + "'");
}

absl::StatusOr<std::vector<PoolWeight>> ReadWeights(const std::string& text) {
  std::vector<PoolWeight> weights;
  uint64_t total = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    QUIRE_ASSIGN_OR_RETURN(PoolWeight weight, ReadWeight(text.substr(begin, end - begin)));
    for (const PoolWeight& other : weights) {
      const size_t common = std::min(other.model_id.size(), weight.model_id.size());
      if (other.model_id.compare(0, common, weight.model_id, 0, common) != 0) continue;
      return InvalidArgument("--model-weights: '" + other.model_id + "' and '" + weight.model_id +
                             "' may name the same model; give longer beginnings");
    }
    total += weight.weight;
    weights.push_back(std::move(weight));
    begin = end + 1;
  }
  if (total > 0) return weights;
  return InvalidArgument("--model-weights: all weights of '" + text.substr(0, 200) +
                         "' are 0; one must be above");
}

// By which the pools of one name differ.
const std::string& IdOf(const Pool& pool) {
  return pool.adapter.empty() ? pool.model_id : pool.adapter;
}

// Whether this is the model_id that a prefix refers to, among those of a name, in the order in
// which they were seen; the last one may be new.
bool StandsFor(const std::string& beginning, const std::string& model_id,
               std::span<const std::string_view> of_name) {
  for (const std::string_view known : of_name) {
    if (known.starts_with(beginning)) return known == model_id;
  }
  return model_id.starts_with(beginning);
}

// Empty: no weights are set for its name. 0 for models that they leave out.
std::optional<uint64_t> WeightOf(const PoolRules& rules, const Pool& pool,
                                 std::span<const PoolCapacity> of_name) {
  const auto weights = rules.weights.find(pool.name);
  if (weights == rules.weights.end()) return std::nullopt;
  std::vector<std::string_view> model_ids;
  for (const PoolCapacity& each : of_name) model_ids.push_back(IdOf(*each.pool));
  for (const PoolWeight& weight : weights->second) {
    if (StandsFor(weight.model_id, IdOf(pool), model_ids)) return weight.weight;
  }
  return 0;
}

double WeightedDraw(uint64_t key, const Pool& pool, uint64_t share) {
  // SplitMix64's finaliser over key and model, to a number in (0, 1).
  uint64_t mixed = key;
  for (const char c : IdOf(pool)) {
    mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 29;
  }
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  mixed ^= mixed >> 31;
  const double uniform = (static_cast<double>(mixed >> 11) + 0.5) * 0x1.0p-53;
  return -static_cast<double>(share) / std::log(uniform);
}

}  // namespace

absl::StatusOr<PoolRules> ReadPoolRules(const PoolFlags& flags) {
  PoolRules rules;
  for (const std::string& text : flags.aliases) {
    QUIRE_ASSIGN_OR_RETURN(Binding binding, ReadBinding("--model-alias", text, "gpt-4=llama"));
    if (!rules.aliases.try_emplace(binding.name, binding.value).second) {
      return Twice("--model-alias", binding.name);
    }
  }
  for (const auto& [alias, served] : rules.aliases) {
    if (!rules.aliases.contains(served)) continue;
    return InvalidArgument("--model-alias: '" + alias + "' stands for '" + served +
                           "', which is an alias; name what that one stands for");
  }
  for (const std::string& text : flags.pins) {
    QUIRE_ASSIGN_OR_RETURN(Binding binding, ReadBinding("--pin-model", text, "llama=3f2a91"));
    if (!rules.pins.try_emplace(binding.name, binding.value).second) {
      return Twice("--pin-model", binding.name);
    }
  }
  for (const std::string& text : flags.weights) {
    QUIRE_ASSIGN_OR_RETURN(Binding binding,
                           ReadBinding("--model-weights", text, "llama=3f2a:90,77c1:10"));
    QUIRE_ASSIGN_OR_RETURN(std::vector<PoolWeight> weights, ReadWeights(binding.value));
    if (!rules.weights.try_emplace(binding.name, std::move(weights)).second) {
      return Twice("--model-weights", binding.name);
    }
  }
  return rules;
}

const std::string& Unaliased(const PoolRules& rules, const std::string& name) {
  const auto it = rules.aliases.find(name);
  return it == rules.aliases.end() ? name : it->second;
}

std::string RefusalByPin(const PoolRules& rules, const WorkerHello& hello,
                         std::span<const Pool> pools) {
  for (const std::string& name : hello.served_names) {
    const auto pin = rules.pins.find(name);
    if (pin == rules.pins.end()) continue;
    if (!hello.model_id.starts_with(pin->second)) {
      return "it serves " + name + " with model_id " + hello.model_id + ", and --pin-model says " +
             pin->second;
    }
    std::vector<std::string_view> of_name;
    for (const Pool& pool : pools) {
      if (pool.name == name) of_name.push_back(pool.model_id);
    }
    if (StandsFor(pin->second, hello.model_id, of_name)) continue;
    return "--pin-model " + name + "=" + pin->second + " is ambiguous: " + hello.model_id +
           " begins like the model that it stands for; give more of the model_id";
  }
  return "";
}

std::vector<uint64_t> PoolShares(const PoolRules& rules, std::span<const PoolCapacity> of_name) {
  std::vector<uint64_t> shares;
  for (const PoolCapacity& each : of_name) {
    const std::optional<uint64_t> weight = WeightOf(rules, *each.pool, of_name);
    shares.push_back(each.ready_rows == 0 ? 0 : weight.value_or(each.ready_rows));
  }
  return shares;
}

const Pool* ChoosePool(const PoolRules& rules, std::span<const PoolCapacity> of_name,
                       uint64_t key) {
  const std::vector<uint64_t> shares = PoolShares(rules, of_name);
  const Pool* chosen = nullptr;
  double best = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    QUIRE_CHECK(of_name[i].pool->name == of_name.front().pool->name);
    if (shares[i] == 0) continue;
    const double draw = WeightedDraw(key, *of_name[i].pool, shares[i]);
    if (chosen != nullptr && draw <= best) continue;
    chosen = of_name[i].pool;
    best = draw;
  }
  if (chosen != nullptr) return chosen;
  bool attached = false;
  for (const PoolCapacity& each : of_name) {
    if (WeightOf(rules, *each.pool, of_name) == 0) continue;
    if (chosen != nullptr && attached && !each.attached) continue;
    chosen = each.pool;
    attached = each.attached;
  }
  return chosen;
}

std::string AnswererOf(std::string_view model_id, std::string_view adapter) {
  std::string answerer(model_id);
  if (!adapter.empty()) answerer.append("+").append(adapter);
  return answerer;
}

const std::string* OnlyName(std::span<const Pool> pools) {
  std::set<std::string_view> models;
  for (const Pool& pool : pools) models.insert(pool.model_id);
  for (const Pool& candidate : pools) {
    if (!candidate.adapter.empty()) continue;
    size_t served = 0;  // a pool is listed once, so that this counts models
    for (const Pool& pool : pools) {
      served += pool.name == candidate.name && pool.adapter.empty() ? 1 : 0;
    }
    if (served == models.size()) return &candidate.name;
  }
  return nullptr;
}

}  // namespace quire

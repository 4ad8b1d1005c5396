// ModelConfig from Hugging Face's config.json: what all families share, and the functions from
// which a family builds its own reading.
//
// Values and pure functions; used once per model, on the loading thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"
#include "worker/load/model_config.h"

namespace quire::model {

constexpr int64_t kAnyInt = int64_t{1} << 30;  // CheckModelConfig has the exact bounds

// Reads members with a default; the first error wins and is returned by status().
class JsonReader {
 public:
  JsonReader(const json::Object& object, const std::string& path) : object_(object), path_(path) {}

  bool Has(std::string_view key) const { return json::Find(object_, key) != nullptr; }
  // Also when its value is null.
  bool Mentions(std::string_view key) const { return object_.contains(json::BoostView(key)); }
  // Numbers of an array, at most as many as half a head may have; empty when it is absent.
  std::vector<double> Doubles(std::string_view key);
  int64_t RequiredInt(std::string_view key) {
    if (!Has(key)) Fail(absl::StrCat(AbslView(key), " is missing"));
    return Int(key, 0);
  }
  int64_t Int(std::string_view key, int64_t otherwise) {
    const int64_t result = Read(key, otherwise, json::AsInt);
    if (result < -kAnyInt || result > kAnyInt)
      Fail(absl::StrCat(AbslView(key), " is out of range: ", result));
    return status_.ok() ? result : otherwise;
  }
  double Double(std::string_view key, double otherwise) {
    return Finite(key, Read(key, otherwise, json::AsDouble));
  }
  bool Bool(std::string_view key, bool otherwise) { return Read(key, otherwise, json::AsBool); }
  std::string String(std::string_view key, std::string_view otherwise) {
    return std::string(Read(key, otherwise, json::AsString));
  }
  // Null when absent.
  const json::Object* ObjectAt(std::string_view key) {
    return Read<const json::Object*>(key, nullptr, json::AsObject);
  }
  const json::Array* ArrayAt(std::string_view key) {
    return Read<const json::Array*>(key, nullptr, json::AsArray);
  }
  void Fail(std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", AbslView(what)));
  }
  const absl::Status& status() const { return status_; }
  const std::string& path() const { return path_; }
  const json::Object& object() const { return object_; }

 private:
  double Finite(std::string_view key, double number) {
    if (std::abs(number) >= json::kPythonsInfinity) {
      Fail(absl::StrCat(AbslView(key), " must be a finite number"));
    }
    return number;
  }
  template <typename T>
  T Read(std::string_view key, T otherwise,
         absl::StatusOr<T> (*as)(const json::Value&, std::string_view)) {
    const json::Value* value = json::Find(object_, key);
    if (value == nullptr) return otherwise;
    absl::StatusOr<T> result = as(*value, key);
    if (result.ok()) return *std::move(result);
    Fail(StatusMessage(result.status()));
    return otherwise;
  }

  const json::Object& object_;
  const std::string& path_;
  absl::Status status_;
};

// One rope for all layers. Newer files have rope_parameters; older ones rope_theta and
// rope_scaling.
void ReadRope(JsonReader& reader, load::ModelConfig& config);

// One rope for full layers and one for sliding ones, over the bases that `config` holds:
// rope_parameters has an object for each, rope_scaling belongs to full layers.
void ReadRopesByLayerType(JsonReader& reader, load::ModelConfig& config);

// Families that turn a part of each head: the file's partial_rotary_factor, or `otherwise`.
void ReadPartialRope(JsonReader& reader, load::ModelConfig& config, double otherwise);

// Refuses an object of rope settings that leaves a part of each head unturned.
void RefusePartialRotation(JsonReader& reader, const json::Object& object);

// Fills in the values of the scaling object, over those that `rope` holds.
void ReadScaling(JsonReader& reader, const json::Object& object, int64_t max_positions,
                 load::RopeConfig& rope);

// `slides(i)` says whether layer i attends to a window when the file does not list layer_types.
void ReadWindows(JsonReader& reader, load::ModelConfig& config, int64_t window,
                 const std::function<bool(int)>& slides);

// Full attention in some layers, a state in the others: those that layer_types calls by a name of
// `recurrent`, or where the file does not list them, those that `recurs` names.
void ReadRecurrentLayers(JsonReader& reader, load::ModelConfig& config,
                         const std::vector<std::string_view>& recurrent,
                         const std::function<bool(int)>& recurs);

// The mixture of experts of families whose routers are a softmax: counts, widths, and the layers
// that have it.
struct ExpertKeys {
  std::string_view count = "num_experts";
  std::string_view width = "moe_intermediate_size";
  std::string_view chosen = "num_experts_per_tok";
  bool renormalise = false;  // where norm_topk_prob is absent
};
void ReadExperts(JsonReader& reader, load::ModelConfig& config, const ExpertKeys& keys);

// How to read a family's config.json.
struct JsonForm {
  struct Name {
    std::string_view architecture = "";  // in "architectures"
    std::string_view model_type = "";    // where "architectures" is absent
  };
  Name names[3] = {};

  // What files may leave out. 0: they must not.
  int vocab_size = 0;
  int heads = 0;
  int kv_heads = 0;  // 0: as many as query heads
  int head_dim = 0;  // 0: hidden_size divided by the heads
  int width = 0;     // of the mlp
  int max_positions = 2'048;
  bool tied_embeddings = false;

  std::string_view width_key = "intermediate_size";
  std::string_view epsilon_key = "rms_norm_eps";  // empty: the norms' is 1e-5, without a key
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";  // the served one; gelu_pytorch_tanh, relu, relu2
  bool qkv_bias = false;                 // always
  bool attention_bias = false;           // the file's attention_bias decides
  bool mlp_bias = false;                 // the file's mlp_bias decides
  bool listed_layers = false;     // `read` counts the layers; num_hidden_layers may be absent
  bool interleaved_rope = false;  // rows of q and k are in neighbouring pairs

  void (*rope)(JsonReader& reader, load::ModelConfig& config) = ReadRope;  // null: no rotation
  // What else the family has; without layer_windows every layer has full attention, unless
  // layer_types says otherwise.
  void (*read)(JsonReader& reader, load::ModelConfig& config) = nullptr;
};

}  // namespace quire::model

// A family that does not exist, written as one is added: this file, and a line in a table
// (family_test.cc).
#include "worker/model/family.h"

namespace quire::model {
namespace {

// The last layer attends to a window.
void ReadMadeUpJson(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = reader.Bool("made_up_bias", true);
  const int last = config.layers - 1;
  ReadWindows(reader, config, reader.Int("made_up_window", 5), [last](int i) { return i == last; });
}

void ReadMadeUpGguf(GgufReader& reader, load::ModelConfig& config) {
  config.activation = load::ModelConfig::Activation::kGeluTanh;
  ReadWindow(reader, config);
  config.layer_windows.front() = 0;
}

constexpr TensorName kMadeUpTensors[] = {{Part::kOutput, "attention.out"},
                                         {Part::kHead, "speaker"}};
constexpr const char* kMadeUpPrefixes[] = {"trunk."};

}  // namespace

extern const Family kMadeUp{
    .name = "made_up",
    .title = "Made Up (1)",
    .json = {.names = {{"MadeUpForCausalLM", "made_up"}, {"MadeUpForEverything", "made_up_all"}},
             .head_dim = 4,
             .max_positions = 64,
             .width_key = "made_up_width",
             .activation_key = "made_up_act",
             .activation = "gelu_pytorch_tanh",
             .read = ReadMadeUpJson},
    .gguf = {.architecture = "madeup",
             .splitting = {"made-up-words"},
             .interleaved_rope = true,
             .read = ReadMadeUpGguf},
    .tensors = {.own = kMadeUpTensors, .prefixes = kMadeUpPrefixes},
    .decoder = {.head_norms = true, .scaled_embeddings = true},
};

}  // namespace quire::model

// Adapters of PEFT: what a folder means, and every way in which one is refused, each in one line
// that says where, what and what is expected.
#include "worker/adapters/peft_adapter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "common/status.h"
#include "worker/adapters/adapter_table.h"

namespace quire {
namespace {

using kernels::LoraTarget;

struct Matrix {
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::string type = "F32";
};

// A folder that goes with its test.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "quire-adapter-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string At(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(At(name), std::ios::binary) << text;
  }

 private:
  std::string path_;
};

std::string Safetensors(const std::map<std::string, Matrix>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, matrix] : tensors) {
    const size_t begin = data.size();
    if (matrix.type == "F32") {
      data.append(reinterpret_cast<const char*>(matrix.values.data()), 4 * matrix.values.size());
    } else {
      data.append(8 * matrix.values.size(), '\0');
    }
    std::string shape;
    for (const int64_t size : matrix.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    header += (header.size() == 1 ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"" + matrix.type) +
              "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return file + header + data;
}

Matrix Counting(int64_t rows, int64_t cols, float first = 0.0f) {
  Matrix matrix{{rows, cols}, {}};
  for (int64_t i = 0; i < rows * cols; ++i) {
    matrix.values.push_back(first + static_cast<float>(i));
  }
  return matrix;
}

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";
const std::string kUp = "base_model.model.model.layers.0.mlp.up_proj";

struct Files {
  std::string config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6,
                          "target_modules": ["q_proj", "mlp.up_proj"]})";
  std::map<std::string, Matrix> tensors = {{kQ + ".lora_A.weight", Counting(2, 4)},
                                           {kQ + ".lora_B.weight", Counting(6, 2, 100)},
                                           {kUp + ".lora_A.weight", Counting(2, 4)},
                                           {kUp + ".lora_B.weight", Counting(8, 2)}};

  void WriteTo(const Folder& folder) const {
    folder.Write("adapter_config.json", config);
    folder.Write("adapter_model.safetensors", Safetensors(tensors));
  }
};

std::vector<LoraTarget> Targets() {
  return {{{"model.layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj"},
           6,
           4,
           {{3, 2}, {0, 1}},
           2,
           2},
          {{"model.layers.0.mlp.up_proj"}, 8, 4, {{0, 8}}, 0, 4},
          {{"model.layers.0.mlp.down_proj"}, 4, 8, {{0, 4}}, 0, 8}};
}

absl::StatusOr<std::unique_ptr<PeftAdapter>> OpenAs(const Folder& folder, const Files& files,
                                                    int max_rank = 16) {
  files.WriteTo(folder);
  return PeftAdapter::Open(folder.path(), {}, max_rank);
}

std::vector<float> Floats(const kernels::WeightSource& source) {
  std::vector<float> values(static_cast<size_t>(source.rows * source.cols));
  std::memcpy(values.data(), source.data, 4 * values.size());
  return values;
}

TEST(PeftAdapter, GivesARankItsRowsAndColumns) {
  const Folder folder;
  const auto adapter = OpenAs(folder, {});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ((*adapter)->rank(), 2);
  EXPECT_EQ((*adapter)->digest().size(), 64u);
  const auto own = (*adapter)->For(Targets());
  ASSERT_TRUE(own.ok()) << own.status();
  const kernels::AdapterMatrices& q = own->adapter.targets[0];
  EXPECT_EQ(Floats(q.a), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(Floats(q.b), (std::vector<float>{106, 107, 108, 109, 100, 101}));
  EXPECT_EQ(q.b.rows, 3);
  EXPECT_EQ(q.scale, 3.0f);
  EXPECT_EQ(own->adapter.targets[2].a.rows, 0);  // left alone
}

TEST(PeftAdapter, PatternsAndRsloraDecideRankAndScale) {
  const Folder folder;
  Files files;
  files.config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "use_rslora": true,
      "target_modules": ".*\\.(q|up)_proj", "rank_pattern": {"up_proj": 4, "mlp.up_proj": 1},
      "alpha_pattern": {"^model.layers.0.self_attn.q_proj": 8, "nothing": 1}})";
  files.tensors[kUp + ".lora_A.weight"] = Counting(4, 4);
  files.tensors[kUp + ".lora_B.weight"] = Counting(8, 4);
  const auto adapter = OpenAs(folder, files);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ((*adapter)->rank(), 4);
  const auto own = (*adapter)->For(Targets());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_FLOAT_EQ(own->adapter.targets[0].scale, 8.0f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(own->adapter.targets[1].scale, 3.0f);
}

// The digest is that of what an adapter computes: place and keys without effect are no part of it.
TEST(PeftAdapter, TheDigestIsOfTheContent) {
  const Folder folder;
  const auto digest = [&folder](const std::function<void(Files&)>& change) {
    Files files;
    change(files);
    const auto adapter = OpenAs(folder, files);
    EXPECT_TRUE(adapter.ok()) << adapter.status();
    return adapter.ok() ? (*adapter)->digest() : "";
  };
  const std::string own = digest([](Files&) {});
  EXPECT_EQ(digest([](Files& f) {
              f.config = R"({"peft_type": "LORA", "r": 9, "lora_alpha": 27, "lora_dropout": 0.1,
                  "target_modules": "all-linear", "rank_pattern": {".*": 2},
                  "alpha_pattern": {".*": 6}, "base_model_name_or_path": "some/base"})";
            }),
            own);
  EXPECT_NE(digest([](Files& f) { f.config.replace(f.config.find(": 6"), 3, ": 7"); }), own);
  EXPECT_NE(digest([](Files& f) { f.tensors[kQ + ".lora_A.weight"].values[5] += 1; }), own);
  EXPECT_NE(digest([](Files& f) {
              f.tensors.erase(kUp + ".lora_A.weight");
              f.tensors.erase(kUp + ".lora_B.weight");
            }),
            own);
  const Folder elsewhere;
  EXPECT_EQ((*OpenAs(elsewhere, {}))->digest(), own);
}

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok());
  const std::string message = StatusMessage(status);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(PeftAdapter, ConfigurationsThatAreNotServedAreNamed) {
  const struct {
    const char* member;
    std::vector<std::string> saying;
  } kRefused[] = {
      {R"("use_dora": true)", {"adapter_config.json: use_dora: is true, which is not served"}},
      {R"("modules_to_save": ["lm_head"])", {"modules_to_save: is [\"lm_head\"]"}},
      {R"("bias": "lora_only")", {"bias: is \"lora_only\"", "served is none"}},
      {R"("bias": "all")", {"bias: is \"all\""}},
      {R"("lora_bias": true)", {"lora_bias: is true"}},
      {R"("fan_in_fan_out": true)", {"fan_in_fan_out: is true"}},
      {R"("layer_replication": [[0, 2]])", {"layer_replication: is [[0,2]]"}},
      {R"("target_parameters": ["gate_up_proj"])", {"target_parameters: is [\"gate_up_proj\"]"}},
      {R"("trainable_token_indices": [3])", {"trainable_token_indices: is [3]"}},
      {R"("alora_invocation_tokens": [1, 2])", {"alora_invocation_tokens: is [1,2]"}},
      {R"("use_qalora": true)", {"use_qalora: is true"}},
      {R"("some_new_key": 5)", {"some_new_key: is 5"}},
      {R"("init_lora_weights": "pissa")", {"init_lora_weights: \"pissa\" changes weights"}},
      {R"("peft_type": "LOHA")", {"peft_type: is \"LOHA\", served is \"LORA\""}},
      {R"("r": 0)", {"r: is 0, served are ranks from 1 to 256"}},
      {R"("r": 257)", {"r: is 257"}},
      {R"("r": "8")", {"r: must be"}},
      {R"("lora_alpha": 1e300)", {"lora_alpha: is 1e+300"}},
      {R"("use_rslora": 1)", {"use_rslora: must be"}},
      {R"("target_modules": null)", {"target_modules: is missing"}},
      {R"("target_modules": [1])", {"target_modules: must be"}},
      {R"x("target_modules": "(?=q)")x", {"target_modules: \"(?=q)\" has", "special kind"}},
      {R"x("rank_pattern": {"a(": 3})x", {"rank_pattern: \"a(\" has a group without an end"}},
      {R"("rank_pattern": {"a": 500})", {"rank_pattern: is 500"}},
      {R"("alpha_pattern": [])", {"alpha_pattern: must be"}},
  };
  const Folder folder;
  for (const auto& refused : kRefused) {
    SCOPED_TRACE(refused.member);
    Files files;
    // Of two members with one name the last counts.
    files.config.replace(files.config.rfind('}'), 1, std::string(", ") + refused.member + "}");
    ExpectRefused(OpenAs(folder, files).status(), refused.saying);
  }
  Files files;
  files.config = "[]";
  ExpectRefused(OpenAs(folder, files).status(), {"adapter_config.json: must hold a JSON object"});
  files.config = std::string(kMaxAdapterConfigBytes + 1, ' ');
  ExpectRefused(OpenAs(folder, files).status(), {"adapter_config.json: has 1048577 bytes"});
  files.config = R"({"peft_type": "LORA", "target_modules": [)";
  for (size_t i = 0; i <= kMaxAdapterPatterns; ++i) files.config += i == 0 ? "\"a\"" : ",\"a\"";
  files.config += "]}";
  ExpectRefused(OpenAs(folder, files).status(), {"target_modules: has 4097 names"});
}

TEST(PeftAdapter, TensorsThatAreNotServedAreNamed) {
  const struct {
    const char* what;
    std::function<void(Files&)> spoil;
    std::vector<std::string> saying;
  } kRefused[] = {
      {"no partner",
       [](Files& f) { f.tensors.erase(kQ + ".lora_B.weight"); },
       {"lora_A.weight\" has no partner", "q_proj.lora_B.weight\""}},
      {"dora",
       [](Files& f) { f.tensors[kQ + ".lora_magnitude_vector"] = Counting(1, 6); },
       {"lora_magnitude_vector\" belongs to DoRA"}},
      {"embedding",
       [](Files& f) {
         f.tensors["base_model.model.model.embed_tokens.lora_embedding_A"] = Counting(2, 9);
       },
       {"is of an adapter of embeddings"}},
      {"bias",
       [](Files& f) { f.tensors[kQ + ".lora_B.bias"] = Counting(1, 6); },
       {"is a bias of B"}},
      {"parameters",
       [](Files& f) {
         f.tensors["base_model.model.model.mlp.experts.base_layer.lora_A.weight"] = Counting(2, 4);
       },
       {"target_parameters"}},
      {"whole module",
       [](Files& f) { f.tensors["base_model.model.lm_head.weight"] = Counting(2, 4); },
       {"base_model.model.lm_head.weight\" is none that an adapter's file may hold"}},
      {"no prefix",
       [](Files& f) {
         f.tensors["model.layers.0.self_attn.q_proj.lora_A.weight"] = Counting(2, 4);
       },
       {"is none that an adapter's file may hold; expected are base_model.model.MODULE"}},
      {"no module",
       [](Files& f) { f.tensors["base_model.model.lora_A.weight"] = Counting(2, 4); },
       {"is none that"}},
      {"rank",
       [](Files& f) { f.tensors[kQ + ".lora_A.weight"] = Counting(3, 4); },
       {"has shape [3, 4], expected is [2, inputs]", "says rank 2"}},
      {"rank of B",
       [](Files& f) { f.tensors[kQ + ".lora_B.weight"] = Counting(6, 3); },
       {"has shape [6, 3], expected is [outputs, 2]"}},
      {"dimensions",
       [](Files& f) { f.tensors[kQ + ".lora_A.weight"].shape = {8}; },
       {"has shape [8], expected is [2, inputs]"}},
      {"untargeted",
       [](Files& f) { f.config.replace(f.config.find("mlp.up_proj"), 11, "mlp.xx_proj"); },
       {"up_proj.lora_A.weight\" is of a module that target_modules"}},
      {"not finite",
       [](Files& f) { f.tensors[kQ + ".lora_A.weight"].values[3] = std::nanf(""); },
       {"holds a number that is not finite, at 3"}},
      {"infinite",
       [](Files& f) { f.tensors[kQ + ".lora_B.weight"].values[0] = -INFINITY; },
       {"holds a number that is not finite, at 0"}},
      {"type",
       [](Files& f) { f.tensors[kQ + ".lora_A.weight"].type = "I64"; },
       {"has type I64, served are F32, F16 and BF16"}},
      {"nothing", [](Files& f) { f.tensors.clear(); }, {"holds no tensors"}},
  };
  const Folder folder;
  for (const auto& refused : kRefused) {
    SCOPED_TRACE(refused.what);
    Files files;
    refused.spoil(files);
    const absl::Status status = OpenAs(folder, files).status();
    ExpectRefused(status, refused.saying);
    ExpectRefused(status, {"adapter_model.safetensors"});
  }
}

TEST(PeftAdapter, ARankAboveTheLimitIsRefused) {
  const Folder folder;
  EXPECT_TRUE(OpenAs(folder, {}, 2).ok());
  ExpectRefused(OpenAs(folder, {}, 1).status(),
                {"has rank 2, --max-lora-rank is 1; --max-lora-rank 2 fits"});
}

TEST(PeftAdapter, NamesAndCountsOfModulesAreBounded) {
  const Folder folder;
  Files files;
  files.config = R"({"peft_type": "LORA", "r": 1, "target_modules": "all-linear"})";
  const auto with_name = [&files](size_t bytes) {
    const std::string module = "base_model.model." + std::string(bytes, 'm');
    files.tensors = {{module + ".lora_A.weight", Counting(1, 1)},
                     {module + ".lora_B.weight", Counting(1, 1)}};
  };
  with_name(kMaxModuleNameBytes);
  EXPECT_TRUE(OpenAs(folder, files).ok());
  with_name(kMaxModuleNameBytes + 1);
  ExpectRefused(OpenAs(folder, files).status(),
                {"is of a module with 513 bytes of name, at most 512 are read"});
  files.tensors.clear();
  for (size_t i = 0; i < kMaxAdapterModules; ++i) {
    const std::string module = "base_model.model.m" + std::to_string(i);
    files.tensors[module + ".lora_A.weight"] = Counting(1, 1);
    files.tensors[module + ".lora_B.weight"] = Counting(1, 1);
  }
  EXPECT_TRUE(OpenAs(folder, files).ok());
  files.tensors["base_model.model.one_more.lora_A.weight"] = Counting(1, 1);
  ExpectRefused(OpenAs(folder, files).status(), {"has more than the 16384 modules that are read"});
}

// Many modules with long names times many patterns with many states: refused by the patterns' key.
TEST(PeftAdapter, MatchingIsBounded) {
  const Folder folder;
  Files files;
  files.tensors.clear();
  for (int i = 0; i < 400; ++i) {
    std::string module = "base_model.model.";
    for (int dot = 0; dot < 240; ++dot) module += "a.";
    module += std::to_string(i);
    files.tensors[module + ".lora_A.weight"] = Counting(1, 1);
    files.tensors[module + ".lora_B.weight"] = Counting(1, 1);
  }
  files.config = R"({"peft_type": "LORA", "r": 1, "target_modules": "all-linear",
                     "rank_pattern": {"((a|.|b)*c){9}": 1}})";
  const absl::Status status = OpenAs(folder, files).status();
  ExpectRefused(status, {"adapter_config.json: rank_pattern: to match it with all modules takes",
                         "67108864 steps"});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(PeftAdapter, AnAdapterOfAnotherBaseIsRefused) {
  const Folder folder;
  const auto adapter = OpenAs(folder, {});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  std::vector<LoraTarget> targets = Targets();
  targets[0].cols = 5;
  ExpectRefused((*adapter)->For(targets).status(),
                {"q_proj.lora_A.weight\" has shape [2, 4], expected is [2, 5]"});
  targets = Targets();
  targets[1].rows = 9;
  ExpectRefused((*adapter)->For(targets).status(),
                {"up_proj.lora_B.weight\" has shape [8, 2], expected is [9, 2]"});
  targets = Targets();
  targets.erase(targets.begin() + 1);
  ExpectRefused((*adapter)->For(targets).status(),
                {"up_proj.lora_A.weight\" is of no module of this model that takes adapters",
                 "one that does is model.layers.0.self_attn.q_proj"});
}

TEST(PeftAdapter, ExpertsAndTheHeadAreNamed) {
  for (const auto& [module, why] :
       {std::pair<std::string, std::string>{"model.layers.0.mlp.experts.3.up_proj",
                                            "whose experts take no adapters here"},
        {"lm_head", "embeddings and the head take no adapters here"}}) {
    const Folder folder;
    Files files;
    files.config = R"({"peft_type": "LORA", "r": 2, "target_modules": "all-linear"})";
    files.tensors = {{"base_model.model." + module + ".lora_A.weight", Counting(2, 4)},
                     {"base_model.model." + module + ".lora_B.weight", Counting(6, 2)}};
    const auto adapter = OpenAs(folder, files);
    ASSERT_TRUE(adapter.ok()) << adapter.status();
    ExpectRefused((*adapter)->For(Targets()).status(), {module, why});
  }
}

TEST(PeftAdapter, FoldersThatAreNoneAreRefused) {
  ExpectRefused(PeftAdapter::Open("/nowhere/at/all", {}, 16).status(),
                {"/nowhere/at/all: is no folder; give one that PEFT saved"});
  const Folder folder;
  ExpectRefused(PeftAdapter::Open(folder.path(), {}, 16).status(), {"adapter_config.json"});
  Files files;
  files.WriteTo(folder);
  ExpectRefused(PeftAdapter::Open(folder.At("adapter_config.json"), {}, 16).status(),
                {"is no folder"});
  std::filesystem::remove(folder.At("adapter_model.safetensors"));
  ExpectRefused(PeftAdapter::Open(folder.path(), {}, 16).status(), {"adapter_model.safetensors"});
  folder.Write("adapter_model.bin", "PK");
  ExpectRefused(PeftAdapter::Open(folder.path(), {}, 16).status(),
                {"adapter_model.bin: is a pickle, which may run code: not read"});
}

TEST(PeftAdapter, LinksOutOfTheFolderAreNotFollowed) {
  const Folder outside;
  Files().WriteTo(outside);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const Folder folder;
    Files().WriteTo(folder);
    std::filesystem::remove(folder.At(name));
    std::filesystem::create_symlink(outside.At(name), folder.At(name));
    ExpectRefused(PeftAdapter::Open(folder.path(), {}, 16).status(),
                  {name, "is a link out of the model's folder"});
    EXPECT_TRUE(PeftAdapter::Open(folder.path(), {outside.path()}, 16).ok());
  }
}

TEST(PeftAdapter, AFileLargerThanAnAdapterCanBeIsRefused) {
  const Folder folder;
  const Files files;
  files.WriteTo(folder);
  const auto size = static_cast<int64_t>(Safetensors(files.tensors).size());
  const load::ModelRoots roots = *load::ModelRoots::Of(folder.path(), {});
  EXPECT_TRUE(PeftAdapter::Open(folder.path(), {roots, 16, size}).ok());
  const absl::Status over = PeftAdapter::Open(folder.path(), {roots, 16, size - 1}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(over)) << over;
  EXPECT_NE(over.message().find("at most rank 16"), std::string::npos) << over;
}

TEST(PeftAdapter, DamagedFilesAreRefused) {
  const Folder folder;
  Files files;
  const std::string whole = Safetensors(files.tensors);
  folder.Write("adapter_config.json", files.config);
  for (const size_t size : {size_t{1}, size_t{7}, size_t{20}, whole.size() / 2, whole.size() - 1}) {
    folder.Write("adapter_model.safetensors", whole.substr(0, size));
    ExpectRefused(PeftAdapter::Open(folder.path(), {}, 16).status(), {"adapter_model.safetensors"});
  }
}

TEST(AdapterTable, SlotsBelongToDigests) {
  AdapterTable table(2);
  EXPECT_EQ(table.Add({"a", "one", 8, "/a", 100}), 0);
  EXPECT_EQ(table.Add({"b", "one", 8, "/b", 100}), 0);
  EXPECT_EQ(table.Add({"c", "two", 8, "/c", 50}), 1);
  EXPECT_EQ(table.Add({"d", "three", 8, "/d", 50}), std::nullopt);  // one more than --max-loras
  EXPECT_EQ(table.List().size(), 3u);
  EXPECT_EQ(table.SlotOf("two"), 1);
  EXPECT_EQ(table.SlotOf("three"), std::nullopt);
  EXPECT_EQ(table.BytesOf("one"), 100);
  EXPECT_EQ(table.BytesOf("three"), 0);
  EXPECT_EQ(AdapterTable().max_loras(), 0);
}

}  // namespace
}  // namespace quire

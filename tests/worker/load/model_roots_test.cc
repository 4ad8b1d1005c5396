// Links, pipes and devices in a model's folder: what a hostile model could have this process read.
#include "worker/load/model_roots.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "worker/load/model_files.h"

namespace quire::load {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeader = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

// A model in the folder `under` of a folder of its own, and a secret beside it.
class ModelRootsTest : public testing::Test {
 protected:
  void SetUp() override { Make("model"); }
  void Make(const std::string& under) {
    model = folder.path() + "/" + under;
    fs::create_directories(model);
    folder.Write("secret", "{\"secret\":1}");
    Write("config.json", "{}");
    Write("model.safetensors", Safetensors(kHeader, 4));
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(model + "/" + name, std::ios::binary) << text;
  }
  void Link(const std::string& name, const std::string& target) {
    fs::remove(model + "/" + name);
    fs::create_symlink(target, model + "/" + name);
  }
  // What reading `name` of the model ends with; empty: it is read.
  std::string Reading(const std::string& name, const std::vector<std::string>& roots = {}) {
    const auto files = ModelFiles::Open(model, roots);
    if (!files.ok()) return StatusMessage(files.status());
    return StatusMessage((*files)->ReadText(name, 1000).status());
  }
  std::string Opening(const std::vector<std::string>& roots = {}) {
    return StatusMessage(ModelFiles::Open(model, roots).status());
  }

  TempFolder folder;
  std::string model;
};

constexpr const char* kRefusal = "is a link out of the model's folder";

bool Says(const std::string& message, std::string_view what) {
  return message.find(what) != std::string::npos && message.find('\n') == std::string::npos;
}

TEST_F(ModelRootsTest, LinksOutOfTheModelAreRefused) {
  for (const std::string& target :
       {folder.path() + "/secret", std::string("../secret"), std::string("/proc/self/environ"),
        std::string("/etc/passwd")}) {
    Link("chat_template.jinja", target);
    EXPECT_TRUE(Says(Reading("chat_template.jinja"), kRefusal)) << target;
  }
  fs::create_directories(folder.path() + "/elsewhere");
  std::ofstream(folder.path() + "/elsewhere/tool_use.jinja") << "text";
  Link("additional_chat_templates", "../elsewhere");
  EXPECT_TRUE(Says(Reading("additional_chat_templates/tool_use.jinja"), kRefusal));
}

TEST_F(ModelRootsTest, EveryFileOfAModelIsHeldToIt) {
  folder.Write("config", "{}");
  folder.Write("weights", Safetensors(kHeader, 4));
  Link("config.json", "../config");
  EXPECT_TRUE(Says(Opening(), "config.json: is a link out"));
  fs::remove(model + "/config.json");
  Write("config.json", "{}");
  Link("model.safetensors", "../weights");
  EXPECT_TRUE(Says(Opening(), "model.safetensors: is a link out"));
  fs::remove(model + "/model.safetensors");
  folder.Write("index", R"({"weight_map":{"a":"one.safetensors"}})");
  Link("model.safetensors.index.json", "../index");
  EXPECT_TRUE(Says(Opening(), "index.json: is a link out"));
  fs::remove(model + "/model.safetensors.index.json");
  Write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors"}})");
  Link("one.safetensors", "../weights");
  EXPECT_TRUE(Says(Opening(), "one.safetensors: is a link out"));
  fs::remove_all(model);
  fs::create_directory(model);
  Link("only.gguf", "../weights");
  EXPECT_TRUE(Says(Opening(), "only.gguf: is a link out"));
}

TEST_F(ModelRootsTest, LinksInsideTheModelAreRead) {
  Write("real.json", "{}");
  Link("tokenizer.json", "real.json");
  EXPECT_EQ(Reading("tokenizer.json"), "");
  Link("tokenizer.json", model + "/real.json");
  EXPECT_EQ(Reading("tokenizer.json"), "");
  // A folder whose name begins like the model's is another.
  fs::create_directory(model + "-2");
  std::ofstream(model + "-2/real.json") << "{}";
  Link("tokenizer.json", "../model-2/real.json");
  EXPECT_TRUE(Says(Reading("tokenizer.json"), kRefusal));
}

TEST_F(ModelRootsTest, TheModelItselfMayBeALink) {
  fs::create_directory_symlink(model, folder.path() + "/alias");
  model = folder.path() + "/alias";
  EXPECT_EQ(Reading("config.json"), "");
  Link("tokenizer.json", "../secret");
  EXPECT_TRUE(Says(Reading("tokenizer.json"), kRefusal));
}

TEST_F(ModelRootsTest, AHubCachesBlobsAreItsModels) {
  Make("hub/models--org--name/snapshots/abc");
  const std::string own = folder.path() + "/hub/models--org--name";
  fs::create_directories(own + "/blobs");
  std::ofstream(own + "/blobs/1") << "{}";
  Link("tokenizer.json", "../../blobs/1");
  EXPECT_EQ(Reading("tokenizer.json"), "");
  fs::create_directories(folder.path() + "/hub/models--org--name-2/blobs");
  std::ofstream(folder.path() + "/hub/models--org--name-2/blobs/1") << "{}";
  Link("tokenizer.json", "../../../models--org--name-2/blobs/1");
  EXPECT_TRUE(Says(Reading("tokenizer.json"), kRefusal));
}

TEST_F(ModelRootsTest, OnlySnapshotsOfAHubHaveOne) {
  EXPECT_EQ(HubFolderOf("/h/models--a--b/snapshots/abc"), "/h/models--a--b");
  EXPECT_EQ(HubFolderOf("/h/models--a--b/snapshots/abc/gguf"), "/h/models--a--b");
  EXPECT_EQ(HubFolderOf("/h/models/snapshots/abc"), "");
  EXPECT_EQ(HubFolderOf("/h/models--a--b/blobs"), "");
  EXPECT_EQ(HubFolderOf("/snapshots/abc"), "");
  EXPECT_EQ(HubFolderOf("/"), "");
}

TEST_F(ModelRootsTest, AFolderMayBeAllowed) {
  fs::create_directory(folder.path() + "/store");
  std::ofstream(folder.path() + "/store/1") << "{}";
  Link("tokenizer.json", "../store/1");
  EXPECT_TRUE(
      Says(Reading("tokenizer.json"),
           "allow --allowed-model-root=" + fs::canonical(folder.path()).string() + "/store"));
  EXPECT_EQ(Reading("tokenizer.json", {folder.path() + "/store"}), "");
  EXPECT_EQ(Reading("tokenizer.json", {"/"}), "");
  EXPECT_TRUE(Says(Reading("tokenizer.json", {folder.path() + "/stor"}), "--allowed-model-root"));
  EXPECT_TRUE(Says(Reading("config.json", {folder.path() + "/secret"}), "not a folder"));
}

TEST_F(ModelRootsTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(mkfifo((model + "/tokenizer.json").c_str(), 0600),
            0);  // opening it would wait for ever
  EXPECT_TRUE(Says(Reading("tokenizer.json"), "tokenizer.json: not a regular file"));
  Link("tokenizer.json", "/dev/zero");
  EXPECT_TRUE(Says(Reading("tokenizer.json", {"/dev"}), "not a regular file"));
  fs::remove(model + "/config.json");
  ASSERT_EQ(mkfifo((model + "/config.json").c_str(), 0600), 0);
  EXPECT_TRUE(Says(Opening(), "config.json: not a regular file"));
  model = "/dev/null";
  EXPECT_TRUE(Says(Opening(), "/dev/null: not a regular file"));
}

}  // namespace
}  // namespace quire::load

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/pull/catalogue.h"
#include "cli/pull/digest.h"
#include "cli/pull/download.h"
#include "cli/pull/hub.h"
#include "cli/pull/part_file.h"
#include "cli/pull/source.h"

namespace quire::pull {
namespace {

class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/quire-pull-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Source, ReadsNamesOfHubs) {
  const struct {
    const char *name, *repo, *revision, *file, *served;
  } kCases[] = {
      {"hf:org/repo", "org/repo", "main", "", "org/repo"},
      {"org/repo", "org/repo", "main", "", "org/repo"},
      {"hf:org/repo:v1.0", "org/repo", "v1.0", "", "org/repo"},
      {"hf:org/repo:refs/pr/3", "org/repo", "refs/pr/3", "", "org/repo"},
      {"hf:org/repo/model.gguf", "org/repo", "main", "model.gguf", "model"},
      {"hf:org/repo:v1/deep/Model.GGUF", "org/repo", "v1", "deep/Model.GGUF", "Model"},
      {"hf:org/repo:refs/pr/3/m.gguf", "org/repo", "refs/pr/3", "m.gguf", "m"},
      {"hf.co/org/repo", "org/repo", "main", "", "org/repo"},
  };
  for (const auto& c : kCases) {
    const auto source = ParseSource(c.name);
    ASSERT_TRUE(source.ok()) << c.name << source.status();
    EXPECT_EQ(source->kind, Kind::kHub) << c.name;
    EXPECT_EQ(source->repo, c.repo) << c.name;
    EXPECT_EQ(source->revision, c.revision) << c.name;
    EXPECT_EQ(source->file, c.file) << c.name;
    EXPECT_EQ(ServedNameOf(*source), c.served) << c.name;
  }
  for (const char* name : {"hf:", "hf:org", "hf:org/", "hf:/repo", "hf:../repo", "hf:org/..",
                           "hf:org/repo:", "hf:org/repo:../x", "hf:org/repo/x.bin", "hf:o--x/repo",
                           "hf:org/repo/../x.gguf", "hf:org/re po"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSource(name).status())) << name;
  }
  for (const char* name : {"demo", "a/b/c", "./a/b", "/a/b", "a/b.gguf", "qwen3:4b"}) {
    const auto source = ParseSource(name);
    ASSERT_TRUE(source.ok()) << name;
    EXPECT_EQ(source->kind, Kind::kLocal) << name;
  }
}

TEST(Source, ReadsAddressesOfFiles) {
  const std::string digest(64, 'a');
  const auto source = ParseSource("https://host:8443/dir/Model.gguf?sig=1#sha256=" + digest);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->kind, Kind::kWeb);
  EXPECT_EQ(source->url, "https://host:8443/dir/Model.gguf?sig=1");
  EXPECT_EQ(source->sha256, digest);
  EXPECT_EQ(ServedNameOf(*source), "Model");
  for (const std::string& name :
       {std::string("https://host/"), std::string("https://host/x.zip"),
        std::string("https://host/..gguf"), "https://host/x.gguf#sha256=" + std::string(63, 'a'),
        "https://host/x.gguf#md5=" + digest}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSource(name).status())) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSource(std::string(kMaxNameBytes + 1, 'a')).status()));
  EXPECT_TRUE(ParseSource(std::string(kMaxNameBytes, 'a')).ok());
}

TEST(Source, NamesOfFilesStayInTheirFolder) {
  for (const char* name : {"a", "a/b.json", "a b", ".gitattributes", "a/b/c/d/e/f/g/h"}) {
    EXPECT_TRUE(CheckFileName(name).ok()) << name;
  }
  for (const char* name : {"", "/a", "../a", "a/..", "a//b", "a/", "./a", "a\\b", "C:x", "a\nb",
                           "a\x7f", "a/b/c/d/e/f/g/h/i"}) {
    EXPECT_FALSE(CheckFileName(name).ok()) << name;
  }
  std::string longest = std::string(200, 'a') + "/" + std::string(200, 'a') + "/";
  longest += std::string(kMaxFileNameBytes - longest.size(), 'a');
  EXPECT_TRUE(CheckFileName(longest).ok());
  EXPECT_FALSE(CheckFileName(longest + "a").ok());
  EXPECT_FALSE(CheckFileName(std::string(201, 'a')).ok());
}

TEST(Address, LocationsNeverLeaveTls) {
  const auto from = ParseAddress("https://hub.example/a?b=1#c");
  ASSERT_TRUE(from.ok());
  EXPECT_EQ(from->target, "/a?b=1");
  EXPECT_EQ(from->Origin(), "https://hub.example:443");
  EXPECT_EQ(ParseLocation(*from, "/x")->Origin(), from->Origin());
  EXPECT_EQ(ParseLocation(*from, "//other/x")->Origin(), "https://other:443");
  EXPECT_FALSE(ParseLocation(*from, "http://hub.example/x").ok());
  EXPECT_FALSE(ParseLocation(*from, "").ok());
  EXPECT_FALSE(ParseLocation(*from, "https://user@hub.example/x").ok());
  EXPECT_FALSE(ParseAddress("https://hub.example/a\r\nX: y").ok());
  EXPECT_FALSE(ParseAddress("https://" + std::string(kMaxUrlBytes, 'a')).ok());
}

TEST(Digest, IsThatOfSha256sumAndOfGit) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest git(DigestKind::kGitBlob, 6);
  git.Add("hello\n");
  EXPECT_EQ(git.Finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(PartFile, KeepsWhatIsThereAndForgetsWhatCannotBe) {
  const TempFolder folder;
  const std::string path = folder.path() + "/x.part";
  const int64_t size = 2 * kMinChunkBytes + 10;
  {
    auto part = PartFile::Open(path, size, "one");
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ((*part)->chunks(), 3);
    EXPECT_TRUE((*part)->Append(2, "0123").ok());
    EXPECT_TRUE((*part)->Append(0, "abc").ok());
    EXPECT_EQ((*part)->Prefix(), 3);
    EXPECT_EQ((*part)->BytesDone(), 7);
    EXPECT_TRUE((*part)->Append(2, "456789").ok());
    EXPECT_TRUE(absl::IsOutOfRange((*part)->Append(2, "x")));
  }
  {
    auto part = PartFile::Open(path, size, "one");
    EXPECT_EQ((*part)->Done(0), 3);
    EXPECT_EQ((*part)->Done(2), 10);
    char bytes[4];
    EXPECT_EQ(*(*part)->Read((*part)->Begin(2), bytes, 4), 4u);
    EXPECT_EQ(std::string(bytes, 4), "0123");
  }
  EXPECT_EQ((*PartFile::Open(path, size, "two"))->BytesDone(), 0);
  {
    auto part = PartFile::Open(path, size, "two");
    EXPECT_TRUE((*part)->Append(0, "abc").ok());
  }
  // A map that says more than a chunk can hold.
  std::fstream map(path + ".map", std::ios::in | std::ios::out | std::ios::binary);
  map.seekp(256);
  const int64_t wrong = kMinChunkBytes + 1;
  map.write(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  map.close();
  auto part = PartFile::Open(path, size, "two");
  EXPECT_EQ((*part)->BytesDone(), 0);
  EXPECT_TRUE((*part)->MoveTo(folder.path() + "/x").ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".map"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/x"));
}

TEST(Room, IsLookedForFirst) {
  EXPECT_TRUE(CheckRoom("/tmp", 0).ok());
  const absl::Status full = CheckRoom("/tmp", int64_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_NE(full.message().find("MiB free; HF_HUB_CACHE, or XDG_CACHE_HOME"), std::string::npos)
      << full;
}

HubSnapshot Snapshot(const std::vector<std::string>& names) {
  HubSnapshot snapshot;
  for (const std::string& name : names) {
    HubFile file;
    file.path = name;
    file.size = 1;
    snapshot.files.push_back(file);
  }
  return snapshot;
}

std::string Chosen(const std::vector<std::string>& names, const char* source = "hf:o/r") {
  const auto files = ChooseFiles(Snapshot(names), *ParseSource(source));
  if (!files.ok()) return std::string(files.status().message());
  std::string all;
  for (const HubFile& file : *files) all += file.path + " ";
  return all;
}

TEST(ChooseFiles, TakesWhatAModelNeeds) {
  EXPECT_EQ(
      Chosen({"config.json", "a.safetensors", "consolidated.safetensors", "x.bin", "README.md",
              "onnx/m.json", "chat_template.jinja", "tokenizer.model", "merges.txt"}),
      "config.json a.safetensors chat_template.jinja tokenizer.model merges.txt ");
  EXPECT_EQ(Chosen({"config.json", "only.gguf"}), "only.gguf ");
  EXPECT_EQ(Chosen({"m-Q8_0.gguf", "m-Q4_K_M.gguf"}), "m-Q4_K_M.gguf ");
  EXPECT_EQ(Chosen({"m-Q8_0.gguf", "m-Q4_K_M.gguf"}, "hf:o/r/m-Q8_0.gguf"), "m-Q8_0.gguf ");
  EXPECT_NE(Chosen({"m-00001-of-00002.gguf"}, "hf:o/r/m-00001-of-00002.gguf").find("split"),
            std::string::npos);
  EXPECT_NE(Chosen({"config.json", "x.bin"}).find("never read"), std::string::npos);
  std::vector<std::string> many = {"config.json", "m.safetensors"};
  while (many.size() < kMaxPulledFiles) many.push_back(std::to_string(many.size()) + ".json");
  EXPECT_EQ(Chosen(many).find("more than"), std::string::npos);
  many.push_back("one_more.json");
  EXPECT_NE(Chosen(many).find("more than 1,000 files"), std::string::npos);
}

TEST(HubSettings, AreReadAsTheHubsOwnClientDoes) {
  const auto cache = [](const config::Environment& environment) {
    return HubSettingsFrom(environment)->cache;
  };
  EXPECT_EQ(cache({{"HOME", "/h"}}), "/h/.cache/huggingface/hub");
  EXPECT_EQ(cache({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}), "/x/huggingface/hub");
  EXPECT_EQ(cache({{"HOME", "/h"}, {"HF_HOME", "/f"}}), "/f/hub");
  EXPECT_EQ(cache({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}}), "/c");
  EXPECT_TRUE(HubSettingsFrom({{"HF_HUB_OFFLINE", "1"}})->offline);
  EXPECT_FALSE(HubSettingsFrom({{"HF_HUB_OFFLINE", "0"}})->offline);
  EXPECT_EQ(HubSettingsFrom({{"HF_ENDPOINT", "http://m/"}})->endpoint, "http://m");
  EXPECT_FALSE(HubSettingsFrom({{"HF_TOKEN", "a\nb"}}).ok());
}

TEST(Catalogue, TheProgramsOwnIsRightAndWrongOnesNameTheMember) {
  const auto models = ParseCatalogue(BuiltInCatalogue());
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_NE(FindInCatalogue(*models, "Qwen3:4B"), nullptr);
  EXPECT_GT(FamilyOf(*models, "gemma3").size(), 1u);
  EXPECT_TRUE(FamilyOf(*models, "gemma").empty());
  for (const char* text : {"[]", "{}", R"({"version": 1})", R"({"version": 1, "models": [{}]})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCatalogue(text).status())) << text;
  }
  const std::string model =
      R"({"name": "a:1b", "title": "A", "source": "hf:o/r", "bytes": 1, "memory_bytes": 1,)"
      R"( "context": 1, "licence": "L"})";
  std::string many = R"({"version": 1, "models": [)" + model;
  for (size_t i = 1; i < kMaxCatalogueModels; ++i) many += "," + model;
  EXPECT_TRUE(ParseCatalogue(many + "]}").ok());
  EXPECT_FALSE(ParseCatalogue(many + "," + model + "]}").ok());
  EXPECT_EQ(NearestNames("qwen3:5b", {"llama", "qwen3:4b", "qwen3:14b", "qwen2"}, 2),
            (std::vector<std::string>{"qwen3:4b", "qwen3:14b"}));
}

}  // namespace
}  // namespace quire::pull

#include "cli/pull/mlflow.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::pull {
namespace {

TEST(Mlflow, ReadsNames) {
  const struct {
    const char *text, *name, *rest, *served;
    MlflowName::Kind kind;
  } kCases[] = {
      {"models:/my model/12", "my model", "12", "my-model:12", MlflowName::Kind::kVersion},
      {"models:/m/latest", "m", "latest", "m", MlflowName::Kind::kLatest},
      {"models:/a.b@best_one", "a.b", "best_one", "a.b:best_one", MlflowName::Kind::kAlias},
      {"models:/m-0123", "m-0123", "", "m-0123", MlflowName::Kind::kLogged},
      {"runs:/0123456789/a/chat/", "0123456789", "a/chat", "chat:01234567", MlflowName::Kind::kRun},
      {"models:/.x/1", ".x", "1", "model.x:1", MlflowName::Kind::kVersion},
  };
  for (const auto& c : kCases) {
    const auto name = ParseMlflowName(c.text);
    ASSERT_TRUE(name.ok()) << c.text << name.status();
    EXPECT_EQ(name->kind, c.kind) << c.text;
    EXPECT_EQ(name->name, c.name) << c.text;
    EXPECT_EQ(name->rest, c.rest) << c.text;
    EXPECT_EQ(ServedNameOf(*name), c.served) << c.text;
    const auto source = ParseSource(std::string("mlflow:") + c.text);
    ASSERT_TRUE(source.ok()) << c.text;
    EXPECT_EQ(source->kind, Kind::kMlflow);
    EXPECT_EQ(ServedNameOf(*source), c.served);
  }
  EXPECT_TRUE(ParseMlflowName("models:/" + std::string(250, 'a') + "/1").ok());
  EXPECT_FALSE(ParseMlflowName("models:/" + std::string(251, 'a') + "/1").ok());
  EXPECT_FALSE(ParseMlflowName("models:/a/" + std::string(19, '1')).ok());
}

TEST(Mlflow, PlacesAreThoseOfTheServerAndOfS3) {
  const auto server = ParseAddress("https://tracking.example/base");
  const auto own = ParseArtifactUri("mlflow-artifacts:/0/a b/artifacts/", *server);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->path, "0/a b/artifacts");
  const auto hosted = ParseArtifactUri("mlflow-artifacts://tracking.example/0/a", *server);
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  EXPECT_EQ(hosted->path, "0/a");
  const auto stored = ParseArtifactUri("s3://bucket/deep/folder", *server);
  ASSERT_TRUE(stored.ok() && stored->in_s3);
  EXPECT_EQ(stored->bucket + " " + stored->path, "bucket deep/folder");
  for (const char* uri :
       {"", "mlflow-artifacts:", "mlflow-artifacts:/", "mlflow-artifacts:/a/../b",
        "mlflow-artifacts://other.example/0/a", "gs://b/x", "/tmp", "file:///x"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(ParseArtifactUri(uri, *server).status())) << uri;
  }
}

TEST(Mlflow, TheTokenizersFolderHasTheLastWordAboutItsFiles) {
  const auto file = [](const char* path, int64_t size) {
    HubFile made;
    made.path = path;
    made.size = size;
    return made;
  };
  const std::vector<HubFile> files = {file("MLmodel", 1),
                                      file("model/config.json", 2),
                                      file("model/model.safetensors", 3),
                                      file("model/tokenizer.json", 4),
                                      file("components/tokenizer/tokenizer.json", 5),
                                      file("components/tokenizer/config.json", 6),
                                      file("python_model.pkl", 7)};
  const auto mlmodel = ParseMlmodel("flavors: {transformers: {model_binary: model}}");
  ASSERT_TRUE(mlmodel.ok()) << mlmodel.status();
  Source source;
  source.kind = Kind::kMlflow;
  const auto plan = PlanArtifacts(files, &*mlmodel, source);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::string found;
  for (const ArtifactFile& one : *plan)
    found += one.path + "=" + std::to_string(one.file.size) + " ";
  EXPECT_EQ(found, "config.json=2 model.safetensors=3 tokenizer.json=5 ");
  EXPECT_TRUE(absl::IsNotFound(PlanArtifacts(files, nullptr, source).status()));
  EXPECT_TRUE(absl::IsNotFound(PlanArtifacts({}, nullptr, source).status()));
}

}  // namespace
}  // namespace quire::pull

#include "cli/pull/oci.h"

#include <gtest/gtest.h>

#include <string>

#include "cli/pull/source.h"

namespace quire::pull {
namespace {

TEST(Oci, ReadsNamesOfRegistries) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  const struct {
    std::string name, repo, revision, origin, served, base;
  } kCases[] = {
      {"oci://ghcr.io/org/model:v1", "ghcr.io/org/model", "v1", "https://ghcr.io:443", "model:v1",
       "oci://ghcr.io/org/model:v1"},
      {"oci://localhost:5000/m", "localhost:5000/m", "latest", "http://localhost:5000", "m",
       "oci://localhost:5000/m:latest"},
      {"oci://127.0.0.1:5/a/b/c:latest", "127.0.0.1:5/a/b/c", "latest", "http://127.0.0.1:5", "c",
       "oci://127.0.0.1:5/a/b/c:latest"},
      {"oci://127.0.evil.example/m", "127.0.evil.example/m", "latest",
       "https://127.0.evil.example:443", "m", "oci://127.0.evil.example/m:latest"},
      {"oci://docker.io/model", "docker.io/library/model", "latest",
       "https://registry-1.docker.io:443", "model", "oci://docker.io/library/model:latest"},
      {"oci://docker.io/ai/model:7b", "docker.io/ai/model", "7b",
       "https://registry-1.docker.io:443", "model:7b", "oci://docker.io/ai/model:7b"},
      {"oci://h.example/m:v1@" + digest, "h.example/m", digest, "https://h.example:443",
       "m:aaaaaaaaaaaa", "oci://h.example/m@" + digest},
  };
  for (const auto& c : kCases) {
    const auto source = ParseSource(c.name);
    ASSERT_TRUE(source.ok()) << c.name << source.status();
    EXPECT_EQ(source->kind, Kind::kOci) << c.name;
    EXPECT_EQ(source->repo, c.repo) << c.name;
    EXPECT_EQ(source->revision, c.revision) << c.name;
    EXPECT_EQ(source->url, c.origin) << c.name;
    EXPECT_EQ(ServedNameOf(*source), c.served) << c.name;
    EXPECT_EQ(BaseOf(*source), c.base) << c.name;
  }
  // A folder's name is bounded; two long tags are still two names.
  const auto one = ParseSource("oci://ghcr.io/m:" + std::string(127, 'x') + "1");
  const auto two = ParseSource("oci://ghcr.io/m:" + std::string(127, 'x') + "2");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(ServedNameOf(*one).size(), 100u);
  EXPECT_NE(ServedNameOf(*one), ServedNameOf(*two));
  EXPECT_FALSE(ParseSource("oci://ghcr.io/m:" + std::string(129, 'x')).ok());
}

TEST(Oci, ChallengesAreReadWithCare) {
  const auto full = ParseChallenge(
      "Bearer realm=\"https://auth.example/token\", service=\"a \\\"b\\\", c\",scope=\"x\"");
  ASSERT_TRUE(full);
  EXPECT_TRUE(full->bearer);
  EXPECT_EQ(full->realm, "https://auth.example/token");
  EXPECT_EQ(full->service, "a \"b\", c");
  EXPECT_EQ(ParseChallenge("bearer REALM=https://a")->realm, "https://a");
  EXPECT_FALSE(ParseChallenge("Basic realm=\"x\"")->bearer);
  for (const std::string& text :
       {std::string(), std::string("Digest realm=x"), std::string("Bearer"),
        std::string("Bearer realm=\"x"), std::string("Bearer service=x"),
        "Bearer realm=\"" + std::string(kMaxTokenBytes, 'a') + "\""}) {
    EXPECT_FALSE(ParseChallenge(text)) << text.substr(0, 40);
  }
}

TEST(Oci, AccountsAreThoseOfTheRegistryAlone) {
  const std::string file = R"({"auths": {"ghcr.io": {"auth": "bWU6YTpi"}, "https://h.example/v1/":
      {"username": "u", "password": "p"}, "https://index.docker.io/v1/": {"auth": "ZDpk"},
      "token.example": {"identitytoken": "x"}}, "credHelpers": {"gcr.io": "gcloud"}})";
  EXPECT_EQ(AccountIn(file, "ghcr.io")->user, "me");
  EXPECT_EQ(AccountIn(file, "ghcr.io")->password, "a:b");
  EXPECT_EQ(AccountIn(file, "h.example")->password, "p");
  EXPECT_EQ(AccountIn(file, "docker.io")->user, "d");
  EXPECT_EQ(AccountIn(file, "gcr.io")->helper, "gcloud");
  EXPECT_EQ(AccountIn(file, "token.example")->helper, "identitytoken");
  for (const char* other : {"evil.example", "ghcr.io:444", "xghcr.io"}) {
    EXPECT_TRUE(AccountIn(file, other)->user.empty()) << other;
    EXPECT_TRUE(AccountIn(file, other)->helper.empty()) << other;
  }
  EXPECT_EQ(AccountIn(R"({"credsStore": "desktop"})", "ghcr.io")->helper, "desktop");
  EXPECT_TRUE(AccountIn("", "ghcr.io").ok());
  EXPECT_FALSE(AccountIn("[]", "ghcr.io").ok());
  EXPECT_FALSE(AccountIn(R"({"auths": {"a": {"auth": "bWU="}}})", "a").ok());
  EXPECT_FALSE(AccountIn(R"({"auths": {"a": {"auth": "%"}}})", "a").ok());
  const std::string padding(kMaxDockerConfigBytes - 2, ' ');
  EXPECT_TRUE(AccountIn("{}" + padding, "a").ok());
  EXPECT_FALSE(AccountIn("{} " + padding, "a").ok());
}

TEST(Oci, AnIndexLeadsToTheModel) {
  const auto entry = [](char digit, const std::string& more) {
    return R"({"digest": "sha256:)" + std::string(64, digit) + "\"" + more + "}";
  };
  const auto choose = [](const std::string& entries) {
    return ChooseInIndex(R"({"schemaVersion": 2, "manifests": [)" + entries + "]}");
  };
  const std::string nowhere = R"(, "platform": {"os": "unknown", "architecture": "unknown"})";
  const std::string model = R"(, "artifactType": "application/vnd.cncf.model.manifest.v1+json")";
  const std::string windows = R"(, "platform": {"os": "windows", "architecture": "amd64"})";
  EXPECT_EQ(**choose(entry('1', nowhere) + "," + entry('2', "")), std::string(64, '2'));
  EXPECT_EQ(**choose(entry('1', "") + "," + entry('2', model)), std::string(64, '2'));
  EXPECT_TRUE(absl::IsNotFound(choose(entry('1', nowhere) + "," + entry('2', windows)).status()));
  EXPECT_FALSE(*ChooseInIndex(R"({"schemaVersion": 2, "layers": []})"));
  std::string many = entry('1', "");
  for (size_t i = 1; i < kMaxOciLayers; ++i) many += "," + entry('1', "");
  EXPECT_TRUE(choose(many).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(choose(many + "," + entry('1', "")).status()));
}

}  // namespace
}  // namespace quire::pull

// Names of models and where they lead: a hub, a registry, a web server, or this machine.
//
// Pure functions, any thread. Names come from people and from servers: nothing of them reaches a
// path before CheckFileName has seen it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxFileNameBytes = 512;  // with its folders
inline constexpr size_t kMaxFileDepth = 8;

enum class Kind {
  kLocal,   // a folder, a file, or a name that is looked up here
  kHub,     // hf:ORG/REPO[:REVISION][/FILE.gguf]
  kWeb,     // https://HOST/PATH/FILE.gguf[#sha256=HEX]
  kS3,      // s3://BUCKET[/PREFIX][/FILE.gguf]
  kOci,     // oci://REGISTRY/REPO[:TAG][@sha256:HEX]
  kMlflow,  // mlflow:models:/NAME/VERSION, …, mlflow:runs:/RUN/PATH
};

struct Source {
  Kind kind = Kind::kLocal;
  std::string text;               // as it was given
  std::string repo;               // "ORG/REPO"; of S3: the bucket; of a registry: with its
                                  // host; of MLflow: ServedNameOf
  std::string revision = "main";  // a branch, a tag or a commit; a digest goes before a tag
  std::string file;    // the one that is meant, of S3 a prefix; empty: what a model needs
  std::string url;     // of the web, without its fragment; of a registry, its origin
  std::string sha256;  // of the web, where the fragment gives it
};

// INVALID_ARGUMENT says which part is wrong and what would be right. "ORG/REPO" alone is of a hub.
absl::StatusOr<Source> ParseSource(std::string_view name);

// The name for clients when no other is given: "ORG/REPO", or the file's without .gguf; of a
// registry "REPO", with ":TAG" where that is not latest.
std::string ServedNameOf(const Source& source);

// What its files' names follow: "hf:ORG/REPO", "s3://BUCKET/PREFIX", "oci://REGISTRY/REPO:TAG".
std::string BaseOf(const Source& source);

// "sha256:" and 64 digits, in lower case.
bool IsOciDigest(std::string_view text);

// A file's name from a server: relative, of plain parts; INVALID_ARGUMENT for one that would leave
// its folder, hide in it or confuse a terminal.
absl::Status CheckFileName(std::string_view name);

// A file that a model is made of: weights that are no pickle, settings, tokenizers, templates.
bool IsWeight(std::string_view file);
bool IsSetting(std::string_view file);

}  // namespace quire::pull

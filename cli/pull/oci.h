// Models in a registry of OCI artifacts: what a tag or digest names, which of its layers a model
// needs, and the tokens and accounts that a registry asks for.
//
// Pure except for OciRegistry, which asks the registry. Whatever it says is hostile input: texts,
// counts, sizes, digests and names are bounded and checked before use.
// It knows the layers of ModelPack (application/vnd.cncf.model.…), Ollama, Docker's models, and
// files with a title, as ORAS pushes them. The config of an artifact is not asked for: the model's
// own files say all that is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pull/http_session.h"
#include "cli/pull/source.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxManifestBytes = 4u << 20;
inline constexpr size_t kMaxOciLayers = 1'000;
inline constexpr size_t kMaxTokenBytes = 16u << 10;
inline constexpr size_t kMaxDockerConfigBytes = 1u << 20;

struct OciSettings {
  std::string docker_config;  // the file that `docker login` writes
};
// From DOCKER_CONFIG, a folder, and HOME.
OciSettings OciSettingsFrom(const config::Environment& environment);

struct OciAccount {
  std::string user, password;  // both empty: there is none
  std::string helper;          // the program that would know it; it is not run
};
// The account for a registry such as "ghcr.io:443". INVALID_ARGUMENT for a text that is no such
// file.
absl::StatusOr<OciAccount> AccountIn(std::string_view docker_config, std::string_view registry);

// What a registry asks for with a status of 401.
struct OciChallenge {
  bool bearer = false;  // a token of `realm`; else the account itself
  std::string realm, service;
};
// nullopt for another scheme, and for a text that cannot be.
std::optional<OciChallenge> ParseChallenge(std::string_view header);

struct OciLayer {
  std::string media_type;
  std::string digest;  // of SHA-256, in hexadecimal
  int64_t size = 0;
  std::string path;  // its annotation, which may be any text; empty: it has none
};
struct OciManifest {
  std::string digest;  // in hexadecimal
  std::string config_type;
  std::vector<OciLayer> layers;
};
// INVALID_ARGUMENT names the member that is wrong, RESOURCE_EXHAUSTED a bound.
absl::StatusOr<OciManifest> ParseManifest(std::string_view text);
// The digest, in hexadecimal, of the one manifest of an index that is a model or an image for this
// machine; nullopt where the text is no index. NOT_FOUND where there is none.
absl::StatusOr<std::optional<std::string>> ChooseInIndex(std::string_view text);

// A layer that a model needs.
struct OciPiece {
  OciLayer layer;
  std::string path;  // of the file that it is; empty: it is an archive of files
};
struct OciPlan {
  std::vector<OciPiece> pieces;
  std::vector<std::string> unused;  // what the artifact has and Quire does not use, for people
};
// INVALID_ARGUMENT and NOT_FOUND name what is wrong, or lacking.
absl::StatusOr<OciPlan> PlanPieces(const OciManifest& manifest, const Source& source);

// One repository of a registry. Owner: one thread, which it blocks.
class OciRegistry {
 public:
  OciRegistry(const OciSettings& settings, const Source& source, HttpSession& session)
      : settings_(settings), source_(source), session_(session) {}

  // NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE say what to do; DATA_LOSS for another digest than
  // was asked for.
  absl::StatusOr<OciManifest> Describe();
  absl::StatusOr<Address> BlobAddress(const OciLayer& layer) const;
  // The header that requests carry; empty: none.
  const std::string& authorization() const { return authorization_; }
  // Asks for a new token; PERMISSION_DENIED where none is given.
  absl::Status Renew();
  // What helps where a blob is refused.
  std::string DeniedAdvice() const;

 private:
  absl::StatusOr<std::string> Manifest(const std::string& reference);
  absl::StatusOr<Reply> Ask(Request request, size_t most);
  absl::Status Authorize(const Reply& refused, const Address& from);
  absl::StatusOr<std::string> Token(const OciChallenge& challenge, const Address& from);
  absl::Status Refusal(const Reply& reply) const;

  const OciSettings& settings_;
  const Source& source_;
  HttpSession& session_;
  std::string authorization_;
  std::optional<OciChallenge> challenge_;
  OciAccount account_;
};

}  // namespace quire::pull

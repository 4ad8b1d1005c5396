// Models of an MLflow tracking server: where the artifacts of a name are, and which of them make up
// a model.
//
// Pure except for MlflowServer, which asks the server. Whatever it says is hostile input: texts,
// counts, sizes and names are bounded and checked before use.
// Artifacts are behind the server itself (mlflow-artifacts:) or in a store that speaks S3 (s3:).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/pull/http_session.h"
#include "cli/pull/hub.h"
#include "cli/pull/source.h"
#include "common/config/schema.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxMlmodelBytes = 1u << 20;
inline constexpr size_t kMaxRunOutputs = 20;  // models of a run that are looked at

struct MlflowSettings {
  std::string tracking_uri;
  std::string token, user, password;  // an account goes before a token
};
// From MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME and
// MLFLOW_TRACKING_PASSWORD, as MLflow's own client reads them.
MlflowSettings MlflowSettingsFrom(const config::Environment& environment);

struct MlflowName {
  enum class Kind {
    kVersion,  // models:/NAME/VERSION
    kLatest,   // models:/NAME/latest
    kAlias,    // models:/NAME@ALIAS
    kLogged,   // models:/m-ID
    kRun,      // runs:/RUN/PATH
  };
  Kind kind = Kind::kVersion;
  std::string name;  // of the model; the run's or the logged model's ID
  std::string rest;  // VERSION, ALIAS or PATH
};
// Of a name after "mlflow:". INVALID_ARGUMENT says what would be right.
absl::StatusOr<MlflowName> ParseMlflowName(std::string_view text);
// "NAME:VERSION", "NAME:ALIAS", "NAME", "m-ID" or "PATH:RUN", of characters that a folder may have.
std::string ServedNameOf(const MlflowName& name);

// Where artifacts are.
struct ArtifactPlace {
  std::string uri;     // as the server gives it
  bool in_s3 = false;  // else behind the server
  std::string bucket;
  std::string path;  // of the server's artifacts, or the prefix in the bucket
};
// FAILED_PRECONDITION for a place that Quire does not read.
absl::StatusOr<ArtifactPlace> ParseArtifactUri(std::string_view uri, const Address& server);

// What the file MLmodel says of a folder.
struct Mlmodel {
  std::vector<std::string> flavors;
  std::string weights = {};  // the folder of the transformers flavour; empty: there is none
  bool has_adapter = false;
  std::string source = {};  // the model of the hub that it leads to, where it has no weights
};
absl::StatusOr<Mlmodel> ParseMlmodel(const std::string& text);

// A file of the artifacts, and its path in the folder of the model.
struct ArtifactFile {
  HubFile file;  // its path is the artifact's; its digest an ETag, or empty
  std::string path;
};
// The files of a model: of `mlmodel`, or of a plain folder where there is none (nullptr). NOT_FOUND
// and INVALID_ARGUMENT say what is lacking.
absl::StatusOr<std::vector<ArtifactFile>> PlanArtifacts(const std::vector<HubFile>& files,
                                                        const Mlmodel* mlmodel,
                                                        const Source& source);

// Owner: one thread, which it blocks.
class MlflowServer {
 public:
  // INVALID_ARGUMENT where the settings name no server.
  static absl::StatusOr<MlflowServer> Make(const MlflowSettings& settings, const Source& source,
                                           HttpSession& session);

  // NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE say what to do.
  absl::StatusOr<ArtifactPlace> Find(const MlflowName& name);
  // The files below `folder` of a place behind the server, not deeper; those that may be a model's
  // folders are listed too.
  absl::StatusOr<std::vector<HubFile>> List(const ArtifactPlace& place);
  Address FileAddress(const ArtifactPlace& place, std::string_view path) const;
  // Empty: none.
  const std::string& authorization() const { return authorization_; }
  const Address& address() const { return base_; }
  // The text of a small file; `authorized`: the server's own.
  absl::StatusOr<std::string> Text(const Address& address, bool authorized, size_t most);

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;

  MlflowServer(const Source& source, HttpSession& session) : source_(source), session_(session) {}
  absl::StatusOr<json::Value> Ask(std::string_view route, const Query& query);
  absl::StatusOr<std::string> VersionUri(const MlflowName& name);
  absl::StatusOr<std::string> LoggedUri(const std::string& id, std::string* name);
  absl::StatusOr<ArtifactPlace> FindInRun(const MlflowName& name);
  absl::Status ListFolder(const ArtifactPlace& place, const std::string& folder,
                          std::vector<HubFile>& files, std::vector<std::string>& folders);

  const Source& source_;
  HttpSession& session_;
  Address base_;
  std::string authorization_;
};

}  // namespace quire::pull

#include "cli/pull/mlflow.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

constexpr json::Limits kAnswerLimits = {
    .max_bytes = 8u << 20, .max_depth = 16, .max_values = 200'000};

// The member at the end of a path of objects; nullptr: there is none.
const json::Value* MemberAt(const json::Value& value, std::initializer_list<const char*> path) {
  const json::Value* at = &value;
  for (const char* name : path) {
    if (at == nullptr || !at->is_object()) return nullptr;
    at = json::Find(at->get_object(), name);
  }
  return at;
}

std::string MemberText(const json::Value& value, std::initializer_list<const char*> path) {
  const json::Value* at = MemberAt(value, path);
  return at != nullptr && at->is_string() ? std::string(json::View(at->get_string())) : "";
}

// The error's name in an answer, where it is one.
std::string ErrorCodeOf(const std::string& text) {
  const absl::StatusOr<json::Value> value = json::Parse(text, kAnswerLimits);
  if (!value.ok()) return "";
  const std::string code = MemberText(*value, {"error_code"});
  const bool plain = code.size() <= 60 && std::all_of(code.begin(), code.end(), [](char c) {
                       return (c >= 'A' && c <= 'Z') || c == '_';
                     });
  return plain ? code : "";
}

absl::Status TrackingRefusal(const Source& source, const Reply& reply, bool has_account) {
  const std::string code = ErrorCodeOf(reply.text);
  const std::string said = source.text + ": the tracking server answers with status " +
                           std::to_string(reply.status) + (code.empty() ? "" : " (" + code + ")");
  if (reply.status == 401 || reply.status == 403) {
    return absl::PermissionDeniedError(AbslView(
        said + (has_account ? ": this account may not read it"
                            : ": set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
                              "MLFLOW_TRACKING_TOKEN, of an account that may read it")));
  }
  // It says so of an alias that is not there.
  if (reply.status == 404 || code == "INVALID_PARAMETER_VALUE") {
    return absl::NotFoundError(
        AbslView(said + ": it has no such model, version, alias or run, or is no tracking server"));
  }
  return absl::UnavailableError(AbslView(
      said + (reply.status == 429 ? ": too many requests; wait a minute" : "; try again")));
}

}  // namespace

absl::StatusOr<MlflowServer> MlflowServer::Make(const MlflowSettings& settings,
                                                const Source& source, HttpSession& session) {
  std::string uri = settings.tracking_uri;
  while (uri.ends_with('/')) uri.pop_back();
  if (!uri.starts_with("http://") && !uri.starts_with("https://")) {
    return InvalidArgument(
        "MLFLOW_TRACKING_URI: must name the tracking server, as "
        "http://127.0.0.1:5000, " +
        (uri.empty() ? "is not set" : "is '" + uri.substr(0, 100) + "'"));
  }
  MlflowServer server(source, session);
  absl::StatusOr<Address> base = ParseAddress(uri);
  if (!base.ok()) return Annotate(base.status(), "MLFLOW_TRACKING_URI");
  server.base_ = *std::move(base);
  if (server.base_.target == "/") server.base_.target.clear();
  if (!settings.user.empty() && !settings.password.empty()) {
    server.authorization_ = "Basic " + absl::Base64Escape(settings.user + ":" + settings.password);
  } else if (!settings.token.empty()) {
    server.authorization_ = "Bearer " + settings.token;
  }
  return server;
}

absl::StatusOr<std::string> MlflowServer::Text(const Address& address, bool authorized,
                                               size_t most) {
  Request request;
  request.address = address;
  if (authorized && !authorization_.empty()) {
    request.headers.emplace_back("Authorization", authorization_);
  }
  std::string text;
  const TakeHead take_head = [&](const Reply&) -> TakeBytes {
    text.clear();
    return [&text, most](std::string_view bytes) -> absl::Status {
      if (text.size() + bytes.size() > most) {
        return absl::ResourceExhaustedError(
            AbslView("the answer is longer than " + std::to_string(most) + " bytes"));
      }
      text += bytes;
      return absl::OkStatus();
    };
  };
  absl::StatusOr<Reply> reply = session_.Follow(std::move(request), take_head);
  if (!reply.ok()) return Annotate(reply.status(), source_.text);
  reply->text = std::move(text);
  if (reply->status != 200) return TrackingRefusal(source_, *reply, !authorization_.empty());
  return std::move(reply->text);
}

absl::StatusOr<json::Value> MlflowServer::Ask(std::string_view route, const Query& query) {
  Address address = base_;
  address.target += "/api/2.0/" + std::string(route);
  char mark = '?';
  for (const auto& [name, value] : query) {
    address.target += std::exchange(mark, '&') + name + "=" + PercentEncoded(value, false);
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string text, Text(address, true, kAnswerLimits.max_bytes));
  absl::StatusOr<json::Value> value = json::Parse(text, kAnswerLimits);
  if (value.ok()) return value;
  return absl::UnavailableError(
      AbslView(source_.text + ": " + base_.Origin() + " answers without JSON; is it MLflow's?"));
}

absl::StatusOr<std::string> MlflowServer::LoggedUri(const std::string& id, std::string* name) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value,
                         Ask("mlflow/logged-models/" + PercentEncoded(id, false), {}));
  if (name != nullptr) *name = MemberText(value, {"model", "info", "name"});
  return MemberText(value, {"model", "info", "artifact_uri"});
}

absl::StatusOr<std::string> MlflowServer::VersionUri(const MlflowName& name) {
  std::string version = name.rest;
  if (name.kind == MlflowName::Kind::kAlias) {
    QUIRE_ASSIGN_OR_RETURN(
        const json::Value value,
        Ask("mlflow/registered-models/alias", {{"name", name.name}, {"alias", name.rest}}));
    version = MemberText(value, {"model_version", "version"});
  } else if (name.kind == MlflowName::Kind::kLatest) {
    QUIRE_ASSIGN_OR_RETURN(const json::Value value, Ask("mlflow/model-versions/search",
                                                        {{"filter", "name='" + name.name + "'"},
                                                         {"max_results", "1"},
                                                         {"order_by", "version_number DESC"}}));
    const json::Value* found = MemberAt(value, {"model_versions"});
    if (found == nullptr || !found->is_array() || found->get_array().empty()) {
      return absl::NotFoundError(AbslView(source_.text + ": the tracking server has no version"));
    }
    version = MemberText(found->get_array().front(), {"version"});
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, Ask("mlflow/model-versions/get-download-uri",
                                                      {{"name", name.name}, {"version", version}}));
  return MemberText(value, {"artifact_uri"});
}

// A run has its artifacts in a folder of its own, and the models that were logged in it elsewhere.
absl::StatusOr<ArtifactPlace> MlflowServer::FindInRun(const MlflowName& name) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value run, Ask("mlflow/runs/get", {{"run_id", name.name}}));
  std::string uri = MemberText(run, {"run", "info", "artifact_uri"});
  while (uri.ends_with('/')) uri.pop_back();
  const json::Value* outputs = MemberAt(run, {"run", "outputs", "model_outputs"});
  if (outputs != nullptr && outputs->is_array()) {
    const json::Array& models = outputs->get_array();
    for (size_t i = 0; i < std::min<size_t>(models.size(), kMaxRunOutputs); ++i) {
      std::string logged_name;
      const std::string id = MemberText(models[i], {"model_id"});
      QUIRE_ASSIGN_OR_RETURN(const std::string logged, LoggedUri(id, &logged_name));
      if (logged_name == name.rest) return ParseArtifactUri(logged, base_);
    }
  }
  return ParseArtifactUri(uri + "/" + name.rest, base_);
}

absl::StatusOr<ArtifactPlace> MlflowServer::Find(const MlflowName& name) {
  const auto find = [&]() -> absl::StatusOr<ArtifactPlace> {
    if (name.kind == MlflowName::Kind::kRun) return FindInRun(name);
    std::string uri;
    if (name.kind == MlflowName::Kind::kLogged) {
      QUIRE_ASSIGN_OR_RETURN(uri, LoggedUri(name.name, nullptr));
    } else {
      QUIRE_ASSIGN_OR_RETURN(uri, VersionUri(name));
    }
    if (uri.starts_with("models:/m-")) {
      QUIRE_ASSIGN_OR_RETURN(uri, LoggedUri(uri.substr(8), nullptr));
    }
    return ParseArtifactUri(uri, base_);
  };
  absl::StatusOr<ArtifactPlace> place = find();
  if (place.ok() || !absl::IsFailedPrecondition(place.status())) return place;
  return Annotate(place.status(), source_.text);
}

absl::Status MlflowServer::ListFolder(const ArtifactPlace& place, const std::string& folder,
                                      std::vector<HubFile>& files,
                                      std::vector<std::string>& folders) {
  const std::string path = folder.empty() ? place.path : place.path + "/" + folder;
  QUIRE_ASSIGN_OR_RETURN(const json::Value value,
                         Ask("mlflow-artifacts/artifacts", {{"path", path}}));
  const json::Value* list = MemberAt(value, {"files"});
  if (list == nullptr) return absl::OkStatus();  // of a folder that is not there, too
  QUIRE_ASSIGN_OR_RETURN(const json::Array* entries, json::AsArray(*list, "files"));
  for (const json::Value& entry : *entries) {
    const std::string name = MemberText(entry, {"path"});
    QUIRE_RETURN_IF_ERROR(CheckFileName(name));
    if (name.find('/') != std::string::npos) {
      return InvalidArgument("files: a list of one folder has a name with a '/'");
    }
    if (files.size() + folders.size() >= kMaxFiles) {
      return absl::ResourceExhaustedError("files: are more than 10,000");
    }
    const std::string below = folder.empty() ? name : folder + "/" + name;
    const json::Value* is_folder = MemberAt(entry, {"is_dir"});
    if (is_folder != nullptr && is_folder->is_bool() && is_folder->get_bool()) {
      folders.push_back(below);
      continue;
    }
    HubFile file;
    file.path = below;
    if (const json::Value* size = MemberAt(entry, {"file_size"})) {  // an empty file has none
      QUIRE_ASSIGN_OR_RETURN(file.size, json::AsInt(*size, "file_size"));
    }
    if (file.size < 0 || file.size > kMaxFileBytes) {
      return InvalidArgument("file_size: must be 0 to 4 TiB, is " + std::to_string(file.size));
    }
    files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HubFile>> MlflowServer::List(const ArtifactPlace& place) {
  std::vector<HubFile> files;
  std::vector<std::string> folders, no_more;
  const auto list = [&](const std::string& folder, std::vector<std::string>& below) {
    return Annotate(ListFolder(place, folder, files, below), source_.text);
  };
  QUIRE_RETURN_IF_ERROR(list("", folders));
  const bool has_mlmodel = std::any_of(files.begin(), files.end(),
                                       [](const HubFile& file) { return file.path == "MLmodel"; });
  if (!has_mlmodel) return files;
  // Where the transformers flavour has its weights, and its tokenizer.
  for (const std::string& folder : folders) {
    if (folder == "components") {
      QUIRE_RETURN_IF_ERROR(list("components/tokenizer", no_more));
    } else if (folder == "model") {
      QUIRE_RETURN_IF_ERROR(list(folder, no_more));
    }
  }
  return files;
}

Address MlflowServer::FileAddress(const ArtifactPlace& place, std::string_view path) const {
  Address address = base_;
  address.target += "/api/2.0/mlflow-artifacts/artifacts/" +
                    PercentEncoded(place.path + "/" + std::string(path), true);
  return address;
}

}  // namespace quire::pull

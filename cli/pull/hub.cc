#include "cli/pull/hub.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/ascii.h"
#include "common/json/json.h"

namespace quire::pull {
namespace {

constexpr json::Limits kJsonLimits = {
    .max_bytes = kMaxTextBytes, .max_depth = 16, .max_values = 1'000'000};

bool IsHex(std::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
           return HexDigit(c) >= 0 && ToLower(c) == c;
         });
}

bool IsOn(const std::string& value) {
  return EqualsIgnoringCase(value, "1") || EqualsIgnoringCase(value, "true") ||
         EqualsIgnoringCase(value, "yes") || EqualsIgnoringCase(value, "on");
}

std::string FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line(4096, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return std::string(Trim(line.substr(0, line.find('\n')), " \t\r"));
}

Request RequestTo(const HubSettings& settings, const Address& address) {
  Request request;
  request.address = address;
  request.headers.emplace_back("Accept", "application/json");
  if (!settings.token.empty()) {
    request.headers.emplace_back("Authorization", "Bearer " + settings.token);
  }
  return request;
}

absl::Status RefusalOf(const HubSettings& settings, const Source& source, const Reply& reply) {
  const std::string what = "hf:" + source.repo + ": ";
  const std::string at = settings.endpoint + "/" + source.repo;
  if (reply.status == 401 || reply.status == 403) {
    const bool gated = reply.Header("x-error-code") == "GatedRepo";
    // Without a token, the hub answers so for what does not exist, too.
    return absl::PermissionDeniedError(AbslView(
        what +
        (gated ? "it is gated: accept its terms at " + at + ", then "
               : "it is private, gated or absent: look at " + at + "; where it is there, ") +
        (settings.token.empty() ? "set HF_TOKEN to a token of your account"
                                : "use an account's HF_TOKEN that may read it")));
  }
  if (reply.status == 404) {
    const bool revision = reply.Header("x-error-code") == "RevisionNotFound";
    return absl::NotFoundError(
        AbslView(what + (revision ? "has no revision '" + source.revision + "'; main is its default"
                                  : "is not at " + at)));
  }
  return absl::UnavailableError(AbslView(what + settings.endpoint + " answers with status " +
                                         std::to_string(reply.status) +
                                         (reply.status == 429 ? ": too many requests; wait a "
                                                                "minute, or set HF_TOKEN"
                                                              : "; try again")));
}

absl::StatusOr<HubFile> FileOf(const json::Value& entry) {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(entry, "tree"));
  HubFile file;
  const json::Value* type = json::Find(*object, "type");
  const json::Value* path = json::Find(*object, "path");
  const json::Value* size = json::Find(*object, "size");
  const json::Value* oid = json::Find(*object, "oid");
  if (type != nullptr && type->is_string() && json::View(type->get_string()) != "file") return file;
  if (path == nullptr || size == nullptr || oid == nullptr) {
    return InvalidArgument("tree: a file has no path, size or oid");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, json::AsString(*path, "path"));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view git, json::AsString(*oid, "oid"));
  QUIRE_ASSIGN_OR_RETURN(file.size, json::AsInt(*size, "size"));
  file.digest_kind = DigestKind::kGitBlob;
  file.digest = git;
  if (const json::Value* lfs = json::Find(*object, "lfs")) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* large, json::AsObject(*lfs, "lfs"));
    const json::Value* sha = json::Find(*large, "oid");
    const json::Value* bytes = json::Find(*large, "size");
    if (sha == nullptr || bytes == nullptr) return InvalidArgument("lfs: has no oid or size");
    QUIRE_ASSIGN_OR_RETURN(const std::string_view digest, json::AsString(*sha, "lfs.oid"));
    QUIRE_ASSIGN_OR_RETURN(file.size, json::AsInt(*bytes, "lfs.size"));
    file.digest_kind = DigestKind::kSha256;
    file.digest = digest.starts_with("sha256:") ? digest.substr(7) : digest;
  }
  QUIRE_RETURN_IF_ERROR(CheckFileName(name));
  if (!IsHex(file.digest, file.digest_kind == DigestKind::kSha256 ? 64 : 40)) {
    return InvalidArgument("oid: is no digest");
  }
  if (file.size < 0 || file.size > kMaxFileBytes) {
    return InvalidArgument("size: must be 0 to 4 TiB, is " + std::to_string(file.size));
  }
  file.path = name;
  return file;
}

absl::Status AddFiles(const std::string& text, HubSnapshot& snapshot) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text, kJsonLimits));
  QUIRE_ASSIGN_OR_RETURN(const json::Array* entries, json::AsArray(value, "tree"));
  for (const json::Value& entry : *entries) {
    QUIRE_ASSIGN_OR_RETURN(HubFile file, FileOf(entry));
    if (file.path.empty()) continue;  // a folder
    if (snapshot.files.size() >= kMaxFiles) {
      return absl::ResourceExhaustedError("tree: has more than 10,000 files");
    }
    snapshot.files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

// The address after rel="next" in a Link header; empty: there is none.
std::string NextOf(std::string_view link) {
  if (link.find("rel=\"next\"") == std::string_view::npos) return "";
  const size_t begin = link.find('<'), end = link.find('>');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return "";
  return std::string(link.substr(begin + 1, end - begin - 1));
}

// As a branch or tag is written into an address: a slash in it is no border.
std::string RevisionPath(const Source& source) { return PercentEncoded(source.revision, false); }

}  // namespace

absl::StatusOr<HubSettings> HubSettingsFrom(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  HubSettings settings;
  if (const std::string given = value("HF_ENDPOINT"); !given.empty()) settings.endpoint = given;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const absl::StatusOr<Address> address = ParseAddress(settings.endpoint);
  if (!address.ok()) return Annotate(address.status(), "HF_ENDPOINT");
  std::string home = value("HF_HOME");
  if (home.empty()) {
    std::string caches = value("XDG_CACHE_HOME");
    if (caches.empty()) caches = value("HOME") + "/.cache";
    home = caches + "/huggingface";
  }
  settings.cache = value("HF_HUB_CACHE");
  if (settings.cache.empty()) settings.cache = home + "/hub";
  settings.offline = IsOn(value("HF_HUB_OFFLINE")) || IsOn(value("TRANSFORMERS_OFFLINE"));
  settings.token = value("HF_TOKEN");
  if (settings.token.empty()) {
    const std::string path = value("HF_TOKEN_PATH");
    settings.token = FirstLineOf(path.empty() ? home + "/token" : path);
  }
  if (settings.token.find_first_of("\r\n") != std::string::npos) {
    return InvalidArgument("HF_TOKEN: must be one line");
  }
  return settings;
}

absl::StatusOr<HubSnapshot> Describe(const HubSettings& settings, const Source& source,
                                     HttpSession& session) {
  QUIRE_ASSIGN_OR_RETURN(Address address, ParseAddress(settings.endpoint));
  const std::string base = address.target == "/" ? "" : address.target;
  const std::string api = base + "/api/models/" + source.repo;
  address.target = api + "/revision/" + RevisionPath(source);
  QUIRE_ASSIGN_OR_RETURN(const Reply about, session.Follow(RequestTo(settings, address)));
  if (about.status != 200) return RefusalOf(settings, source, about);
  HubSnapshot snapshot;
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(about.text, kJsonLimits));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "model"));
  const json::Value* sha = json::Find(*object, "sha");
  if (sha != nullptr && sha->is_string()) snapshot.commit = json::View(sha->get_string());
  if (!IsHex(snapshot.commit, 40)) {
    return absl::UnavailableError(
        AbslView(settings.endpoint + ": names no commit of " + source.repo + "; is it a hub?"));
  }
  address.target = api + "/tree/" + snapshot.commit + "?recursive=true";
  for (size_t page = 0; page < kMaxPages; ++page) {
    QUIRE_ASSIGN_OR_RETURN(const Reply tree, session.Follow(RequestTo(settings, address)));
    if (tree.status != 200) return RefusalOf(settings, source, tree);
    QUIRE_RETURN_IF_ERROR(Annotate(AddFiles(tree.text, snapshot), "hf:" + source.repo));
    const std::string next = NextOf(tree.Header("link"));
    if (next.empty()) return snapshot;
    QUIRE_ASSIGN_OR_RETURN(const Address further, ParseLocation(address, next));
    if (further.Origin() != address.Origin()) {
      return absl::UnavailableError(AbslView("hf:" + source.repo + ": its list goes on elsewhere"));
    }
    address = further;
  }
  return absl::ResourceExhaustedError(AbslView("hf:" + source.repo + ": its list has no end"));
}

Address FileAddress(const Address& endpoint, const Source& source, const std::string& commit,
                    std::string_view path) {
  Address address = endpoint;
  const std::string base = endpoint.target == "/" ? "" : endpoint.target;
  address.target =
      base + "/" + source.repo + "/resolve/" + commit + "/" + PercentEncoded(path, true);
  return address;
}

}  // namespace quire::pull

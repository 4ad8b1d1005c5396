#include "cli/pull/oci.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/escaping.h"
#include "cli/pull/digest.h"
#include "cli/pull/hub.h"
#include "common/ascii.h"
#include "common/json/json.h"

namespace quire::pull {
namespace {

constexpr char kAccepted[] =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json";
constexpr json::Limits kManifestLimits = {
    .max_bytes = kMaxManifestBytes, .max_depth = 16, .max_values = 100'000};

#if defined(__aarch64__)
constexpr std::string_view kArchitecture = "arm64";
#else
constexpr std::string_view kArchitecture = "amd64";
#endif

std::string RegistryOf(const Source& source) {
  return source.repo.substr(0, source.repo.find('/'));
}
std::string RepositoryOf(const Source& source) {
  return source.repo.substr(source.repo.find('/') + 1);
}

// A member that is a text, or nothing.
std::string TextAt(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  return value != nullptr && value->is_string() ? std::string(json::View(value->get_string())) : "";
}

absl::StatusOr<std::string> HexOfDigest(std::string_view digest) {
  if (IsOciDigest(digest)) return std::string(digest.substr(7));
  return InvalidArgument("digest: must be sha256: and 64 hexadecimal digits");
}

absl::StatusOr<const json::Object*> ManifestObject(const absl::StatusOr<json::Value>& value) {
  if (!value.ok()) return Annotate(value.status(), "manifest");
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(*value, "manifest"));
  const json::Value* version = json::Find(*object, "schemaVersion");
  const absl::StatusOr<int64_t> number =
      version == nullptr ? absl::StatusOr<int64_t>(0) : json::AsInt(*version, "schemaVersion");
  if (number.ok() && *number == 2) return object;
  return InvalidArgument("schemaVersion: must be 2; the answer is no manifest that is served");
}

absl::StatusOr<OciLayer> LayerOf(const json::Value& value) {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "layer"));
  OciLayer layer;
  layer.media_type = TextAt(*object, "mediaType");
  QUIRE_ASSIGN_OR_RETURN(layer.digest, HexOfDigest(TextAt(*object, "digest")));
  const json::Value* size = json::Find(*object, "size");
  if (size == nullptr) return InvalidArgument("size: is missing");
  QUIRE_ASSIGN_OR_RETURN(layer.size, json::AsInt(*size, "size"));
  if (layer.size < 0 || layer.size > kMaxFileBytes) {
    return InvalidArgument("size: must be 0 to 4 TiB, is " + std::to_string(layer.size));
  }
  if (const json::Value* notes = json::Find(*object, "annotations")) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* texts, json::AsObject(*notes, "annotations"));
    for (const char* name :
         {"org.cncf.model.filepath", "org.cnai.model.filepath", "org.opencontainers.image.title"}) {
      if (layer.path.empty()) layer.path = TextAt(*texts, name);
    }
  }
  return layer;
}

// A manifest that an index lists, as far as it matters here.
struct IndexEntry {
  std::string digest;
  bool is_model = false;
  bool is_for_here = false;
};

absl::StatusOr<IndexEntry> EntryOf(const json::Value& value) {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "manifest"));
  IndexEntry entry;
  QUIRE_ASSIGN_OR_RETURN(entry.digest, HexOfDigest(TextAt(*object, "digest")));
  entry.is_model = TextAt(*object, "artifactType").find("model") != std::string::npos;
  const json::Value* platform = json::Find(*object, "platform");
  if (platform == nullptr || !platform->is_object()) {
    entry.is_for_here = true;
    return entry;
  }
  const std::string os = TextAt(platform->get_object(), "os");
  const std::string architecture = TextAt(platform->get_object(), "architecture");
  entry.is_for_here =
      (os.empty() || os == "linux") && (architecture.empty() || architecture == kArchitecture);
  return entry;
}

// "name=value" or name="value", which it removes from the start of `text`.
std::optional<std::pair<std::string, std::string>> TakeParameter(std::string_view& text) {
  text = Trim(text, " \t,");
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string name(Trim(text.substr(0, equals)));
  text.remove_prefix(equals + 1);
  std::string value;
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(','), text.size());
    value = Trim(text.substr(0, end));
    text.remove_prefix(end);
    return std::pair(name, value);
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return std::pair(name, value);
    }
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    value += text[i];
  }
  return std::nullopt;  // the quote has no end
}

// Keys of the file name a host, or an address of it.
bool IsKeyOf(std::string_view key, std::string_view registry) {
  if (const size_t scheme = key.find("://"); scheme != std::string_view::npos) {
    key.remove_prefix(scheme + 3);
  }
  key = key.substr(0, key.find('/'));
  if (registry == "docker.io") return key == "index.docker.io" || key == "docker.io";
  return key == registry;
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

std::string FileText(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace

OciSettings OciSettingsFrom(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::string folder = value("DOCKER_CONFIG");
  return {(folder.empty() ? value("HOME") + "/.docker" : folder) + "/config.json"};
}

absl::StatusOr<OciAccount> AccountIn(std::string_view text, std::string_view registry) {
  OciAccount account;
  if (text.empty()) return account;
  QUIRE_ASSIGN_OR_RETURN(
      const json::Value value,
      json::Parse(text,
                  {.max_bytes = kMaxDockerConfigBytes, .max_depth = 16, .max_values = 100'000}));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* file, json::AsObject(value, "the file"));
  account.helper = TextAt(*file, "credsStore");
  if (const json::Value* helpers = json::Find(*file, "credHelpers");
      helpers && helpers->is_object()) {
    for (const auto& member : helpers->get_object()) {
      if (!IsKeyOf({member.key().data(), member.key().size()}, registry)) continue;
      account.helper = TextAt(helpers->get_object(), {member.key().data(), member.key().size()});
    }
  }
  const json::Value* accounts = json::Find(*file, "auths");
  if (accounts == nullptr || !accounts->is_object()) return account;
  for (const auto& member : accounts->get_object()) {
    const std::string_view key(member.key().data(), member.key().size());
    if (!IsKeyOf(key, registry) || !member.value().is_object()) continue;
    const json::Object& entry = member.value().get_object();
    account.user = TextAt(entry, "username");
    account.password = TextAt(entry, "password");
    std::string pair;
    if (const std::string packed = TextAt(entry, "auth"); !packed.empty()) {
      const bool plain = absl::Base64Unescape(AbslView(packed), &pair);
      const size_t colon = pair.find(':');
      if (!plain || colon == std::string::npos) {
        return InvalidArgument("auths: '" + std::string(key.substr(0, 100)) +
                               "' has an auth that is no USER:PASSWORD in base64");
      }
      account.user = pair.substr(0, colon);
      account.password = pair.substr(colon + 1);
      while (account.password.ends_with('\0')) account.password.pop_back();
    }
    if (account.user.empty() && !TextAt(entry, "identitytoken").empty()) {
      account.helper = "identitytoken";
    }
  }
  return account;
}

std::optional<OciChallenge> ParseChallenge(std::string_view header) {
  if (header.size() > kMaxTokenBytes) return std::nullopt;
  const size_t blank = std::min(header.find(' '), header.size());
  const std::string_view scheme = header.substr(0, blank);
  OciChallenge challenge;
  if (EqualsIgnoringCase(scheme, "basic")) return challenge;
  if (!EqualsIgnoringCase(scheme, "bearer")) return std::nullopt;
  challenge.bearer = true;
  std::string_view rest = header.substr(blank);
  while (const auto parameter = TakeParameter(rest)) {
    if (EqualsIgnoringCase(parameter->first, "realm")) challenge.realm = parameter->second;
    if (EqualsIgnoringCase(parameter->first, "service")) challenge.service = parameter->second;
  }
  if (challenge.realm.empty()) return std::nullopt;
  return challenge;
}

absl::StatusOr<OciManifest> ParseManifest(std::string_view text) {
  const absl::StatusOr<json::Value> value = json::Parse(text, kManifestLimits);
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, ManifestObject(value));
  OciManifest manifest;
  manifest.digest = Sha256Hex(text);
  if (const json::Value* config = json::Find(*object, "config"); config && config->is_object()) {
    manifest.config_type = TextAt(config->get_object(), "mediaType");
  }
  const json::Value* layers = json::Find(*object, "layers");
  if (layers == nullptr) return InvalidArgument("layers: are missing");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* entries, json::AsArray(*layers, "layers"));
  if (entries->size() > kMaxOciLayers) {
    return absl::ResourceExhaustedError("layers: are more than 1,000");
  }
  for (const json::Value& entry : *entries) {
    absl::StatusOr<OciLayer> layer = LayerOf(entry);
    if (!layer.ok()) {
      return Annotate(layer.status(), "layers[" + std::to_string(manifest.layers.size()) + "]");
    }
    manifest.layers.push_back(*std::move(layer));
  }
  return manifest;
}

absl::StatusOr<std::optional<std::string>> ChooseInIndex(std::string_view text) {
  const absl::StatusOr<json::Value> value = json::Parse(text, kManifestLimits);
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, ManifestObject(value));
  const json::Value* manifests = json::Find(*object, "manifests");
  if (manifests == nullptr) return std::nullopt;
  QUIRE_ASSIGN_OR_RETURN(const json::Array* entries, json::AsArray(*manifests, "manifests"));
  if (entries->size() > kMaxOciLayers) {
    return absl::ResourceExhaustedError("manifests: are more than 1,000");
  }
  std::vector<IndexEntry> found;
  for (const json::Value& one : *entries) {
    QUIRE_ASSIGN_OR_RETURN(IndexEntry entry, EntryOf(one));
    if (entry.is_for_here) found.push_back(std::move(entry));
  }
  // A model goes before the images of the same index.
  std::stable_partition(found.begin(), found.end(), [](const auto& one) { return one.is_model; });
  if (found.empty()) {
    return absl::NotFoundError(
        AbslView("the index has no model, and nothing for linux/" + std::string(kArchitecture)));
  }
  return found.front().digest;
}

absl::StatusOr<Reply> OciRegistry::Ask(Request request, size_t most) {
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
  QUIRE_ASSIGN_OR_RETURN(Reply reply, session_.Follow(std::move(request), take_head));
  reply.text = std::move(text);
  return reply;
}

absl::Status OciRegistry::Refusal(const Reply& reply) const {
  const std::string said = source_.text + ": " + RegistryOf(source_) + " answers with status " +
                           std::to_string(reply.status);
  switch (reply.status) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(AbslView(said + ": " + DeniedAdvice()));
    case 404:
      return absl::NotFoundError(AbslView(said + ": it has no such repository, tag or digest"));
    case 429:
      return absl::UnavailableError(
          AbslView(said + ": too many requests; wait a minute, or log in to it"));
    default:
      return absl::UnavailableError(AbslView(said + "; try again"));
  }
}

std::string OciRegistry::DeniedAdvice() const {
  if (!account_.user.empty()) {
    return "the account '" + account_.user + "' of " + settings_.docker_config +
           " may not read it, or it is not there";
  }
  if (account_.helper == "identitytoken") {
    return settings_.docker_config +
           " has an identity token for it, which Quire does not use; "
           "give its auths a USER:PASSWORD in base64";
  }
  if (!account_.helper.empty()) {
    return settings_.docker_config + " leaves its account to the helper '" + account_.helper +
           "', which Quire does not run; write it to a file of its own, with DOCKER_CONFIG=FOLDER "
           "docker login";
  }
  return "it is private, or not there; `docker login " + RegistryOf(source_) +
         "` writes an account to " + settings_.docker_config + ", which Quire reads";
}

absl::StatusOr<std::string> OciRegistry::Token(const OciChallenge& challenge, const Address& from) {
  Request request;
  absl::StatusOr<Address> realm = ParseLocation(from, challenge.realm);
  if (!realm.ok()) return Annotate(realm.status(), RegistryOf(source_) + ": its realm of tokens");
  request.address = *realm;
  std::string& target = request.address.target;
  target += target.find('?') == std::string::npos ? '?' : '&';
  target += "service=" + PercentEncoded(challenge.service, false) +
            "&scope=" + PercentEncoded("repository:" + RepositoryOf(source_) + ":pull", false);
  if (!account_.user.empty()) {
    request.headers.emplace_back(
        "Authorization", "Basic " + absl::Base64Escape(account_.user + ":" + account_.password));
  }
  QUIRE_ASSIGN_OR_RETURN(const Reply reply, Ask(request, kMaxTokenBytes));
  if (reply.status != 200) return Refusal(reply);
  const absl::StatusOr<json::Value> value = json::Parse(reply.text, {.max_bytes = kMaxTokenBytes});
  std::string token;
  if (value.ok() && value->is_object()) {
    token = TextAt(value->get_object(), "token");
    if (token.empty()) token = TextAt(value->get_object(), "access_token");
  }
  if (!token.empty() && IsPrintable(token)) return token;
  return absl::UnavailableError(
      AbslView(RegistryOf(source_) + ": its realm of tokens answers without a token"));
}

absl::Status OciRegistry::Authorize(const Reply& refused, const Address& from) {
  const std::string text = FileText(settings_.docker_config, kMaxDockerConfigBytes);
  absl::StatusOr<OciAccount> account = AccountIn(text, RegistryOf(source_));
  if (!account.ok()) return Annotate(account.status(), settings_.docker_config);
  account_ = *std::move(account);
  challenge_ = ParseChallenge(refused.Header("www-authenticate"));
  if (!challenge_) return Refusal(refused);
  if (challenge_->bearer) {
    QUIRE_ASSIGN_OR_RETURN(const std::string token, Token(*challenge_, from));
    authorization_ = "Bearer " + token;
    return absl::OkStatus();
  }
  if (account_.user.empty()) return Refusal(refused);
  authorization_ = "Basic " + absl::Base64Escape(account_.user + ":" + account_.password);
  return absl::OkStatus();
}

absl::Status OciRegistry::Renew() {
  if (!challenge_ || !challenge_->bearer) {
    return absl::PermissionDeniedError(AbslView(source_.text + ": " + DeniedAdvice()));
  }
  QUIRE_ASSIGN_OR_RETURN(const Address from, ParseAddress(source_.url));
  QUIRE_ASSIGN_OR_RETURN(const std::string token, Token(*challenge_, from));
  authorization_ = "Bearer " + token;
  return absl::OkStatus();
}

absl::StatusOr<std::string> OciRegistry::Manifest(const std::string& reference) {
  Request request;
  QUIRE_ASSIGN_OR_RETURN(request.address, ParseAddress(source_.url));
  request.address.target = "/v2/" + RepositoryOf(source_) + "/manifests/" + reference;
  const auto ask = [&]() -> absl::StatusOr<Reply> {
    Request now = request;
    now.headers.emplace_back("Accept", kAccepted);
    if (!authorization_.empty()) now.headers.emplace_back("Authorization", authorization_);
    absl::StatusOr<Reply> reply = Ask(now, kMaxManifestBytes);
    if (!reply.ok()) return Annotate(reply.status(), source_.text);
    return reply;
  };
  QUIRE_ASSIGN_OR_RETURN(Reply reply, ask());
  if (reply.status == 401 && authorization_.empty()) {
    QUIRE_RETURN_IF_ERROR(Authorize(reply, request.address));
    QUIRE_ASSIGN_OR_RETURN(reply, ask());
  }
  if (reply.status != 200) return Refusal(reply);
  // What a digest names is held to it; a tag's is held to what the registry says it is.
  const std::string promised(IsOciDigest(reference) ? std::string_view(reference)
                                                    : reply.Header("docker-content-digest"));
  const std::string found = "sha256:" + Sha256Hex(reply.text);
  if (IsOciDigest(promised) && promised != found) {
    return absl::DataLossError(AbslView(source_.text + ": its manifest has the digest " + found +
                                        ", not the " + promised + " that was promised"));
  }
  return reply.text;
}

absl::StatusOr<OciManifest> OciRegistry::Describe() {
  QUIRE_ASSIGN_OR_RETURN(std::string text, Manifest(source_.revision));
  absl::StatusOr<std::optional<std::string>> chosen = ChooseInIndex(text);
  if (!chosen.ok()) return Annotate(chosen.status(), source_.text);
  if (*chosen) {
    QUIRE_ASSIGN_OR_RETURN(text, Manifest("sha256:" + **chosen));
  }
  absl::StatusOr<OciManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), source_.text);
  return manifest;
}

absl::StatusOr<Address> OciRegistry::BlobAddress(const OciLayer& layer) const {
  QUIRE_ASSIGN_OR_RETURN(Address address, ParseAddress(source_.url));
  address.target = "/v2/" + RepositoryOf(source_) + "/blobs/sha256:" + layer.digest;
  return address;
}

}  // namespace quire::pull

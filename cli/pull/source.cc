#include "cli/pull/source.h"

#include <algorithm>

#include "cli/pull/digest.h"
#include "cli/pull/http_session.h"
#include "cli/pull/mlflow.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// A part of a repository's name, as the hub allows them.
bool IsRepoPart(std::string_view part) {
  return !part.empty() && part.size() <= 96 && std::all_of(part.begin(), part.end(), IsPlain) &&
         part.front() != '.' && part.front() != '-' && part.find("..") == std::string_view::npos &&
         part.find("--") == std::string_view::npos;
}

// Branches and tags may have slashes, as "refs/pr/3".
bool IsRevision(std::string_view revision) {
  return !revision.empty() && revision.size() <= 128 && CheckFileName(revision).ok();
}

absl::StatusOr<Source> HubSource(std::string_view name, std::string_view rest) {
  const auto wrong = [&](const std::string& what) {
    return InvalidArgument("'" + std::string(name) + "': " + what +
                           "; write hf:ORG/REPO[:REVISION][/FILE.gguf], as "
                           "hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf");
  };
  Source source;
  source.kind = Kind::kHub;
  source.text = name;
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return wrong("names no repository");
  const size_t end = rest.find_first_of(":/", slash + 1);
  source.repo = rest.substr(0, end);
  if (!IsRepoPart(rest.substr(0, slash)) ||
      !IsRepoPart(std::string_view(source.repo).substr(slash + 1))) {
    return wrong("ORG and REPO are letters, digits, '-', '_' and '.'");
  }
  std::string_view tail = end == std::string_view::npos ? "" : rest.substr(end);
  if (EndsWithIgnoringCase(tail, ".gguf")) {
    // The slashes of refs/pr/3 are the revision's own.
    size_t file = tail.find('/');
    for (int own = 0; tail.starts_with(":refs/") && own < 2 && file < tail.size(); ++own) {
      file = tail.find('/', file + 1);
    }
    if (file == std::string_view::npos) return wrong("REVISION comes before a '/' and the file");
    source.file = tail.substr(file + 1);
    tail = tail.substr(0, file);
    if (!CheckFileName(source.file).ok()) return wrong("FILE is no name inside the repository");
  }
  if (tail.starts_with('/')) return wrong("FILE ends in .gguf");
  if (tail.starts_with(':')) source.revision = tail.substr(1);
  if (!IsRevision(source.revision)) return wrong("REVISION is no branch, tag or commit");
  return source;
}

absl::StatusOr<Source> WebSource(std::string_view name) {
  Source source;
  source.kind = Kind::kWeb;
  source.text = name;
  const size_t hash = name.find('#');
  source.url = name.substr(0, hash);
  if (hash != std::string_view::npos) {
    const std::string_view fragment = name.substr(hash + 1);
    if (fragment.starts_with("sha256=")) source.sha256 = fragment.substr(7);
    if (source.sha256.size() != 64 ||
        !std::all_of(source.sha256.begin(), source.sha256.end(),
                     [](char c) { return HexDigit(c) >= 0 && ToLower(c) == c; })) {
      return InvalidArgument("'" + std::string(name) +
                             "': what follows # is sha256= and 64 digits, in lower case");
    }
  }
  const size_t query = source.url.find('?');
  const std::string path = source.url.substr(0, query);
  source.file = path.substr(path.rfind('/') + 1);
  if (!EndsWithIgnoringCase(source.file, ".gguf") || !CheckFileName(source.file).ok() ||
      source.file.front() == '.') {
    return InvalidArgument("'" + std::string(name) +
                           "': an address leads to one .gguf file; a folder of files comes from "
                           "a hub, as hf:ORG/REPO");
  }
  return source;
}

absl::StatusOr<Source> S3Source(std::string_view name) {
  Source source;
  source.kind = Kind::kS3;
  source.text = name;
  std::string_view rest = name.substr(5);
  source.repo = rest.substr(0, rest.find('/'));
  rest.remove_prefix(source.repo.size());
  while (rest.starts_with('/')) rest.remove_prefix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  source.file = rest;
  const bool bucket = source.repo.size() >= 3 && source.repo.size() <= 63 &&
                      std::all_of(source.repo.begin(), source.repo.end(), IsPlain) &&
                      source.repo.front() != '.' && source.repo.front() != '-';
  if (bucket && (source.file.empty() || CheckFileName(source.file).ok())) return source;
  return InvalidArgument("'" + std::string(name) +
                         "': write s3://BUCKET/PREFIX or s3://BUCKET/PREFIX/FILE.gguf");
}

// Registries take plain HTTP on the machine itself alone, as Docker has it.
std::string OriginOfRegistry(std::string_view host) {
  const std::string_view name = host.substr(0, host.rfind(':'));
  const bool loopback =
      name == "localhost" ||
      (name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos);
  if (host == "docker.io") host = "registry-1.docker.io";
  return (loopback ? "http://" : "https://") + std::string(host);
}

bool IsRegistryRepo(std::string_view repo) {
  if (repo.empty() || repo.size() > 255) return false;
  const auto is_plain = [](char c) { return IsPlain(c) && ToLower(c) == c; };
  const auto is_mark = [](char c) { return c == '.' || c == '-' || c == '_'; };
  for (size_t start = 0; start <= repo.size();) {
    const std::string_view part = repo.substr(start, repo.find('/', start) - start);
    if (part.empty() || !std::all_of(part.begin(), part.end(), is_plain) || is_mark(part.front()) ||
        is_mark(part.back()) || part.find("..") != std::string_view::npos) {
      return false;
    }
    start += part.size() + 1;
  }
  return true;
}

absl::StatusOr<Source> OciSource(std::string_view name) {
  const auto wrong = [&](const std::string& what) {
    return InvalidArgument("'" + std::string(name) + "': " + what +
                           "; write oci://REGISTRY/REPO[:TAG], as oci://ghcr.io/org/model:v1");
  };
  Source source;
  source.kind = Kind::kOci;
  source.text = name;
  source.revision = "latest";
  std::string_view rest = name.substr(6);
  const std::string_view host = rest.substr(0, rest.find('/'));
  rest.remove_prefix(std::min(rest.size(), host.size() + 1));
  const bool is_host = host == "localhost" || host.find_first_of(".:") != std::string_view::npos;
  const bool is_plain =
      std::all_of(host.begin(), host.end(), [](char c) { return IsPlain(c) || c == ':'; });
  const size_t colon_at = host.find(':');
  const std::string_view port =
      colon_at == std::string_view::npos ? "443" : host.substr(colon_at + 1);
  const bool has_port = !port.empty() && port.size() <= 5 &&
                        port.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_host || !is_plain || !has_port || host.front() == '.' || host.front() == ':') {
    return wrong("REGISTRY is a host, as ghcr.io or localhost:5000");
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    source.revision = rest.substr(at + 1);
    if (!IsOciDigest(source.revision)) return wrong("a digest is sha256: and 64 digits");
    rest = rest.substr(0, at);
  }
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    const std::string_view tag = rest.substr(colon + 1);
    if (tag.empty() || tag.size() > 128 || tag.front() == '.' || tag.front() == '-' ||
        !std::all_of(tag.begin(), tag.end(), IsPlain)) {
      return wrong("TAG has 1 to 128 letters, digits, '-', '_' and '.'");
    }
    if (source.revision == "latest") source.revision = tag;
    rest = rest.substr(0, colon);
  }
  if (!IsRegistryRepo(rest)) return wrong("REPO has small letters, digits, '-', '_', '.' and '/'");
  const bool official = host == "docker.io" && rest.find('/') == std::string_view::npos;
  source.repo = std::string(host) + (official ? "/library/" : "/") + std::string(rest);
  source.url = OriginOfRegistry(host);
  const absl::StatusOr<Address> origin = ParseAddress(source.url);
  if (!origin.ok()) return wrong("REGISTRY is no host");
  source.url = origin->Origin();
  return source;
}

// A name that a folder of the store may have, of a text that may be longer.
std::string ShortName(const std::string& name) {
  constexpr size_t kMost = 100, kDigits = 12;
  if (name.size() <= kMost) return name;
  return name.substr(0, kMost - kDigits - 1) + "-" + Sha256Hex(name).substr(0, kDigits);
}

absl::StatusOr<Source> MlflowSource(std::string_view name) {
  QUIRE_ASSIGN_OR_RETURN(const MlflowName parsed, ParseMlflowName(name.substr(7)));
  Source source;
  source.kind = Kind::kMlflow;
  source.text = name;
  source.repo = ShortName(ServedNameOf(parsed));
  return source;
}

}  // namespace

bool IsOciDigest(std::string_view text) {
  return text.size() == 71 && text.starts_with("sha256:") &&
         std::all_of(text.begin() + 7, text.end(),
                     [](char c) { return HexDigit(c) >= 0 && ToLower(c) == c; });
}

absl::Status CheckFileName(std::string_view name) {
  const auto wrong = [&](const char* what) {
    std::string shown(name.substr(0, 120));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c == 127; }, '?');
    return InvalidArgument("the file name '" + shown + "' " + what);
  };
  if (name.empty() || name.size() > kMaxFileNameBytes) return wrong("is empty or too long");
  const bool clean = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 127 && c != '\\' && c != ':';
  });
  if (!clean) return wrong("has characters that no file of a model has");
  size_t depth = 0;
  for (size_t start = 0; start <= name.size(); ++depth) {
    const size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return wrong("leaves its folder");
    if (part.size() > 200) return wrong("has a part that is too long");
    start = end + 1;
  }
  if (depth > kMaxFileDepth) return wrong("lies too deep");
  return absl::OkStatus();
}

bool IsWeight(std::string_view file) {
  return EndsWithIgnoringCase(file, ".safetensors") || EndsWithIgnoringCase(file, ".gguf");
}

bool IsSetting(std::string_view file) {
  return file.ends_with(".json") || file.ends_with(".jinja") || file.ends_with(".txt") ||
         file.ends_with("tokenizer.model") || file == "LICENSE" || file == "NOTICE";
}

std::string ServedNameOf(const Source& source) {
  const std::string_view file = source.file;
  if (EndsWithIgnoringCase(file, ".gguf")) {
    return std::string(file.substr(file.rfind('/') + 1, std::string_view::npos))
        .substr(0, file.size() - (file.rfind('/') + 1) - 5);
  }
  if (source.kind == Kind::kOci) {
    const std::string last = source.repo.substr(source.repo.rfind('/') + 1);
    if (source.revision == "latest") return ShortName(last);
    return ShortName(
        last + ":" +
        (IsOciDigest(source.revision) ? source.revision.substr(7, 12) : source.revision));
  }
  if (source.kind == Kind::kHub || file.empty()) return source.repo;
  return std::string(file.substr(file.rfind('/') + 1));
}

std::string BaseOf(const Source& source) {
  if (source.kind == Kind::kHub) return "hf:" + source.repo;
  if (source.kind == Kind::kMlflow) return source.text;
  if (source.kind == Kind::kOci) {
    return "oci://" + source.repo + (IsOciDigest(source.revision) ? "@" : ":") + source.revision;
  }
  return "s3://" + source.repo + (source.file.empty() ? "" : "/" + source.file);
}

absl::StatusOr<Source> ParseSource(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return InvalidArgument("a model's name has 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  }
  if (name.starts_with("hf:")) return HubSource(name, name.substr(3));
  if (name.starts_with("hf.co/")) return HubSource(name, name.substr(6));
  if (name.starts_with("s3://")) return S3Source(name);
  if (name.starts_with("oci://")) return OciSource(name);
  if (name.starts_with("mlflow:")) return MlflowSource(name);
  if (name.starts_with("https://") || name.starts_with("http://")) return WebSource(name);
  const size_t slash = name.find('/');
  const bool is_repo = slash != std::string_view::npos &&
                       name.find('/', slash + 1) == std::string_view::npos &&
                       IsRepoPart(name.substr(0, slash)) && IsRepoPart(name.substr(slash + 1));
  if (is_repo && !EndsWithIgnoringCase(name, ".gguf")) return HubSource(name, name);
  Source source;
  source.text = name;
  return source;
}

}  // namespace quire::pull

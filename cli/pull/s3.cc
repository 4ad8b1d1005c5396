#include "cli/pull/s3.h"

#include <openssl/hmac.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "cli/pull/digest.h"
#include "cli/pull/hub.h"

namespace quire::pull {
namespace {

constexpr char kExpires[] = "86400";

std::string Hmac(std::string_view key, std::string_view text) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes, &size);
  return {reinterpret_cast<const char*>(bytes), size};
}

// "a=b&c=d", sorted and encoded.
std::string QueryText(std::vector<std::pair<std::string, std::string>> query) {
  for (auto& [name, value] : query) {
    name = PercentEncoded(name, false);
    value = PercentEncoded(value, false);
  }
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) {
    if (!text.empty()) text += '&';
    text += name;
    text += '=';
    text += value;
  }
  return text;
}

// A bucket is part of the host at AWS, and of the path at others.
absl::StatusOr<Address> BucketAddress(const S3Settings& settings, const S3Request& request) {
  const std::string key = PercentEncoded(request.key, true);
  const bool dotted = request.bucket.find('.') != std::string::npos;
  if (settings.endpoint.empty() && !dotted) {
    return ParseAddress("https://" + request.bucket + ".s3." + settings.region + ".amazonaws.com/" +
                        key);
  }
  std::string endpoint = settings.endpoint;
  if (endpoint.empty()) endpoint = "https://s3." + settings.region + ".amazonaws.com";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  absl::StatusOr<Address> address = ParseAddress(endpoint + "/" + request.bucket + "/" + key);
  if (!address.ok()) return Annotate(address.status(), "AWS_ENDPOINT_URL");
  return address;
}

std::string HostOf(const Address& address) {
  const bool usual = address.port == (address.tls ? "443" : "80");
  return usual ? address.host : address.host + ":" + address.port;
}

// The text of the first <name>…</name>; empty where there is none.
std::string_view ElementOf(std::string_view xml, std::string_view name) {
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  const size_t begin = xml.find(open);
  if (begin == std::string_view::npos) return {};
  const size_t end = xml.find(close, begin + open.size());
  if (end == std::string_view::npos) return {};
  return xml.substr(begin + open.size(), end - begin - open.size());
}

std::string Unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},  {"&quot;", '"'},
      {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};
  std::string out;
  while (!text.empty()) {
    const auto* found =
        std::find_if(std::begin(kEntities), std::end(kEntities),
                     [&](const auto& entity) { return text.starts_with(entity.first); });
    out += found == std::end(kEntities) ? text.front() : found->second;
    text.remove_prefix(found == std::end(kEntities) ? 1 : found->first.size());
  }
  return out;
}

absl::Status RefusalOf(const Source& source, const Reply& reply) {
  const std::string said = source.text + ": the store answers with status " +
                           std::to_string(reply.status) + " (" +
                           Unescaped(ElementOf(reply.text, "Code").substr(0, 60)) + ")";
  if (reply.status == 403) {
    return absl::PermissionDeniedError(
        AbslView(said + "; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of an account that may "
                        "read it, and AWS_REGION, have to be set"));
  }
  if (reply.status == 404) {
    return absl::NotFoundError(AbslView(said + ": there is no such bucket at this endpoint"));
  }
  if (reply.status == 301 || reply.status == 400) {
    return absl::UnavailableError(AbslView(said + "; is AWS_REGION the bucket's?"));
  }
  return absl::UnavailableError(AbslView(said));
}

}  // namespace

S3Settings S3SettingsFrom(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  S3Settings settings;
  settings.endpoint = value("AWS_ENDPOINT_URL_S3");
  if (settings.endpoint.empty()) settings.endpoint = value("AWS_ENDPOINT_URL");
  for (const char* name : {"AWS_DEFAULT_REGION", "AWS_REGION"}) {
    if (!value(name).empty()) settings.region = value(name);
  }
  settings.key_id = value("AWS_ACCESS_KEY_ID");
  settings.secret = value("AWS_SECRET_ACCESS_KEY");
  settings.session_token = value("AWS_SESSION_TOKEN");
  return settings;
}

std::string S3Time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

absl::StatusOr<Address> SignedAddress(const S3Settings& settings, const S3Request& request) {
  QUIRE_ASSIGN_OR_RETURN(Address address, BucketAddress(settings, request));
  std::vector<std::pair<std::string, std::string>> query = request.query;
  const std::string path = address.target;
  if (settings.key_id.empty()) {
    if (!query.empty()) address.target += "?" + QueryText(query);
    return address;
  }
  const std::string date = request.time.substr(0, 8);
  const std::string scope = date + "/" + settings.region + "/s3/aws4_request";
  query.emplace_back("X-Amz-Algorithm", "AWS4-HMAC-SHA256");
  query.emplace_back("X-Amz-Credential", settings.key_id + "/" + scope);
  query.emplace_back("X-Amz-Date", request.time);
  query.emplace_back("X-Amz-Expires", kExpires);
  query.emplace_back("X-Amz-SignedHeaders", "host");
  if (!settings.session_token.empty()) {
    query.emplace_back("X-Amz-Security-Token", settings.session_token);
  }
  const std::string text = QueryText(query);
  const std::string canonical =
      "GET\n" + path + "\n" + text + "\nhost:" + HostOf(address) + "\n\nhost\nUNSIGNED-PAYLOAD";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + request.time + "\n" + scope + "\n" + Sha256Hex(canonical);
  std::string key = "AWS4" + settings.secret;
  for (const std::string& part :
       {date, settings.region, std::string("s3"), std::string("aws4_request")}) {
    key = Hmac(key, part);
  }
  address.target = path + "?" + text + "&X-Amz-Signature=" + HexOfBytes(Hmac(key, to_sign));
  return address;
}

absl::StatusOr<S3Page> ParseS3List(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos) {
    return InvalidArgument("the answer is no list of a bucket");
  }
  S3Page page;
  page.next = Unescaped(ElementOf(xml, "NextContinuationToken"));
  for (size_t at = xml.find("<Contents>"); at != std::string_view::npos;
       at = xml.find("<Contents>", at + 1)) {
    const std::string_view entry = ElementOf(xml.substr(at), "Contents");
    S3Object object;
    object.key = Unescaped(ElementOf(entry, "Key"));
    object.etag = Unescaped(ElementOf(entry, "ETag"));
    const std::string_view size = ElementOf(entry, "Size");
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), object.size);
    if (object.key.empty() || error != std::errc() || end != size.data() + size.size() ||
        object.size < 0 || object.size > kMaxFileBytes) {
      return InvalidArgument("an object of the list has no key, or a size that cannot be");
    }
    if (object.etag.find_first_of("\r\n") != std::string::npos || object.etag.size() > 200) {
      return InvalidArgument("an object of the list has an ETag that cannot be");
    }
    if (page.objects.size() >= kMaxObjects) return InvalidArgument("a page has too many objects");
    page.objects.push_back(std::move(object));
  }
  return page;
}

absl::StatusOr<std::vector<S3Object>> ListObjects(const S3Settings& settings, const Source& source,
                                                  HttpSession& session) {
  std::vector<S3Object> all;
  std::string next;
  for (size_t page = 0; page < kMaxListPages; ++page) {
    S3Request ask{.bucket = source.repo, .key = "", .query = {}, .time = S3Time()};
    ask.query = {{"list-type", "2"}, {"prefix", source.file}};
    if (!next.empty()) ask.query.emplace_back("continuation-token", next);
    Request request;
    QUIRE_ASSIGN_OR_RETURN(request.address, SignedAddress(settings, ask));
    QUIRE_ASSIGN_OR_RETURN(const Reply reply, session.Do(request));
    if (reply.status != 200) return RefusalOf(source, reply);
    absl::StatusOr<S3Page> found = ParseS3List(reply.text);
    if (!found.ok()) return Annotate(found.status(), source.text);
    if (all.size() + found->objects.size() > kMaxObjects) break;
    all.insert(all.end(), found->objects.begin(), found->objects.end());
    next = found->next;
    if (next.empty()) return all;
  }
  return absl::ResourceExhaustedError(
      AbslView(source.text + ": has more than 10,000 objects; give a longer prefix"));
}

}  // namespace quire::pull

// Models in a store that speaks S3: listed by prefix, fetched by addresses that are signed for a
// day.
//
// Pure except for ListObjects, which asks the store. What a store says is hostile input: its XML is
// searched for a few elements, never built into a tree, and counts, sizes and names are bounded.
// Signatures follow AWS's Signature Version 4, in the query of the address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/pull/http_session.h"
#include "cli/pull/source.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxObjects = 10'000;  // below a prefix
inline constexpr size_t kMaxListPages = 16;

struct S3Settings {
  std::string endpoint;  // empty: AWS's own
  std::string region = "us-east-1";
  std::string key_id, secret, session_token;  // all empty: anonymous
};
// From AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
S3Settings S3SettingsFrom(const config::Environment& environment);

// A request for an object, or for the list with an empty key.
struct S3Request {
  std::string bucket;
  std::string key;
  std::vector<std::pair<std::string, std::string>> query = {};  // not encoded
  std::string time;                                             // "20260131T235959Z", UTC
};
// Its signed address. INVALID_ARGUMENT for an endpoint that is none.
absl::StatusOr<Address> SignedAddress(const S3Settings& settings, const S3Request& request);

struct S3Object {
  std::string key;
  int64_t size = 0;
  std::string etag;  // with its quotes
};
struct S3Page {
  std::vector<S3Object> objects;
  std::string next;  // of the list; empty: it is the last page
};
// INVALID_ARGUMENT names what is wrong.
absl::StatusOr<S3Page> ParseS3List(std::string_view xml);

// The objects of "s3://BUCKET/PREFIX", at most kMaxObjects.
absl::StatusOr<std::vector<S3Object>> ListObjects(const S3Settings& settings, const Source& source,
                                                  HttpSession& session);

// The present, as signatures write it.
std::string S3Time();

}  // namespace quire::pull

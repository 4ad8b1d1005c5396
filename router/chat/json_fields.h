// Readers of single JSON fields; each names the field that it refuses.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "router/core/api.h"
#include "router/core/request_limits.h"

namespace quire {

using FieldError = std::optional<ApiError>;

// Parses a client's JSON within the limits and charges it to their hold; each limit that it exceeds
// is counted. `outer_depth`: the depth of the JSON that encloses it. UNAVAILABLE: there is no
// memory for it now.
absl::StatusOr<json::Value> ReadJson(std::string_view text, const RequestLimits& limits,
                                     size_t outer_depth = 0);

// Reads a body that must be one object. Where memory for it lacks, the error says when to try
// again.
FieldError ReadBody(std::string_view body, const RequestLimits& limits, json::Value& out);

// Charges what will be made out of a body, before it is made.
FieldError ChargeMore(const RequestLimits& limits, size_t bytes);

// The text of a member; empty where it is none, or absent.
std::string_view TextMember(const json::Object& object, std::string_view key);

FieldError ReadBool(const json::Value& value, std::string_view name, bool& out);
FieldError ReadFloat(const json::Value& value, std::string_view name, std::optional<float>& out);
FieldError ReadInt(const json::Value& value, std::string_view name, std::optional<int32_t>& out);
// Negative numbers are converted bit by bit: clients draw seeds from signed ranges too.
FieldError ReadUint64(const json::Value& value, std::string_view name, uint64_t& out);
FieldError ReadString(const json::Value& value, std::string_view name, std::string& out);
// Names and the like: every prompt's request gets a copy, so that they must be short.
inline constexpr size_t kMaxNameBytes = 1024;
FieldError ReadName(const json::Value& value, std::string_view name, std::string& out);
// A string, or a list of strings; an empty string is none.
FieldError ReadStrings(const json::Value& value, std::string_view name,
                       std::vector<std::string>& out);
// A list of token ids in [0, 2^31).
FieldError ReadTokenIds(const json::Value& value, std::string_view name, std::vector<TokenId>& out);

}  // namespace quire

// Members of the line that a child writes when it is ready, and what supervisors make of them.
//
// Pure functions, except for NowMs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"

namespace quire::cli {

// A string member, empty when absent.
inline std::string Member(const std::string& line, std::string_view key) {
  const auto value = json::Parse(line);
  if (!value.ok() || !value->is_object()) return "";
  const json::Value* member = json::Find(value->get_object(), key);
  if (member == nullptr || !member->is_string()) return "";
  return std::string(json::View(member->get_string()));
}

inline int64_t NumberMember(const std::string& line, std::string_view key) {
  const auto value = json::Parse(line);
  if (!value.ok() || !value->is_object()) return 0;
  const json::Value* member = json::Find(value->get_object(), key);
  if (member == nullptr) return 0;
  return json::AsInt(*member, key).value_or(0);
}

inline std::string PortOf(const std::string& address) {
  return address.substr(address.rfind(':') + 1);
}

inline int64_t NowMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

// Of a child that says what is wrong with its settings, its model or its device.
inline bool IsConfigurationCode(int code) { return code >= 2 && code <= 4; }

}  // namespace quire::cli

// The EndpointSlices of a service as Kubernetes reports them: lists in pages, then changes.
//
// Owner: the Kubernetes source. Plain state, no I/O. The server's data is checked and bounded: an
// error leaves the state unchanged.
//  1. A list replaces the previous one at once, when its last page has arrived.
//  2. Endpoints that are terminating are not dialled; all others are, ready or not: the worker
//     itself reports whether it is ready.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxEndpointSlices = 4096;
inline constexpr size_t kMaxEndpoints = 16'384;  // of all slices

class EndpointSlices {
 public:
  // `port` is a port's name or its number; empty stands for the only port, or the one named "wire".
  explicit EndpointSlices(std::string port) : port_(std::move(port)) {}

  // One page of a list; `first` begins a new list. Afterwards next_page() is the token to continue
  // with, or empty when the list is complete and in use.
  absl::Status AddPage(std::string_view body, bool first);
  const std::string& next_page() const { return next_page_; }

  enum class News : uint8_t {
    kNone,     // a bookmark
    kChanged,  // the targets may have changed
    kExpired,  // the server has forgotten this version: list again
  };
  // One line of a watch. Errors that the server reports are returned as UNAVAILABLE.
  absl::StatusOr<News> Apply(std::string_view line);

  // The version from which a watch continues.
  const std::string& resource_version() const { return resource_version_; }
  std::vector<std::string> Targets() const;

 private:
  using Slices = std::map<std::string, std::vector<std::string>>;  // name → targets

  absl::Status Put(const json::Object& slice, Slices& into) const;
  absl::StatusOr<uint32_t> PortOf(const json::Object& slice) const;

  const std::string port_;
  Slices slices_;
  std::string resource_version_;
  Slices pages_;  // of the list that is being read
  std::string next_page_;
};

}  // namespace quire

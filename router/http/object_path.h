// Paths of objects: /v1/files/ID and /v1/files/ID/content.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace quire {

struct ObjectPath {
  // Requires: `path` begins with `before`.
  ObjectPath(std::string_view path, std::string_view before) {
    path.remove_prefix(before.size());
    const size_t end = std::min(path.find('/'), path.size());
    id = path.substr(0, end);
    rest = path.substr(end);
  }

  std::string id;
  std::string rest;  // empty, or from the next '/' on
};

}  // namespace quire

// Reads a body of multipart/form-data (RFC 7578), strictly: what no client sends is refused.
//
// Pure; any thread. One pass over the body; what is returned points into it.
//  1. Nothing may be before the first boundary or behind the last one.
//  2. Parts and the bytes of a part's headers are bounded before they are read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire::batches {

inline constexpr size_t kMaxParts = 16;
inline constexpr size_t kMaxPartHeaderBytes = 4096;
inline constexpr size_t kMaxBoundaryBytes = 70;  // as RFC 2046 has it

struct FormPart {
  std::string name;
  std::string filename;
  bool is_file = false;  // it has a filename, which may be empty
  std::string_view data;
};

// The boundary in "multipart/form-data; boundary=…". INVALID_ARGUMENT says what is wrong.
absl::StatusOr<std::string> BoundaryOf(std::string_view content_type);

// The parts in their order. INVALID_ARGUMENT says where the body is wrong, RESOURCE_EXHAUSTED which
// limit it is past.
absl::StatusOr<std::vector<FormPart>> ReadForm(std::string_view body, std::string_view boundary);

}  // namespace quire::batches

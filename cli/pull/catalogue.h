// Short names: FAMILY:SIZE → where the model comes from, how large it is and what it needs.
//
// Values, any thread. The catalogue is a file (models/catalogue.json, held to its schema); the
// program carries one, and a newer file may take its place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxCatalogueBytes = 1u << 20;
inline constexpr size_t kMaxCatalogueModels = 1000;

struct CatalogueModel {
  std::string name;  // "qwen3:4b"
  std::string title;
  std::string source;  // as ParseSource reads it
  int64_t bytes = 0;   // of the download, about
  int64_t memory_bytes = 0;
  int64_t context = 0;
  std::string licence;
  bool gated = false;
};

// INVALID_ARGUMENT names the model and the member that is wrong.
absl::StatusOr<std::vector<CatalogueModel>> ParseCatalogue(std::string_view text);
// The one that the program carries.
std::string_view BuiltInCatalogue();

// The model of that name; nullptr: there is none.
const CatalogueModel* FindInCatalogue(const std::vector<CatalogueModel>& catalogue,
                                      std::string_view name);
// Those of a family: "qwen3" → "qwen3:0.6b"….
std::vector<CatalogueModel> FamilyOf(const std::vector<CatalogueModel>& catalogue,
                                     std::string_view family);

// The `most` names nearest to `name`, nearest first.
std::vector<std::string> NearestNames(std::string_view name,
                                      const std::vector<std::string>& candidates, size_t most);

}  // namespace quire::pull

#include "cli/pull/catalogue.h"

#include <algorithm>
#include <utility>

#include "cli/pull/catalogue_text.h"
#include "cli/pull/source.h"
#include "common/ascii.h"
#include "common/json/json.h"

namespace quire::pull {
namespace {

constexpr std::string_view kTexts[] = {"name", "title", "source", "licence"};
constexpr std::string_view kNumbers[] = {"bytes", "memory_bytes", "context"};

absl::StatusOr<CatalogueModel> ParseModel(const json::Object& object) {
  CatalogueModel model;
  std::string* const texts[] = {&model.name, &model.title, &model.source, &model.licence};
  int64_t* const numbers[] = {&model.bytes, &model.memory_bytes, &model.context};
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    const json::Value* value = json::Find(object, kTexts[i]);
    if (value == nullptr) return InvalidArgument(std::string(kTexts[i]) + ": is missing");
    QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*value, kTexts[i]));
    if (text.empty() || text.size() > 400) {
      return InvalidArgument(std::string(kTexts[i]) + ": must have 1 to 400 bytes");
    }
    *texts[i] = text;
  }
  for (size_t i = 0; i < std::size(kNumbers); ++i) {
    const json::Value* value = json::Find(object, kNumbers[i]);
    if (value == nullptr) return InvalidArgument(std::string(kNumbers[i]) + ": is missing");
    QUIRE_ASSIGN_OR_RETURN(*numbers[i], json::AsInt(*value, kNumbers[i]));
    if (*numbers[i] < 1) return InvalidArgument(std::string(kNumbers[i]) + ": must be above 0");
  }
  if (const json::Value* gated = json::Find(object, "gated")) {
    QUIRE_ASSIGN_OR_RETURN(model.gated, json::AsBool(*gated, "gated"));
  }
  QUIRE_ASSIGN_OR_RETURN(const Source source, ParseSource(model.source));
  if (source.kind == Kind::kLocal) {
    return InvalidArgument("source: must be hf:ORG/REPO or https://HOST/FILE.gguf, is '" +
                           model.source + "'");
  }
  return model;
}

// Insertions, deletions and replacements between two short names.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = before + (ToLower(a[i - 1]) == ToLower(b[j - 1]) ? 0 : 1);
      before = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view BuiltInCatalogue() { return Embedded_catalogue_json(); }

absl::StatusOr<std::vector<CatalogueModel>> ParseCatalogue(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(
      const json::Value value,
      json::Parse(text, {.max_bytes = kMaxCatalogueBytes, .max_depth = 8, .max_values = 20'000}));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "catalogue"));
  const json::Value* version = json::Find(*object, "version");
  const absl::StatusOr<int64_t> number =
      version == nullptr ? absl::StatusOr<int64_t>(0) : json::AsInt(*version, "version");
  if (!number.ok() || *number != 1) {
    return InvalidArgument("catalogue: version must be 1; a newer quire reads newer ones");
  }
  const json::Value* models = json::Find(*object, "models");
  if (models == nullptr) return InvalidArgument("catalogue: models is missing");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* entries, json::AsArray(*models, "models"));
  if (entries->size() > kMaxCatalogueModels) {
    return InvalidArgument("catalogue: has more than 1,000 models");
  }
  std::vector<CatalogueModel> catalogue;
  for (const json::Value& entry : *entries) {
    const std::string where = "models[" + std::to_string(catalogue.size()) + "]";
    QUIRE_ASSIGN_OR_RETURN(const json::Object* fields, json::AsObject(entry, where));
    absl::StatusOr<CatalogueModel> model = ParseModel(*fields);
    if (!model.ok()) return Annotate(model.status(), where);
    catalogue.push_back(*std::move(model));
  }
  return catalogue;
}

const CatalogueModel* FindInCatalogue(const std::vector<CatalogueModel>& catalogue,
                                      std::string_view name) {
  for (const CatalogueModel& model : catalogue) {
    if (EqualsIgnoringCase(model.name, name)) return &model;
  }
  return nullptr;
}

std::vector<CatalogueModel> FamilyOf(const std::vector<CatalogueModel>& catalogue,
                                     std::string_view family) {
  std::vector<CatalogueModel> found;
  for (const CatalogueModel& model : catalogue) {
    const std::string_view own = std::string_view(model.name).substr(0, model.name.find(':'));
    if (EqualsIgnoringCase(own, family)) found.push_back(model);
  }
  return found;
}

std::vector<std::string> NearestNames(std::string_view name,
                                      const std::vector<std::string>& candidates, size_t most) {
  name = name.substr(0, 64);
  std::vector<std::pair<size_t, std::string>> sorted;
  for (const std::string& candidate : candidates) {
    // A name that continues the other is near.
    const bool begins = candidate.starts_with(name);
    sorted.emplace_back(begins ? 0 : Distance(name, std::string_view(candidate).substr(0, 64)),
                        candidate);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(most, sorted.size()); ++i) nearest.push_back(sorted[i].second);
  return nearest;
}

}  // namespace quire::pull

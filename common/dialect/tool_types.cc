#include "common/dialect/tool_types.h"

#include <algorithm>

#include "common/ascii.h"
#include "common/dialect/scan.h"
#include "common/json/json.h"

namespace quire::dialect {
namespace {

constexpr size_t kLeastSteps = 4096;  // of all tools together
// Of what is inside values, where types are kept: one for so many bytes of tools, so that they hold
// no more than a few times the tools' own bytes.
constexpr size_t kLeastStepsInside = 512, kBytesForStepInside = 32;
constexpr int kMaxReferences = 8;    // of $ref, one behind the other
constexpr int kMaxAlternatives = 8;  // of anyOf inside anyOf

// Steps through schemas that are left, of as many as the tools have bytes: alternatives that refer
// to each other multiply.
class Steps {
 public:
  explicit Steps(size_t count) : left_(count) {}
  // False: there are not so many.
  bool Take(size_t count) {
    left_ = count <= left_ ? left_ - count : 0;
    return left_ > 0;
  }
  bool none() const { return left_ == 0; }

 private:
  size_t left_;
};

TypeSet TypeOfName(std::string_view name) {
  if (name == "string") return kString;
  if (name == "integer") return kInteger;
  if (name == "number") return kNumber;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  if (name == "object") return kObject;
  return name == "array" ? kArray : 0;
}

TypeSet TypeOfValue(const json::Value& value) {
  if (value.is_string()) return kString;
  if (value.is_bool()) return kBoolean;
  if (value.is_null()) return kNull;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  return value.is_double() ? kNumber : kInteger;
}

// "#/$defs/x" inside `root`; null where it leads nowhere.
const json::Value* Resolve(const json::Object& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  reference.remove_prefix(2);
  const json::Object* at = &root;
  while (true) {
    const size_t slash = reference.find('/');
    const json::Value* next = json::Find(*at, reference.substr(0, slash));
    if (next == nullptr || slash == std::string_view::npos) return next;
    if (!next->is_object()) return nullptr;
    at = &next->get_object();
    reference.remove_prefix(slash + 1);
  }
}

struct Level {
  int references = 0;
  int depth = 0;
};

TypeSet TypesOf(const json::Value& schema, const json::Object& root, Level level, Steps& steps) {
  if (!schema.is_object() || level.depth > kMaxAlternatives || !steps.Take(1)) return 0;
  const json::Object& object = schema.get_object();
  TypeSet types = 0;
  if (const json::Value* type = json::Find(object, "type"); type != nullptr) {
    if (type->is_string()) types |= TypeOfName(json::View(type->get_string()));
    if (type->is_array() && steps.Take(type->get_array().size())) {
      for (const json::Value& one : type->get_array()) {
        if (one.is_string()) types |= TypeOfName(json::View(one.get_string()));
      }
    }
  }
  for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* list = json::Find(object, key);
    if (list == nullptr || !list->is_array()) continue;
    for (const json::Value& one : list->get_array()) {
      if (steps.none()) return 0;
      types |= TypesOf(one, root, {level.references, level.depth + 1}, steps);
    }
  }
  if (const json::Value* to = json::Find(object, "$ref"); to != nullptr && to->is_string() &&
                                                          level.references < kMaxReferences &&
                                                          steps.Take(to->get_string().size())) {
    const json::Value* target = Resolve(root, json::View(to->get_string()));
    const Level next{level.references + 1, level.depth + 1};
    if (target != nullptr) types |= TypesOf(*target, root, next, steps);
  }
  if (types == 0) {
    const json::Value* values = json::Find(object, "enum");
    if (values != nullptr && values->is_array() && steps.Take(values->get_array().size())) {
      for (const json::Value& one : values->get_array()) types |= TypeOfValue(one);
    }
    if (object.contains("const")) types |= TypeOfValue(object.at("const"));
    if (object.contains("properties")) types |= kObject;
    if (object.contains("items")) types |= kArray;
  }
  const json::Value* nullable = json::Find(object, "nullable");
  if (types != 0 && nullable != nullptr && nullable->is_bool() && nullable->get_bool()) {
    types |= kNull;
  }
  return types;
}

// Adds what a schema names inside its values, where steps are left.
void AddInside(const json::Value& schema, const json::Object& root, Level level, Steps& steps,
               ValueTypes& out);

ValueTypes ValueTypesOf(const json::Value& schema, const json::Object& root, int depth,
                        Steps& steps) {
  ValueTypes out;
  out.types = TypesOf(schema, root, {}, steps);
  if (depth < kMaxTypedDepth) AddInside(schema, root, {0, depth}, steps, out);
  return out;
}

void AddInside(const json::Value& schema, const json::Object& root, Level level, Steps& steps,
               ValueTypes& out) {
  if (!schema.is_object() || !steps.Take(1)) return;
  const json::Object& object = schema.get_object();
  const json::Value* properties = json::Find(object, "properties");
  if (properties != nullptr && properties->is_object()) {
    for (const auto& [key, value] : properties->get_object()) {
      if (steps.none()) return;
      out.members[std::string(key)] = ValueTypesOf(value, root, level.depth + 1, steps);
    }
  }
  const json::Value* items = json::Find(object, "items");
  if (items != nullptr && items->is_object() && out.items.empty()) {
    out.items.push_back(ValueTypesOf(*items, root, level.depth + 1, steps));
  }
  if (level.references >= kMaxReferences) return;
  const Level next{level.references + 1, level.depth};
  for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* list = json::Find(object, key);
    if (list == nullptr || !list->is_array()) continue;
    for (const json::Value& one : list->get_array()) AddInside(one, root, next, steps, out);
  }
  const json::Value* to = json::Find(object, "$ref");
  if (to == nullptr || !to->is_string() || !steps.Take(to->get_string().size())) return;
  const json::Value* target = Resolve(root, json::View(to->get_string()));
  if (target != nullptr) AddInside(*target, root, next, steps, out);
}

bool IsNumber(std::string_view text) {
  return !text.empty() && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && IsJson(text);
}

}  // namespace

absl::StatusOr<ToolTypes> ToolTypes::FromJson(std::string_view tools, bool inside) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value root, json::Parse(tools));
  if (!root.is_array()) {
    return InvalidArgument("tools: must be an array of {\"type\": \"function\", \"function\": …}");
  }
  ToolTypes out;
  Steps steps(std::max(kLeastSteps, tools.size()));
  // Without them, values inside others have no known type.
  Steps steps_inside(std::max(kLeastStepsInside, tools.size() / kBytesForStepInside));
  size_t index = 0;
  for (const json::Value& tool : root.get_array()) {
    const std::string where = "tools[" + std::to_string(index++) + "]";
    QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(tool, where));
    if (const json::Value* inner = json::Find(*object, "function"); inner != nullptr) {
      QUIRE_ASSIGN_OR_RETURN(object, json::AsObject(*inner, where + ".function"));
    }
    const json::Value* name = json::Find(*object, "name");
    if (name == nullptr || !name->is_string()) {
      return InvalidArgument(where + ": the function has no name: add \"name\": \"f\"");
    }
    Parameters& parameters = out.functions_[std::string(json::View(name->get_string()))];
    const json::Value* schema = json::Find(*object, "parameters");
    if (schema == nullptr || !schema->is_object()) continue;
    const json::Object& document = schema->get_object();
    const json::Value* properties = json::Find(document, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, value] : properties->get_object()) {
      ValueTypes& types = parameters[std::string(key)];
      types.types = TypesOf(value, document, {}, steps);
      if (inside) AddInside(value, document, {}, steps_inside, types);
    }
    if (steps.none()) {
      return InvalidArgument(where +
                             ": its alternatives and references ask for more steps than "
                             "tools have bytes; write them out where they are used");
    }
  }
  return out;
}

const ValueTypes* ToolTypes::Find(std::string_view function, std::string_view parameter) const {
  const auto at = functions_.find(function);
  if (at == functions_.end()) return nullptr;
  const auto type = at->second.find(parameter);
  return type == at->second.end() ? nullptr : &type->second;
}

TypeSet ToolTypes::Of(std::string_view function, std::string_view parameter) const {
  const ValueTypes* found = Find(function, parameter);
  return found == nullptr ? TypeSet{0} : found->types;
}

bool IsJson(std::string_view text) { return json::Parse(text).ok(); }

std::string ValueByTypes(std::string_view text, TypeSet types) {
  const std::string_view plain = Trim(text, " \t\r\n");
  // Many templates write null as Python prints it.
  const bool none = plain == "None" && (types & kString) == 0;
  if ((types & kNull) != 0 && (plain == "null" || none)) return "null";
  if ((types & (kInteger | kNumber)) != 0 && IsNumber(plain)) return std::string(plain);
  if ((types & kBoolean) != 0) {
    if (EqualsIgnoringCase(plain, "true")) return "true";
    if (EqualsIgnoringCase(plain, "false")) return "false";
  }
  const bool object = (types & kObject) != 0 && plain.starts_with('{');
  const bool array = (types & kArray) != 0 && plain.starts_with('[');
  if ((object || array) && IsJson(plain)) return std::string(plain);
  return Quoted(text);
}

}  // namespace quire::dialect

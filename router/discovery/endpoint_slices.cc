#include "router/discovery/endpoint_slices.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/host_port.h"

namespace quire {
namespace {

constexpr size_t kMaxVersionBytes = 256;
constexpr size_t kMaxPageTokenBytes = 4096;
constexpr int64_t kGone = 410;
constexpr std::string_view kWirePort = "wire";

absl::StatusOr<const json::Object*> ObjectIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return InvalidArgument(std::string(key) + " is missing");
  return json::AsObject(*value, key);
}

absl::StatusOr<std::string> StringIn(const json::Object& object, std::string_view key,
                                     size_t max_bytes) {
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return std::string();
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*value, key));
  if (text.size() > max_bytes) {
    return InvalidArgument(std::string(key) + " has more than " + std::to_string(max_bytes) +
                           " bytes");
  }
  return std::string(text);
}

// Empty when it is absent or null, as Kubernetes writes empty lists.
absl::StatusOr<const json::Array*> ArrayIn(const json::Object& object, std::string_view key) {
  static const json::Array kNone;
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return &kNone;
  return json::AsArray(*value, key);
}

bool IsTerminating(const json::Object& endpoint) {
  const json::Value* conditions = json::Find(endpoint, "conditions");
  if (conditions == nullptr || !conditions->is_object()) return false;
  const json::Value* terminating = json::Find(conditions->get_object(), "terminating");
  return terminating != nullptr && terminating->is_bool() && terminating->get_bool();
}

absl::StatusOr<uint32_t> ToPort(int64_t number) {
  if (number >= 1 && number <= 65535) return static_cast<uint32_t>(number);
  return InvalidArgument("port must be in [1, 65535], is " + std::to_string(number));
}

}  // namespace

// 0: 0: this slice has no such port, so that its endpoints are not workers.
absl::StatusOr<uint32_t> EndpointSlices::PortOf(const json::Object& slice) const {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(port_.data(), port_.data() + port_.size(), number);
  if (!port_.empty() && error == std::errc() && end == port_.data() + port_.size()) {
    return ToPort(number);
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Array* ports, ArrayIn(slice, "ports"));
  const std::string_view wanted = port_.empty() ? kWirePort : std::string_view(port_);
  for (const json::Value& value : *ports) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* port, json::AsObject(value, "ports"));
    const json::Value* given = json::Find(*port, "port");
    if (given == nullptr) continue;
    QUIRE_ASSIGN_OR_RETURN(const std::string name, StringIn(*port, "name", kMaxVersionBytes));
    QUIRE_ASSIGN_OR_RETURN(number, json::AsInt(*given, "port"));
    if (name == wanted || (port_.empty() && ports->size() == 1)) return ToPort(number);
  }
  return 0;
}

absl::Status EndpointSlices::Put(const json::Object& slice, Slices& into) const {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* metadata, ObjectIn(slice, "metadata"));
  QUIRE_ASSIGN_OR_RETURN(const std::string name, StringIn(*metadata, "name", kMaxVersionBytes));
  if (name.empty()) return InvalidArgument("metadata.name is missing");
  QUIRE_ASSIGN_OR_RETURN(const uint32_t port, PortOf(slice));
  QUIRE_ASSIGN_OR_RETURN(const json::Array* endpoints, ArrayIn(slice, "endpoints"));
  std::vector<std::string> targets;
  for (const json::Value& value : *endpoints) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* endpoint, json::AsObject(value, "endpoints"));
    QUIRE_ASSIGN_OR_RETURN(const json::Array* addresses, ArrayIn(*endpoint, "addresses"));
    // The first address represents the endpoint: the API defines the list so.
    if (port == 0 || addresses->empty() || IsTerminating(*endpoint)) continue;
    QUIRE_ASSIGN_OR_RETURN(const std::string_view address,
                           json::AsString(addresses->front(), "addresses"));
    std::string target = JoinHostPort(address, port);
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(target), "addresses"));
    targets.push_back(std::move(target));
  }
  size_t others = 0;
  for (const auto& [other, list] : into) others += other == name ? 0 : list.size();
  if (others + targets.size() > kMaxEndpoints ||
      (into.size() >= kMaxEndpointSlices && !into.contains(name))) {
    return absl::ResourceExhaustedError(AbslView("more than " + std::to_string(kMaxEndpoints) +
                                                 " endpoints or " +
                                                 std::to_string(kMaxEndpointSlices) + " slices"));
  }
  into[name] = std::move(targets);
  return absl::OkStatus();
}

absl::Status EndpointSlices::AddPage(std::string_view body, bool first) {
  if (first) pages_.clear();
  next_page_.clear();
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(body));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* list, json::AsObject(value, "the list"));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* metadata, ObjectIn(*list, "metadata"));
  QUIRE_ASSIGN_OR_RETURN(std::string version,
                         StringIn(*metadata, "resourceVersion", kMaxVersionBytes));
  QUIRE_ASSIGN_OR_RETURN(std::string next, StringIn(*metadata, "continue", kMaxPageTokenBytes));
  if (version.empty()) return InvalidArgument("metadata.resourceVersion is missing");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* items, ArrayIn(*list, "items"));
  for (const json::Value& item : *items) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* slice, json::AsObject(item, "items"));
    QUIRE_RETURN_IF_ERROR(Put(*slice, pages_));
  }
  next_page_ = std::move(next);
  if (!next_page_.empty()) return absl::OkStatus();
  slices_ = std::exchange(pages_, {});
  resource_version_ = std::move(version);
  return absl::OkStatus();
}

absl::StatusOr<EndpointSlices::News> EndpointSlices::Apply(std::string_view line) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(line));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* event, json::AsObject(value, "the event"));
  QUIRE_ASSIGN_OR_RETURN(const std::string type, StringIn(*event, "type", kMaxVersionBytes));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, ObjectIn(*event, "object"));
  if (type == "ERROR") {
    const json::Value* code = json::Find(*object, "code");
    if (code != nullptr && code->is_int64() && code->get_int64() == kGone) return News::kExpired;
    const json::Value* message = json::Find(*object, "message");
    const bool told = message != nullptr && message->is_string();
    const std::string_view text = told ? json::View(message->get_string()) : "no reason given";
    return absl::UnavailableError(
        AbslView("the watch ended in an error: " + std::string(text.substr(0, 300))));
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Object* metadata, ObjectIn(*object, "metadata"));
  QUIRE_ASSIGN_OR_RETURN(std::string version,
                         StringIn(*metadata, "resourceVersion", kMaxVersionBytes));
  if (version.empty()) return InvalidArgument("metadata.resourceVersion is missing");
  News news = News::kChanged;
  if (type == "ADDED" || type == "MODIFIED") {
    QUIRE_RETURN_IF_ERROR(Put(*object, slices_));
  } else if (type == "DELETED") {
    QUIRE_ASSIGN_OR_RETURN(const std::string name, StringIn(*metadata, "name", kMaxVersionBytes));
    slices_.erase(name);
  } else if (type == "BOOKMARK") {
    news = News::kNone;
  } else {
    return InvalidArgument("type '" + type + "' is unknown");
  }
  resource_version_ = std::move(version);
  return news;
}

std::vector<std::string> EndpointSlices::Targets() const {
  std::vector<std::string> targets;
  for (const auto& [name, list] : slices_) targets.insert(targets.end(), list.begin(), list.end());
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

}  // namespace quire

#include "router/batches/objects.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "router/batches/limits.h"

namespace quire::batches {
namespace {

constexpr size_t kTimeDigits = 14;
constexpr std::array<std::string_view, 7> kStatusNames = {
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelled"};
constexpr std::string_view kEndpoints[] = {"/v1/chat/completions", "/v1/completions",
                                           "/v1/responses"};
constexpr std::string_view kWindow = "24h";

std::string_view NameOfStatus(Status status) { return kStatusNames[static_cast<size_t>(status)]; }

// The members of one JSON object, in their order.
class Members {
 public:
  void Text(std::string_view key, std::string_view value) {
    Key(key);
    json::AppendQuoted(value, out_);
  }
  void Number(std::string_view key, int64_t value) {
    Key(key);
    out_ += std::to_string(value);
  }
  void TextOrNull(std::string_view key, std::string_view value) {
    if (value.empty()) return Raw(key, "null");
    Text(key, value);
  }
  void TimeOrNull(std::string_view key, int64_t time) {
    if (time == 0) return Raw(key, "null");
    Number(key, time);
  }
  void Raw(std::string_view key, std::string_view value) {
    Key(key);
    out_ += value;
  }
  std::string Take() { return std::move(out_) + "}"; }

 private:
  void Key(std::string_view key) {
    out_ += out_.empty() ? '{' : ',';
    json::AppendQuoted(key, out_);
    out_ += ':';
  }
  std::string out_;
};

std::string MetadataJson(const BatchObject& batch) {
  Members members;
  for (const auto& [key, value] : batch.metadata) members.Text(key, value);
  return batch.metadata.empty() ? "{}" : members.Take();
}

std::string CountsJson(const Counts& counts) {
  Members members;
  members.Number("total", static_cast<int64_t>(counts.total));
  members.Number("completed", static_cast<int64_t>(counts.completed));
  members.Number("failed", static_cast<int64_t>(counts.failed));
  return members.Take();
}

std::string ErrorsJson(const std::vector<BatchError>& errors) {
  std::string list;
  for (const BatchError& error : errors) {
    Members members;
    members.Text("code", error.code);
    members.Text("message", error.message);
    members.TextOrNull("param", error.param);
    if (error.line) {
      members.Number("line", static_cast<int64_t>(*error.line));
    } else {
      members.Raw("line", "null");
    }
    list += (list.empty() ? "" : ",") + members.Take();
  }
  return "[" + list + "]";
}

std::string CreatorJson(const Creator& creator) {
  std::string models;
  for (const std::string& model : creator.models) {
    if (!models.empty()) models += ',';
    json::AppendQuoted(model, models);
  }
  Members members;
  members.Text("tenant", creator.tenant);
  members.Raw("models", "[" + models + "]");
  if (creator.highest_priority) members.Number("highest_priority", *creator.highest_priority);
  return members.Take();
}

std::string TextIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value != nullptr && value->is_string() ? std::string(json::View(value->get_string()))
                                                : std::string();
}
int64_t NumberIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value == nullptr ? 0 : json::AsInt(*value, key).value_or(0);
}
bool FlagIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value != nullptr && value->is_bool() && value->get_bool();
}
const json::Object* ObjectIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value == nullptr ? nullptr : value->if_object();
}
const json::Array* ArrayIn(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value == nullptr ? nullptr : value->if_array();
}

absl::Status ReadStatus(const std::string& name, Status& status) {
  const auto found = std::find(kStatusNames.begin(), kStatusNames.end(), name);
  if (found == kStatusNames.end()) return absl::DataLossError("has an unknown status");
  status = static_cast<Status>(found - kStatusNames.begin());
  return absl::OkStatus();
}

void ReadErrors(const json::Array& list, std::vector<BatchError>& errors) {
  for (const json::Value& value : list) {
    const json::Object* object = value.if_object();
    if (object == nullptr) continue;
    BatchError error{TextIn(*object, "code"), TextIn(*object, "message"), TextIn(*object, "param"),
                     std::nullopt};
    if (json::Find(*object, "line") != nullptr) {
      error.line = static_cast<size_t>(NumberIn(*object, "line"));
    }
    errors.push_back(std::move(error));
  }
}

Creator ReadCreator(const json::Object& object) {
  Creator creator;
  creator.tenant = TextIn(object, "tenant");
  if (const json::Array* models = ArrayIn(object, "models")) {
    for (const json::Value& model : *models) {
      if (model.is_string()) creator.models.emplace_back(json::View(model.get_string()));
    }
  }
  if (json::Find(object, "highest_priority") != nullptr) {
    creator.highest_priority = static_cast<int32_t>(NumberIn(object, "highest_priority"));
  }
  return creator;
}

std::optional<ApiError> ReadMetadata(const json::Object& object, BatchObject& batch) {
  const json::Value* value = json::Find(object, "metadata");
  if (value == nullptr) return std::nullopt;
  const json::Object* pairs = value->if_object();
  if (pairs == nullptr) return InvalidField("metadata", "must be an object of strings");
  if (pairs->size() > kMaxMetadataPairs) {
    return InvalidField("metadata", "has " + std::to_string(pairs->size()) + " pairs; at most " +
                                        std::to_string(kMaxMetadataPairs));
  }
  for (const auto& pair : *pairs) {
    if (pair.key().size() > kMaxMetadataKeyBytes) {
      return InvalidField("metadata",
                          "a key has more than " + std::to_string(kMaxMetadataKeyBytes) + " bytes");
    }
    if (!pair.value().is_string() || pair.value().get_string().size() > kMaxMetadataValueBytes) {
      return InvalidField("metadata", "a value must be a string of at most " +
                                          std::to_string(kMaxMetadataValueBytes) + " bytes");
    }
    batch.metadata.emplace_back(std::string(pair.key().data(), pair.key().size()),
                                std::string(json::View(pair.value().get_string())));
  }
  return std::nullopt;
}

std::optional<ApiError> CheckEndpoint(const BatchObject& batch) {
  if (std::find(std::begin(kEndpoints), std::end(kEndpoints), batch.endpoint) !=
      std::end(kEndpoints)) {
    return std::nullopt;
  }
  std::string served;
  for (const std::string_view one : kEndpoints) {
    served += (served.empty() ? "" : ", ") + std::string(one);
  }
  return InvalidField("endpoint", "\"" + batch.endpoint.substr(0, 64) +
                                      "\" is not served in batches; use one of " + served);
}

}  // namespace

bool IsId(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix) || word.size() != prefix.size() + kIdDigits) return false;
  word.remove_prefix(prefix.size());
  return std::all_of(word.begin(), word.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

int64_t MicrosOfId(std::string_view id) {
  const std::string_view digits = id.substr(id.size() - std::min(id.size(), kIdDigits));
  int64_t micros = 0;
  std::from_chars(digits.data(), digits.data() + std::min(digits.size(), kTimeDigits), micros, 16);
  return micros;
}

Creator Creator::Of(const TenantProfile* profile) {
  if (profile == nullptr) return {};
  return {profile->name, profile->models, profile->highest_priority};
}

std::string Json(const FileObject& file) {
  Members members;
  members.Text("id", file.id);
  members.Text("object", "file");
  members.Number("bytes", file.bytes);
  members.Number("created_at", file.created_at);
  members.Raw("expires_at", "null");
  members.Text("filename", file.filename);
  members.Text("purpose", file.purpose);
  members.Text("status", "processed");
  return members.Take();
}

std::string Kept(const FileObject& file) { return Json(file); }

absl::Status Read(std::string_view text, FileObject& file) {
  const absl::StatusOr<json::Value> value = json::Parse(text);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  if (object == nullptr || !IsId(TextIn(*object, "id"), kFilePrefix)) {
    return absl::DataLossError("is not a file's description");
  }
  file = {TextIn(*object, "id"), TextIn(*object, "filename"), TextIn(*object, "purpose"),
          NumberIn(*object, "bytes"), NumberIn(*object, "created_at")};
  return absl::OkStatus();
}

namespace {

void AddShown(const BatchObject& batch, Members& members) {
  const bool ended = HasEnded(batch.status);
  const bool cancelling = !ended && batch.cancelling_at != 0;
  members.Text("id", batch.id);
  members.Text("object", "batch");
  members.Text("endpoint", batch.endpoint);
  if (batch.errors.empty()) {
    members.Raw("errors", "null");
  } else {
    members.Raw("errors", "{\"object\":\"list\",\"data\":" + ErrorsJson(batch.errors) + "}");
  }
  members.Text("input_file_id", batch.input_file_id);
  members.Text("completion_window", kWindow);
  members.Text("status", cancelling ? "cancelling" : NameOfStatus(batch.status));
  members.TextOrNull("output_file_id", ended && batch.has_output ? batch.output_file_id : "");
  members.TextOrNull("error_file_id", ended && batch.has_errors ? batch.error_file_id : "");
  members.Number("created_at", batch.created_at);
  members.TimeOrNull("in_progress_at", batch.in_progress_at);
  members.TimeOrNull("expires_at", batch.expires_at);
  members.TimeOrNull("finalizing_at", batch.finalizing_at);
  const std::pair<const char*, Status> ends[] = {{"completed_at", Status::kCompleted},
                                                 {"failed_at", Status::kFailed},
                                                 {"expired_at", Status::kExpired},
                                                 {"cancelled_at", Status::kCancelled}};
  for (const auto& [key, status] : ends) {
    members.TimeOrNull(key, batch.status == status ? batch.ended_at : 0);
  }
  members.TimeOrNull("cancelling_at", batch.cancelling_at);
  members.Raw("request_counts", CountsJson(batch.counts));
  members.Raw("metadata", MetadataJson(batch));
}

}  // namespace

std::string Json(const BatchObject& batch) {
  Members members;
  AddShown(batch, members);
  return members.Take();
}

std::string Kept(const BatchObject& batch) {
  Members own;
  own.Text("status", NameOfStatus(batch.status));
  own.Text("ends_as", NameOfStatus(batch.ends_as));
  own.Text("output_file_id", batch.output_file_id);
  own.Text("error_file_id", batch.error_file_id);
  own.Raw("has_output", batch.has_output ? "true" : "false");
  own.Raw("has_errors", batch.has_errors ? "true" : "false");
  own.Number("ended_at", batch.ended_at);
  own.Raw("creator", CreatorJson(batch.creator));
  Members members;
  AddShown(batch, members);
  members.Raw("quire", own.Take());
  return members.Take();
}

absl::Status Read(std::string_view text, BatchObject& batch) {
  const absl::StatusOr<json::Value> value = json::Parse(text);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  const json::Object* own = object == nullptr ? nullptr : ObjectIn(*object, "quire");
  if (own == nullptr || !IsId(TextIn(*object, "id"), kBatchPrefix)) {
    return absl::DataLossError("is not a batch's description");
  }
  batch = {};
  QUIRE_RETURN_IF_ERROR(ReadStatus(TextIn(*own, "status"), batch.status));
  QUIRE_RETURN_IF_ERROR(ReadStatus(TextIn(*own, "ends_as"), batch.ends_as));
  batch.id = TextIn(*object, "id");
  batch.endpoint = TextIn(*object, "endpoint");
  batch.input_file_id = TextIn(*object, "input_file_id");
  batch.output_file_id = TextIn(*own, "output_file_id");
  batch.error_file_id = TextIn(*own, "error_file_id");
  batch.has_output = FlagIn(*own, "has_output");
  batch.has_errors = FlagIn(*own, "has_errors");
  batch.created_at = NumberIn(*object, "created_at");
  batch.expires_at = NumberIn(*object, "expires_at");
  batch.in_progress_at = NumberIn(*object, "in_progress_at");
  batch.finalizing_at = NumberIn(*object, "finalizing_at");
  batch.cancelling_at = NumberIn(*object, "cancelling_at");
  batch.ended_at = NumberIn(*own, "ended_at");
  if (const json::Object* counts = ObjectIn(*object, "request_counts")) {
    batch.counts = {static_cast<size_t>(NumberIn(*counts, "total")),
                    static_cast<size_t>(NumberIn(*counts, "completed")),
                    static_cast<size_t>(NumberIn(*counts, "failed"))};
  }
  if (const json::Object* errors = ObjectIn(*object, "errors")) {
    if (const json::Array* list = ArrayIn(*errors, "data")) ReadErrors(*list, batch.errors);
  }
  if (const json::Object* creator = ObjectIn(*own, "creator")) {
    batch.creator = ReadCreator(*creator);
  }
  return ReadMetadata(*object, batch) ? absl::DataLossError("has invalid metadata")
                                      : absl::OkStatus();
}

Result<BatchObject> ReadCreate(std::string_view body) {
  if (body.size() > kMaxCreateBytes) {
    return ApiError{ApiCode::kTooLarge,
                    "the body that creates a batch has " + std::to_string(body.size()) +
                        " bytes; at most " + std::to_string(kMaxCreateBytes),
                    "", 0};
  }
  const absl::StatusOr<json::Value> value = json::Parse(body);
  if (!value.ok()) return ErrorFromStatus(value.status(), "");
  const json::Object* object = value->if_object();
  if (object == nullptr) {
    return ApiError{ApiCode::kInvalidArgument, "the body must be a JSON object", "", 0};
  }
  constexpr std::string_view kMembers[] = {"input_file_id", "endpoint", "completion_window",
                                           "metadata"};
  for (const auto& member : *object) {
    const std::string_view key(member.key().data(), member.key().size());
    if (key == "output_expires_after" && !member.value().is_null()) {
      return InvalidField(key, "files here do not expire; leave it out, and delete them");
    }
    if (!member.value().is_null() &&
        std::find(std::begin(kMembers), std::end(kMembers), key) == std::end(kMembers)) {
      return InvalidField(key.substr(0, 64),
                          "is not a member of a batch; its members are input_file_id, "
                          "endpoint, completion_window and metadata");
    }
  }
  BatchObject batch;
  batch.input_file_id = TextIn(*object, "input_file_id");
  if (!IsId(batch.input_file_id, kFilePrefix)) {
    return InvalidField("input_file_id", "must be the id of a file that was uploaded, file-…");
  }
  batch.endpoint = TextIn(*object, "endpoint");
  if (std::optional<ApiError> problem = CheckEndpoint(batch)) return *std::move(problem);
  if (TextIn(*object, "completion_window") != kWindow) {
    return InvalidField("completion_window", "must be \"24h\"");
  }
  if (std::optional<ApiError> problem = ReadMetadata(*object, batch)) return *std::move(problem);
  return batch;
}

}  // namespace quire::batches

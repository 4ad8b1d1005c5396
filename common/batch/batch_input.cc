#include "common/batch/batch_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "common/batch/line_reader.h"

namespace quire::batch {
namespace {

constexpr std::string_view kPaths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses"};
constexpr std::string_view kNoMemory = "no_memory";  // of the hold, for the line's tree
constexpr size_t kMaxShownBytes = 64;                // of a foreign word in a message

std::string_view TextOf(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  return value != nullptr && value->is_string() ? json::View(value->get_string())
                                                : std::string_view();
}

BatchFault CheckCustomId(const json::Object& line, BatchRequest& request) {
  const std::string_view id = TextOf(line, "custom_id");
  if (id.empty()) return {"invalid_custom_id", "custom_id: must be a string that is not empty"};
  if (id.size() > kMaxCustomIdBytes) {
    return {"invalid_custom_id", "custom_id: has " + std::to_string(id.size()) +
                                     " bytes; at most " + std::to_string(kMaxCustomIdBytes)};
  }
  request.custom_id = id;
  return {};
}

BatchFault CheckTarget(const json::Object& line, const std::string& only_path,
                       BatchRequest& request) {
  const std::string_view method = TextOf(line, "method");
  if (method != "POST") {
    return {"invalid_method", "method: must be \"POST\", is \"" +
                                  std::string(method.substr(0, kMaxShownBytes)) + "\""};
  }
  const std::string_view path = TextOf(line, "url");
  if (std::find(std::begin(kPaths), std::end(kPaths), path) == std::end(kPaths)) {
    std::string served;
    for (const std::string_view one : kPaths) {
      served += (served.empty() ? "" : ", ") + std::string(one);
    }
    return {"invalid_url", "url: \"" + std::string(path.substr(0, kMaxShownBytes)) +
                               "\" is not served in batches; use one of " + served};
  }
  if (!only_path.empty() && path != only_path) {
    return {"mismatched_endpoint",
            "url: is \"" + std::string(path) + "\", and the batch is of " + only_path};
  }
  request.path = path;
  return {};
}

BatchFault TooLong(size_t bytes, const BatchLimits& limits) {
  return {"request_too_large", "the line has " + std::to_string(bytes) + " bytes; at most " +
                                   std::to_string(limits.max_line_bytes) + " can be sent"};
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::unique_ptr<const BatchFault> Keep(BatchFault fault) {
  if (fault.code.empty()) return nullptr;
  return std::make_unique<const BatchFault>(std::move(fault));
}

}  // namespace

BatchFault ParseBatchLine(std::string_view text, BatchRequest& request, const BatchLimits& limits) {
  request = {};
  if (text.size() > limits.max_line_bytes) return TooLong(text.size(), limits);
  absl::StatusOr<json::Value> value = json::Parse(text, limits.json);
  if (absl::IsUnavailable(value.status()))
    return {std::string(kNoMemory), "no memory for the line"};
  if (!value.ok())
    return {"invalid_json", "the line is not JSON: " + StatusMessage(value.status())};
  json::Object* line = value->if_object();
  if (line == nullptr) return {"invalid_json", "the line must be a JSON object"};
  BatchFault fault = CheckCustomId(*line, request);
  if (!fault.code.empty()) return fault;
  fault = CheckTarget(*line, limits.only_path, request);
  if (!fault.code.empty()) return fault;
  json::Value* body = line->if_contains("body");
  if (body == nullptr || !body->is_object()) {
    return {"invalid_body", "body: must be the JSON object that " + request.path + " takes"};
  }
  const json::Value* stream = json::Find(body->get_object(), "stream");
  if (stream != nullptr && !(stream->is_bool() && !stream->get_bool())) {
    return {"invalid_body", "stream: answers of a batch are whole; leave it out"};
  }
  request.body = std::move(body->get_object());
  return {};
}

absl::StatusOr<std::unique_ptr<BatchInput>> BatchInput::Open(BatchFile file,
                                                             const BatchLimits& limits,
                                                             const std::atomic<bool>& cancelled) {
  const int links = file.follow_links ? 0 : O_NOFOLLOW;
  const int fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | links);
  if (fd < 0) {
    return absl::NotFoundError(AbslView(file.name + ": " + std::strerror(errno)));
  }
  std::unique_ptr<BatchInput> input(new BatchInput(std::move(file), limits, fd));
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument(input->file_.name +
                           ": must be a file; its lines are read again as they are sent");
  }
  QUIRE_RETURN_IF_ERROR(Annotate(input->ReadLines(cancelled), input->file_.name));
  input->FindDuplicates();
  return input;
}

BatchInput::~BatchInput() { close(fd_); }

absl::Status BatchInput::ReadLines(const std::atomic<bool>& cancelled) {
  size_t number = 0;
  BatchRequest request;
  bool no_memory = false;
  const size_t held = limits_.json.hold == nullptr ? 0 : limits_.json.hold->bytes();
  QUIRE_RETURN_IF_ERROR(ReadFileLines(fd_, limits_.max_line_bytes, [&](const FileLine& read) {
    ++number;
    const bool too_long = read.bytes > limits_.max_line_bytes;
    if (!too_long && IsBlank(read.text)) return !cancelled;
    request = {};
    BatchFault fault =
        too_long ? TooLong(read.bytes, limits_) : ParseBatchLine(read.text, request, limits_);
    if (fault.code == kNoMemory) return !(no_memory = true);
    if (limits_.json.hold != nullptr) limits_.json.hold->Resize(held);
    lines_.push_back(
        {number, read.offset, read.bytes, std::move(request.custom_id), Keep(std::move(fault))});
    return !cancelled && lines_.size() <= limits_.max_lines;
  }));
  if (cancelled) return absl::CancelledError("stopped");
  if (no_memory) return absl::UnavailableError("there is no memory for its lines now");
  if (lines_.size() <= limits_.max_lines) return absl::OkStatus();
  return InvalidArgument("has more than " + std::to_string(limits_.max_lines) +
                         " requests; split it into several files");
}

void BatchInput::FindDuplicates() {
  std::map<std::string_view, size_t> first;  // line by custom_id
  for (BatchLine& line : lines_) {
    if (line.custom_id.empty()) continue;
    const auto [at, is_new] = first.emplace(line.custom_id, line.number);
    if (is_new) continue;
    line.fault =
        Keep({"duplicate_custom_id", "custom_id: line " + std::to_string(at->second) +
                                         " has the same; each request needs one of its own"});
  }
}

absl::StatusOr<BatchRequest> BatchInput::Read(const BatchLine& line, MemoryHold* hold) const {
  const absl::Status changed = absl::DataLossError(
      AbslView(file_.name + ": line " + std::to_string(line.number) +
               " has changed since this run began; leave the file alone while it is read"));
  std::string text(line.bytes, '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t count =
        pread(fd_, text.data() + at, text.size() - at, line.offset + static_cast<int64_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return changed;
    at += static_cast<size_t>(count);
  }
  BatchRequest request;
  BatchLimits limits = limits_;
  limits.json.hold = hold;
  const BatchFault fault = ParseBatchLine(text, request, limits);
  if (fault.code == kNoMemory) return absl::UnavailableError("there is no memory for a line now");
  if (!fault.code.empty() || request.custom_id != line.custom_id) return changed;
  return request;
}

}  // namespace quire::batch

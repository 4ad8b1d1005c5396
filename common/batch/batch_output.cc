#include "common/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/batch/line_reader.h"
#include "common/json/json.h"

namespace quire::batch {
namespace {

std::string Opening(size_t number, std::string_view custom_id) {
  std::string line =
      "{\"id\":\"" + std::string(kBatchResultPrefix) + std::to_string(number) + "\",\"custom_id\":";
  if (custom_id.empty()) return line + "null";
  json::AppendQuoted(custom_id, line);
  return line;
}

// A body as one value on one line, as it came where that is what it is.
void AppendBody(const BatchAnswer& answer, std::string& out) {
  const std::string& body = answer.body;
  const bool is_one_line = body.find_first_of("\r\n") == std::string::npos;
  if (answer.is_json && is_one_line) {
    out += body;
    return;
  }
  const absl::StatusOr<json::Value> value = json::Parse(body);
  if (!value.ok()) return json::AppendQuoted(body, out);
  out += is_one_line ? body : json::Serialize(*value);
}

// What is before a body that AnswerLine wrote, as a line of its own: bodies may be large, and none
// is read again. The mark is in no string, whose quotes have a backslash.
std::string HeadOf(std::string_view text) {
  constexpr std::string_view kBody = ",\"body\":";
  constexpr std::string_view kEnd = "},\"error\":null}";
  const size_t body = text.substr(0, kMaxResultHeadBytes).find(kBody);
  const bool has_body = body != std::string_view::npos && text.ends_with(kEnd);
  return has_body ? std::string(text.substr(0, body)) + std::string(kEnd) : std::string(text);
}

// False: the line is no result.
bool ReadResult(std::string_view text, size_t& number, BatchDone& done) {
  const absl::StatusOr<json::Value> value =
      json::Parse(HeadOf(text), {.max_bytes = kMaxResultHeadBytes});
  const json::Object* line = value.ok() ? value->if_object() : nullptr;
  const json::Value* id = line == nullptr ? nullptr : json::Find(*line, "id");
  if (id == nullptr || !id->is_string()) return false;
  std::string_view word = json::View(id->get_string());
  if (!word.starts_with(kBatchResultPrefix)) return false;
  word.remove_prefix(kBatchResultPrefix.size());
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return false;
  const json::Value* custom_id = json::Find(*line, "custom_id");
  if (custom_id != nullptr && custom_id->is_string()) {
    done.custom_id = json::View(custom_id->get_string());
  }
  const json::Value* response = json::Find(*line, "response");
  const json::Value* status = response == nullptr || !response->is_object()
                                  ? nullptr
                                  : json::Find(response->get_object(), "status_code");
  const int64_t code = status == nullptr ? 0 : json::AsInt(*status, "status_code").value_or(0);
  done.failed = code < 200 || code > 299;
  return true;
}

}  // namespace

std::string AnswerLine(size_t number, std::string_view custom_id, const BatchAnswer& answer) {
  std::string line = Opening(number, custom_id);
  line += ",\"response\":{\"status_code\":" + std::to_string(answer.status) + ",\"request_id\":";
  json::AppendQuoted(answer.request_id, line);
  line += ",\"body\":";
  AppendBody(answer, line);
  return line + "},\"error\":null}";
}

std::string FaultLine(size_t number, std::string_view custom_id, std::string_view code,
                      std::string_view message) {
  std::string line = Opening(number, custom_id) + ",\"response\":null,\"error\":{\"code\":";
  json::AppendQuoted(code, line);
  line += ",\"message\":";
  json::AppendQuoted(message, line);
  return line + "}}";
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(BatchFile file,
                                                               const std::atomic<bool>& cancelled) {
  const int links = file.follow_links ? 0 : O_NOFOLLOW;
  const int fd =
      open(file.path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | links, 0644);
  if (fd < 0) return InvalidArgument(file.name + ": " + std::strerror(errno));
  std::unique_ptr<BatchOutput> output(new BatchOutput(std::move(file), fd));
  const std::string& name = output->file_.name;
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument(name +
                           ": must be a file, of which the next run reads what is "
                           "done");
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(AbslView(name + ": another process writes to it"));
  }
  QUIRE_RETURN_IF_ERROR(output->ReadDone(cancelled));
  return output;
}

BatchOutput::~BatchOutput() { close(fd_); }

absl::Status BatchOutput::Failed(const char* what) const {
  return absl::InternalError(
      AbslView(file_.name + ": cannot be " + what + ": " + std::strerror(errno)));
}

absl::Status BatchOutput::ReadDone(const std::atomic<bool>& cancelled) {
  size_t line_number = 0;
  size_t broken = 0;     // a line that is no result, and is not the last one
  int64_t torn_at = -1;  // where a line begins that may be torn
  int64_t size = 0;
  const absl::Status read = ReadFileLines(fd_, kMaxResultBytes, [&](const FileLine& line) {
    ++line_number;
    if (torn_at >= 0) broken = line_number - 1;
    size_t number = 0;
    BatchDone done;
    if (line.ended && ReadResult(line.text, number, done)) {
      if (!done_.emplace(number, std::move(done)).second) broken = line_number;
      size = line.offset + static_cast<int64_t>(line.bytes) + 1;
    } else {
      torn_at = line.offset;
    }
    return broken == 0 && !cancelled;
  });
  QUIRE_RETURN_IF_ERROR(Annotate(read, file_.name));
  if (cancelled) return absl::CancelledError("stopped");
  if (broken > 0) {
    return InvalidArgument(file_.name + ": line " + std::to_string(broken) +
                           " is no result of a batch, or a second one; give a new file");
  }
  if (torn_at >= 0 && size == 0 && line_number == 1) {
    struct stat info = {};
    fstat(fd_, &info);
    std::string start(kBatchResultPrefix.size() + 7, '\0');
    const ssize_t count = pread(fd_, start.data(), start.size(), 0);
    const std::string ours = "{\"id\":\"" + std::string(kBatchResultPrefix);
    if (count < 0 || !ours.starts_with(start.substr(0, static_cast<size_t>(count)))) {
      return InvalidArgument(file_.name + ": holds something else; give a new file");
    }
  }
  if (torn_at >= 0 && ftruncate(fd_, torn_at) != 0) return Failed("cut");
  const MutexLock lock(mutex_);
  size_ = size;
  return absl::OkStatus();
}

absl::Status BatchOutput::Append(std::string line) {
  line += '\n';
  const MutexLock lock(mutex_);
  if (size_ < 0) return absl::InternalError("the output can no longer be written");
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(fd_, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      absl::Status failed = Failed("written");
      // Behind a torn line nothing may follow.
      if (ftruncate(fd_, size_) != 0) size_ = -1;
      return failed;
    }
    at += static_cast<size_t>(count);
  }
  size_ += static_cast<int64_t>(line.size());
  return absl::OkStatus();
}

absl::Status BatchOutput::Sync() {
  return fdatasync(fd_) == 0 ? absl::OkStatus() : Failed("written");
}

}  // namespace quire::batch

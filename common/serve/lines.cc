#include "common/serve/lines.h"

#include <algorithm>

#include "common/json/json.h"

namespace quire::serve {
namespace {

constexpr std::string_view kStates[] = {"absent", "loading", "ready", "stopping"};
constexpr std::string_view kOrders[] = {"load", "unload", "pull", "remove", "cancel"};
constexpr size_t kMaxWorkersOfModel = 64;
constexpr size_t kMaxTextBytes = 4096;
constexpr int64_t kMaxStatusCode = 16;  // of absl::StatusCode

template <size_t N>
std::optional<size_t> PlaceOf(const std::string_view (&words)[N], std::string_view word) {
  const auto found = std::find(std::begin(words), std::end(words), word);
  if (found == std::end(words)) return std::nullopt;
  return static_cast<size_t>(found - std::begin(words));
}

// Reads members of one object, and remembers the first that is wrong.
class Reader {
 public:
  explicit Reader(const json::Object& object) : object_(object) {}

  std::string Text(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    if (value == nullptr) return "";
    const absl::StatusOr<std::string_view> text = json::AsString(*value, name);
    if (!text.ok()) return Blame(text.status()), "";
    if (text->size() > kMaxTextBytes)
      return Blame(InvalidArgument(std::string(name) + ": is too long")), "";
    return std::string(*text);
  }
  int64_t Number(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    if (value == nullptr) return 0;
    const absl::StatusOr<int64_t> number = json::AsInt(*value, name);
    if (!number.ok()) return Blame(number.status()), 0;
    if (*number < 0) return Blame(InvalidArgument(std::string(name) + ": is negative")), 0;
    return *number;
  }
  bool Flag(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    if (value == nullptr) return false;
    const absl::StatusOr<bool> flag = json::AsBool(*value, name);
    if (!flag.ok()) return Blame(flag.status()), false;
    return *flag;
  }
  void Blame(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  const absl::Status& status() const { return status_; }

 private:
  const json::Object& object_;
  absl::Status status_;
};

absl::StatusOr<json::Value> ReadObject(std::string_view line) {
  json::Limits limits;
  limits.max_bytes = kMaxLineBytes;
  limits.max_depth = 4;
  QUIRE_ASSIGN_OR_RETURN(json::Value value, json::Parse(line, limits));
  if (!value.is_object()) return InvalidArgument("a line must hold one object");
  return value;
}

absl::Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxModelNameBytes) return absl::OkStatus();
  return InvalidArgument("model: must have 1 to " + std::to_string(kMaxModelNameBytes) + " bytes");
}

absl::StatusOr<std::vector<WorkerPlace>> ReadWorkers(const json::Object& object) {
  std::vector<WorkerPlace> workers;
  const json::Value* list = json::Find(object, "workers");
  if (list == nullptr) return workers;
  QUIRE_ASSIGN_OR_RETURN(const json::Array* items, json::AsArray(*list, "workers"));
  if (items->size() > kMaxWorkersOfModel) return InvalidArgument("workers: are too many");
  for (const json::Value& item : *items) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* worker, json::AsObject(item, "workers"));
    Reader read(*worker);
    workers.push_back({read.Text("wire"), read.Text("probes"), read.Text("label")});
    QUIRE_RETURN_IF_ERROR(read.status());
  }
  return workers;
}

}  // namespace

std::string_view ModelStateName(ModelState state) { return kStates[static_cast<size_t>(state)]; }

std::string LineOf(const ModelNews& news) {
  json::Object line;
  line["model"] = news.name;
  line["state"] = json::BoostView(ModelStateName(news.state));
  if (news.gone) line["gone"] = true;
  if (news.kept) line["kept"] = true;
  if (news.no_room) line["no_room"] = true;
  line["file_bytes"] = news.file_bytes;
  line["memory_bytes"] = news.memory_bytes;
  line["modified"] = news.modified;
  if (!news.makeup.format.empty()) {
    line["format"] = news.makeup.format;
    line["family"] = news.makeup.family;
    line["quantisation"] = news.makeup.quantisation;
    line["parameters"] = news.makeup.parameters;
  }
  json::Array workers;
  for (const WorkerPlace& worker : news.workers) {
    json::Object one;
    one["wire"] = worker.wire;
    one["probes"] = worker.probes;
    one["label"] = worker.label;
    workers.push_back(std::move(one));
  }
  line["workers"] = std::move(workers);
  if (!news.error.empty()) line["error"] = news.error.substr(0, kMaxTextBytes);
  return json::Serialize(line) + "\n";
}

std::string LineOf(const JobNews& news) {
  json::Object line;
  line["job"] = news.job;
  line["status"] = news.status;
  line["total"] = news.total;
  line["completed"] = news.completed;
  if (news.done) line["done"] = true;
  if (!news.error.empty()) line["error"] = news.error.substr(0, kMaxTextBytes);
  if (news.code != 0) line["code"] = news.code;
  return json::Serialize(line) + "\n";
}

std::string LineOf(const Order& order) {
  json::Object line;
  line["order"] = json::BoostView(kOrders[static_cast<size_t>(order.kind)]);
  line["model"] = order.model;
  line["job"] = order.job;
  if (order.most_bytes != 0) line["most_bytes"] = order.most_bytes;
  return json::Serialize(line) + "\n";
}

absl::StatusOr<News> ReadNews(std::string_view line) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, ReadObject(line));
  const json::Object& object = value.get_object();
  Reader read(object);
  if (json::Find(object, "job") != nullptr) {
    JobNews news;
    news.job = static_cast<uint64_t>(read.Number("job"));
    news.status = read.Text("status");
    news.total = read.Number("total");
    news.completed = read.Number("completed");
    news.done = read.Flag("done");
    news.error = read.Text("error");
    const int64_t code = read.Number("code");
    QUIRE_RETURN_IF_ERROR(read.status());
    if (code > kMaxStatusCode) return InvalidArgument("code: is no status code");
    news.code = static_cast<int>(code);
    return News(std::move(news));
  }
  ModelNews news;
  news.name = read.Text("model");
  const std::optional<size_t> state = PlaceOf(kStates, read.Text("state"));
  news.gone = read.Flag("gone");
  news.kept = read.Flag("kept");
  news.no_room = read.Flag("no_room");
  news.file_bytes = read.Number("file_bytes");
  news.memory_bytes = read.Number("memory_bytes");
  news.modified = read.Number("modified");
  news.makeup = {read.Text("format"), read.Text("family"), read.Text("quantisation"),
                 read.Number("parameters")};
  news.error = read.Text("error");
  QUIRE_RETURN_IF_ERROR(read.status());
  QUIRE_RETURN_IF_ERROR(CheckName(news.name));
  if (!state) return InvalidArgument("state: must be absent, loading, ready or stopping");
  news.state = static_cast<ModelState>(*state);
  QUIRE_ASSIGN_OR_RETURN(news.workers, ReadWorkers(object));
  return News(std::move(news));
}

absl::StatusOr<Order> ReadOrder(std::string_view line) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, ReadObject(line));
  Reader read(value.get_object());
  Order order;
  const std::optional<size_t> kind = PlaceOf(kOrders, read.Text("order"));
  order.model = read.Text("model");
  order.job = static_cast<uint64_t>(read.Number("job"));
  order.most_bytes = read.Number("most_bytes");
  QUIRE_RETURN_IF_ERROR(read.status());
  if (!kind) return InvalidArgument("order: must be load, unload, pull, remove or cancel");
  order.kind = static_cast<OrderKind>(*kind);
  if (order.kind != OrderKind::kCancel) QUIRE_RETURN_IF_ERROR(CheckName(order.model));
  return order;
}

std::optional<std::string> LineCutter::Next() {
  const size_t end = text_.find('\n', read_);
  if (end == std::string::npos) {
    text_.erase(0, std::exchange(read_, 0));
    return std::nullopt;
  }
  std::string line = text_.substr(read_, end - read_);
  read_ = end + 1;
  return line;
}

bool LineCutter::spoilt() const { return text_.size() - read_ > kMaxLineBytes; }

}  // namespace quire::serve

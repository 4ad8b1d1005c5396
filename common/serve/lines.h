// What `quire serve` and its router say to each other about the models of this machine: one JSON
// object a line, over a socket pair that only these two hold.
//
// Values and pure functions; any thread. Lines come from another process: their sizes are bounded,
// and one that is wrong is an error with its member's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"

namespace quire::serve {

inline constexpr size_t kMaxLineBytes = 64u << 10;
inline constexpr size_t kMaxModels = 1000;  // of one machine, whether loaded or not
inline constexpr size_t kMaxModelNameBytes = 512;
inline constexpr size_t kMaxJobs = 4;  // pulls and removals under way

enum class ModelState : uint8_t { kAbsent, kLoading, kReady, kStopping };
std::string_view ModelStateName(ModelState state);

// A worker of a loaded model, by HOST:PORT.
struct WorkerPlace {
  std::string wire;
  std::string probes;
  std::string label;  // of its metrics
  friend bool operator==(const WorkerPlace&, const WorkerPlace&) = default;
};

// What a model is made of, as its worker found it.
struct ModelMakeup {
  std::string format;        // "gguf" or "safetensors"; empty: no worker has loaded it yet
  std::string family;        // "llama", …
  std::string quantisation;  // of most of its weights: "Q4_K", "BF16", …
  int64_t parameters = 0;
  friend bool operator==(const ModelMakeup&, const ModelMakeup&) = default;
};

// All that is known of a model. To the router.
struct ModelNews {
  std::string name;
  ModelState state = ModelState::kAbsent;
  bool gone = false;         // it is not a model of this machine any more
  bool kept = false;         // it stays loaded, unless somebody asks for its memory
  bool no_room = false;      // absent: there was no memory for it beside the others
  int64_t file_bytes = 0;    // of its weights
  int64_t memory_bytes = 0;  // that it may take while it is loaded
  int64_t modified = 0;      // unix seconds
  ModelMakeup makeup;
  std::vector<WorkerPlace> workers;
  std::string error;  // why the last load failed
};

// The progress of a pull or a removal. To the router.
struct JobNews {
  uint64_t job = 0;
  std::string status;
  int64_t total = 0;
  int64_t completed = 0;
  bool done = false;
  std::string error;  // with done: why it failed
  int code = 0;       // with done: its absl::StatusCode; 0 where it is not known
};
using News = std::variant<ModelNews, JobNews>;

// From the router.
enum class OrderKind : uint8_t { kLoad, kUnload, kPull, kRemove, kCancel };
struct Order {
  OrderKind kind = OrderKind::kLoad;
  std::string model;
  uint64_t job = 0;        // of a pull, a removal, or the one to cancel
  int64_t most_bytes = 0;  // of a pull; 0: no limit
};

// With their newline.
std::string LineOf(const ModelNews& news);
std::string LineOf(const JobNews& news);
std::string LineOf(const Order& order);

// INVALID_ARGUMENT names the member.
absl::StatusOr<News> ReadNews(std::string_view line);
absl::StatusOr<Order> ReadOrder(std::string_view line);

// Cuts what arrives into lines. A line of more than kMaxLineBytes spoils the stream.
class LineCutter {
 public:
  void Add(std::string_view bytes) { text_.append(bytes); }
  // The next whole line, without its newline.
  std::optional<std::string> Next();
  bool spoilt() const;

 private:
  std::string text_;
  size_t read_ = 0;
};

}  // namespace quire::serve

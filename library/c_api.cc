// The functions of quire.h: handles, statuses and texts at the border, the rest in LocalEngine.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "library/local_engine.h"
#include "library/quire.h"

namespace quire {
namespace {

// A handle holds the process that made it, so that a child of fork knows a foreign one at sight.
constexpr int kNumberBits = 24;
constexpr uint64_t kMaxEngines = (uint64_t{1} << kNumberBits) - 1;  // of one process, ever

uint64_t ProcessPart() { return static_cast<uint64_t>(getpid()) << kNumberBits; }

// All engines of this process: what the handles of C mean.
class Table {
 public:
  static Table& Of() {
    static Table* const table = new Table();  // engines may be used while the process exits
    return *table;
  }
  absl::StatusOr<uint64_t> Add(std::shared_ptr<LocalEngine> engine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (last_ >= kMaxEngines) return absl::ResourceExhaustedError("too many engines were made");
    const uint64_t handle = ProcessPart() | ++last_;
    engines_[handle] = std::move(engine);
    return handle;
  }
  std::shared_ptr<LocalEngine> Find(uint64_t handle) {
    if ((handle >> kNumberBits) << kNumberBits != ProcessPart()) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = engines_.find(handle);
    return found == engines_.end() ? nullptr : found->second;
  }
  std::shared_ptr<LocalEngine> Take(uint64_t handle) {
    std::shared_ptr<LocalEngine> engine = Find(handle);
    if (engine == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    return engines_.erase(handle) == 0 ? nullptr : engine;
  }

 private:
  // A fork takes the table when no other thread is inside.
  Table() {
    pthread_atfork([] { Of().mutex_.lock(); }, [] { Of().mutex_.unlock(); },
                   [] { Of().mutex_.unlock(); });
  }

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<LocalEngine>> engines_;  // under mutex_
  uint64_t last_ = 0;                                         // under mutex_
};

std::string& LastError() {
  thread_local std::string text;
  return text;
}

quire_status Fail(quire_status status, std::string_view why) {
  LastError() = why;
  return status;
}

quire_status Fail(const absl::Status& status) {
  const std::string why = StatusMessage(status);
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return Fail(QUIRE_NO_MODEL, why);
    case absl::StatusCode::kCancelled:
      return Fail(QUIRE_GONE, why);
    case absl::StatusCode::kResourceExhausted:
      return Fail(QUIRE_FULL, why);
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
      return Fail(QUIRE_FAILED, why);
    default:
      return Fail(QUIRE_INVALID, why);
  }
}

// Runs `work`; nothing that it throws goes past here.
template <class Work>
quire_status Guarded(const Work& work) noexcept {
  try {
    LastError().clear();
    return work();
  } catch (const std::bad_alloc&) {
    return QUIRE_FAILED;  // no memory for words either
  } catch (const std::exception& error) {
    return Fail(QUIRE_FAILED, error.what());
  } catch (...) {
    return Fail(QUIRE_FAILED, "an unknown error");
  }
}

// The same with the engine of a handle.
template <class Work>
quire_status WithEngine(uint64_t handle, const Work& work) noexcept {
  return Guarded([&] {
    const std::shared_ptr<LocalEngine> engine = Table::Of().Find(handle);
    if (engine == nullptr) {
      return Fail(QUIRE_GONE, "no such engine: it was destroyed, or is of a process before fork");
    }
    return work(*engine);
  });
}

quire_status ReadText(const char* text, std::string_view name, std::string_view& out) {
  if (text == nullptr) return Fail(QUIRE_INVALID, std::string(name) + ": is NULL");
  const size_t size = strnlen(text, QUIRE_MAX_INPUT_BYTES + 1);
  if (size > QUIRE_MAX_INPUT_BYTES) {
    return Fail(QUIRE_INVALID, std::string(name) + ": has more than " +
                                   std::to_string(QUIRE_MAX_INPUT_BYTES) + " bytes");
  }
  out = {text, size};
  return QUIRE_OK;
}

quire_status NoPlace(std::string_view name) {
  return Fail(QUIRE_INVALID, std::string(name) + ": is NULL; there is no place for the result");
}

quire_status Give(const absl::StatusOr<std::string>& text, char** out) {
  if (!text.ok()) return Fail(text.status());
  char* copy = static_cast<char*>(std::malloc(text->size() + 1));
  if (copy == nullptr) return Fail(QUIRE_FAILED, "no memory for the result");
  std::memcpy(copy, text->c_str(), text->size() + 1);
  *out = copy;
  return QUIRE_OK;
}

}  // namespace
}  // namespace quire

using quire::Fail;
using quire::Give;
using quire::Guarded;
using quire::LocalEngine;
using quire::NoPlace;
using quire::ReadText;
using quire::Table;
using quire::WithEngine;

extern "C" {

int quire_abi_version(void) { return QUIRE_ABI_VERSION; }

const char* quire_version(void) { return QUIRE_VERSION; }

const char* quire_last_error(void) { return quire::LastError().c_str(); }

quire_status quire_engine_create(const char* options, uint64_t* engine) {
  return Guarded([&] {
    if (engine == nullptr) return NoPlace("engine");
    std::string_view text;
    if (const quire_status bad = ReadText(options, "options", text); bad != QUIRE_OK) return bad;
    absl::StatusOr<std::unique_ptr<LocalEngine>> made = LocalEngine::Make(text);
    if (!made.ok()) return Fail(made.status());
    const absl::StatusOr<uint64_t> handle = Table::Of().Add(*std::move(made));
    if (!handle.ok()) return Fail(handle.status());
    *engine = *handle;
    return QUIRE_OK;
  });
}

quire_status quire_engine_destroy(uint64_t handle) {
  return Guarded([&] {
    const std::shared_ptr<LocalEngine> engine = Table::Of().Take(handle);
    if (engine == nullptr) {
      return Fail(QUIRE_GONE, "no such engine: it was destroyed, or is of a process before fork");
    }
    engine->Close();  // calls that run keep its memory until they return
    return QUIRE_OK;
  });
}

quire_status quire_engine_info(uint64_t handle, char** info) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (info == nullptr) return NoPlace("info");
    return Give(engine.Info(), info);
  });
}

quire_status quire_engine_submit(uint64_t handle, const char* request, unsigned flags,
                                 uint64_t* number) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (number == nullptr) return NoPlace("number");
    if ((flags & ~(QUIRE_STREAM | QUIRE_RAW)) != 0) {
      return Fail(QUIRE_INVALID, "flags: must be QUIRE_STREAM and QUIRE_RAW, or 0");
    }
    std::string_view text;
    if (const quire_status bad = ReadText(request, "request", text); bad != QUIRE_OK) return bad;
    const absl::StatusOr<uint64_t> started =
        engine.Submit(text, {(flags & QUIRE_STREAM) != 0, (flags & QUIRE_RAW) != 0});
    if (!started.ok()) return Fail(started.status());
    *number = *started;
    return QUIRE_OK;
  });
}

quire_status quire_engine_cancel(uint64_t handle, uint64_t number) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    engine.Cancel(number);
    return QUIRE_OK;
  });
}

quire_status quire_engine_poll(uint64_t handle, int timeout_ms, char** events) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (events == nullptr) return NoPlace("events");
    return Give(engine.Poll(timeout_ms), events);
  });
}

quire_status quire_engine_tokenize(uint64_t handle, const char* request, char** ids) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (ids == nullptr) return NoPlace("ids");
    std::string_view text;
    if (const quire_status bad = ReadText(request, "request", text); bad != QUIRE_OK) return bad;
    return Give(engine.Tokenize(text), ids);
  });
}

quire_status quire_engine_render(uint64_t handle, const char* request, char** text) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (text == nullptr) return NoPlace("text");
    std::string_view input;
    if (const quire_status bad = ReadText(request, "request", input); bad != QUIRE_OK) return bad;
    return Give(engine.Render(input), text);
  });
}

quire_status quire_engine_detokenize(uint64_t handle, const int32_t* ids, uint64_t count,
                                     int skip_special_tokens, char** text) {
  return WithEngine(handle, [&](LocalEngine& engine) {
    if (text == nullptr) return NoPlace("text");
    if (ids == nullptr && count > 0) return Fail(QUIRE_INVALID, "ids: is NULL");
    if (count > QUIRE_MAX_INPUT_BYTES / sizeof(int32_t)) {
      return Fail(QUIRE_INVALID,
                  "count: is more than " + std::to_string(QUIRE_MAX_INPUT_BYTES / sizeof(int32_t)));
    }
    return Give(engine.Detokenize({ids, static_cast<size_t>(count)}, skip_special_tokens != 0),
                text);
  });
}

void quire_free(char* text) { std::free(text); }

}  // extern "C"

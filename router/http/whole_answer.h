// A whole answer, which may be megabytes: large ones are written on a background thread, so that no
// turn of the loop writes them for one client.
//
// Owner: the call that answers; event loop only. When the call goes, nothing more is written for
// it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "router/core/result.h"
#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

class WholeAnswerWriter {
 public:
  WholeAnswerWriter() = default;
  WholeAnswerWriter(const WholeAnswerWriter&) = delete;
  ~WholeAnswerWriter() { *left_ = true; }

  static bool IsLarge(const HttpServices& services, size_t bytes) {
    return bytes > services.limits.background_write_bytes;
  }

  // Writes an answer of about so many bytes, which are charged until `done` has it. `write` holds
  // what it needs, and is destroyed with it. The error: there is no memory for the answer, or no
  // place among the background's work; nothing follows then.
  std::optional<ApiError> Write(HttpServices& services,
                                const std::shared_ptr<const TenantProfile>& tenant, size_t bytes,
                                std::function<HttpResponse()> write,
                                std::function<void(HttpResponse)> done) {
    struct Job {
      explicit Job(std::shared_ptr<MemoryAccount> account) : hold(std::move(account)) {}
      MemoryHold hold;
      std::function<HttpResponse()> write;
      HttpResponse response;
    };
    const auto job = std::make_shared<Job>(services.pipeline.MemoryOf(tenant.get()));
    if (!job->hold.TryResize(bytes)) return NoMemoryForAnswer();
    job->write = std::move(write);
    const bool taken = services.background.RunFor(
        {NameOf(tenant), bytes, left_},
        [job] {
          job->response = job->write();
          job->write = nullptr;
        },
        [job, left = left_, done = std::move(done)] {
          if (!*left) done(std::move(job->response));
        });
    return taken ? std::nullopt : std::optional(TooManyLargeRequests());
  }

 private:
  const std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace quire

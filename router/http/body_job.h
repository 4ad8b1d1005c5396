// A request's body while it is parsed, off the event loop where it is large.
//
// Owner: its call, and the background that parses it. Parse runs on some thread, everything else on
// the event loop.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "router/core/result.h"
#include "router/http/exchange.h"
#include "router/http/services.h"
#include "router/keys/tenant_access.h"

namespace quire {

struct BodyJob {
  // Takes the body out of `request`.
  BodyJob(HttpServices& services, HttpRequest& request)
      : hold(std::move(request.hold)),
        body(std::move(request.body)),
        read(services.pipeline.MemoryOf(request.tenant.get())),
        limits(services.request_limits) {
    limits.hold = &read;
  }

  // Its client has gone: the body is not parsed any more, and nothing follows.
  std::atomic<bool> cancelled{false};
  std::shared_ptr<const MemoryHold> hold;
  std::string body;
  MemoryHold read;  // the result of parsing the body
  RequestLimits limits;
  std::optional<ApiError> problem;
};

// Calls the job's Parse and then, unless it was cancelled, its Done. False: neither will run, since
// too many large bodies wait.
template <class Job>
bool ParseBody(HttpServices& services, const std::shared_ptr<const TenantProfile>& tenant,
               const std::shared_ptr<Job>& job) {
  const auto done = [job] {
    if (!job->cancelled) job->Done();
  };
  if (job->body.size() <= services.limits.background_parse_bytes) {
    job->Parse();
    done();
    return true;
  }
  const WorkShare share{NameOf(tenant), job->body.size(), {job, &job->cancelled}};
  return services.background.RunFor(
      share, [job] { job->Parse(); }, done);
}

}  // namespace quire

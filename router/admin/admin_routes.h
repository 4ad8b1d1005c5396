// What an operator may see and do on the admin port, which listens on loopback only and requires
// its own token.
//
// Event loop only.
#pragma once

#include <functional>
#include <string>

#include "router/admin/recent_requests.h"
#include "router/http/routes.h"

namespace quire {

// What the routes work on; outlives the sessions.
struct AdminActions {
  const RecentRequests& recent;
  std::function<void()> drain;     // has the effect of SIGTERM; a second call does nothing
  std::function<bool()> draining;  // the drain is under way
};

// The life of one request, or the list of those that the router knows, where `request_id` is empty.
HttpResponse RequestView(const Pipeline& pipeline, const RecentRequests& recent,
                         const Executor& executor, const std::string& request_id);

// For HttpServices::routes, whose `admin` is set then.
const RouteTable& AdminRoutes();

}  // namespace quire

// What an operator may see and do on the admin port, which listens on loopback only and requires
// its own token.
//
// Event loop only.
#pragma once

#include <functional>

#include "router/admin/recent_requests.h"
#include "router/http/routes.h"

namespace quire {

// What the routes work on; outlives the sessions.
struct AdminActions {
  const RecentRequests& recent;
  std::function<void()> drain;     // has the effect of SIGTERM; a second call does nothing
  std::function<bool()> draining;  // the drain is under way
};

// For HttpServices::routes, whose `admin` is set then.
const RouteTable& AdminRoutes();

}  // namespace quire

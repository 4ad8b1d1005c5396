// The one table of what is served to clients over HTTP, and the dispatch through this table or
// another one.
//
// Event loop only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

// Who may call a route.
enum class Access : uint8_t {
  kOpen,      // anyone: probes, and metrics that are scraped
  kKey,       // holders of a key, where keys are configured
  kOperator,  // holders of the admin token; anyone where HttpServices::fleet_is_open says so
  kMetrics,   // the same by HttpServices::metrics_are_open: metrics name tenants
};

struct Route {
  Access access = Access::kKey;
  std::string_view method;
  std::string_view
      path;  // a path that ends in '/' serves everything below it, but "/" serves itself alone
  // Answers at once and returns nullptr, or returns the call that will answer.
  std::unique_ptr<Call> (*handle)(HttpServices& services, HttpRequest request,
                                  Exchange& exchange) = nullptr;
  // The content types that the route reads, with spaces between; a body without a type is read as
  // the first one.
  std::string_view body_types = "application/json";
};
struct RouteTable {
  std::span<const Route> routes;
};
const RouteTable& PublicRoutes();
// These, and those that load, unload, pull and remove the models of a machine.
const RouteTable& MachineRoutes();
// Of the port that --metrics-port gives: metrics and probes.
const RouteTable& MetricsRoutes();

// The access of any method at the path; an unserved path needs a key too.
Access AccessOf(const RouteTable& table, std::string_view path);

// The content types for this method at the path; empty: nothing is served, or no body is read.
std::string_view BodyTypesOf(const RouteTable& table, std::string_view method,
                             std::string_view path);

// Answers 404 and 405 where no route fits. HEAD goes where GET goes; the session drops the body.
std::unique_ptr<Call> Dispatch(HttpServices& services, HttpRequest request, Exchange& exchange);

// Counts fields that no route knows, and names them in the log.
void CountUnknownFields(HttpServices& services, const std::string& request_id,
                        const trace::RequestTrace& trace, const std::vector<std::string>& names);

// The remaining time that a request's headers grant, where they state one.
std::optional<ApiError> ReadTimeouts(const HttpRequest& request, uint64_t& timeout_ms);

// What else a request's headers state: trace, session and tenant.
void ApplyHeaders(const HttpRequest& request, GenerateRequest& out);

// The query of a request target, without the question mark.
std::string_view QueryOfTarget(std::string_view target);

// Percent-decodes the path of a request target and cuts the query off; a path below /openai/v1/
// becomes one below /v1/. False: not a path.
bool PathOfTarget(std::string_view target, std::string& path);

}  // namespace quire

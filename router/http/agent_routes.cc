#include "router/http/agent_routes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/json/json.h"
#include "router/http/agent_call.h"
#include "router/http/errors.h"
#include "router/http/object_path.h"
#include "router/messages/request.h"
#include "router/responses/request.h"
#include "router/responses/store.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;
using responses::Keeping;
using responses::KeptResponse;
using responses::Turn;

CallPtr Reply(Exchange& exchange, const ApiError& error) {
  exchange.Reply(ErrorResponse(error));
  return nullptr;
}

// /v1/responses/ID and what follows the id.
struct KeptPath : ObjectPath {
  KeptPath(const HttpServices& services, const HttpRequest& request)
      : ObjectPath(request.path, "/v1/responses/") {
    keeps = services.responses != nullptr;
    kept = Keeping{services.responses, NameOf(request.tenant)}.Find(id);
  }
  ApiError NotFound() const {
    return {ApiCode::kNotFound,
            "Response with id '" + id.substr(0, 128) + "' not found" +
                (keeps ? "."
                       : ": no responses are kept here (--responses-store), and each request "
                         "brings its whole conversation"),
            "", 0};
  }
  ApiError NothingServed() const {
    return {ApiCode::kNotFound,
            "nothing is served below a response at " + rest.substr(0, 128) +
                "; GET /v1/responses/ID and …/input_items are, DELETE /v1/responses/ID and POST "
                "…/cancel",
            "", 0};
  }

  bool keeps = false;
  std::shared_ptr<const KeptResponse> kept;
};

ApiError AsItIs(ApiError error) { return error; }

std::optional<ApiError> ReadMessage(std::string_view body, const RequestLimits& limits,
                                    AgentRequest& out) {
  return messages::ReadRequest(body, messages::Purpose::kAnswer, limits, out);
}
std::optional<ApiError> ReadMessageToCount(std::string_view body, const RequestLimits& limits,
                                           AgentRequest& out) {
  return messages::ReadRequest(body, messages::Purpose::kCount, limits, out);
}

constexpr AgentApi kResponses{responses::ReadRequest, responses::InClientsWords};
constexpr CountApi kResponseInput{responses::ReadRequest, responses::InClientsWords,
                                  "response.input_tokens"};
constexpr AgentApi kMessages{
    ReadAlone<ReadMessage>, AsItIs, {.keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n"}};
constexpr CountApi kMessageTokens{ReadAlone<ReadMessageToCount>, AsItIs, {}};

}  // namespace

CallPtr CreateResponse(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kResponses, std::move(request), exchange);
}

CallPtr CountResponseInput(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return BeginCount(services, kResponseInput, std::move(request), exchange);
}

CallPtr ReadResponse(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const KeptPath path(services, request);
  if (path.kept == nullptr) return Reply(exchange, path.NotFound());
  const Turn& turn = path.kept->turn;
  HttpResponse response;
  if (path.rest.empty()) {
    // The text stays alive with its response.
    response.shared_body = std::shared_ptr<const std::string>(path.kept, &turn.response);
  } else if (path.rest == "/input_items") {
    response.body = "{\"object\":\"list\",\"data\":[" + turn.items + "],\"has_more\":false}";
  } else {
    return Reply(exchange, path.NothingServed());
  }
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr DeleteResponse(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const KeptPath path(services, request);
  if (path.kept == nullptr) return Reply(exchange, path.NotFound());
  if (!path.rest.empty()) return Reply(exchange, path.NothingServed());
  services.responses->Erase(NameOf(request.tenant), path.id);
  HttpResponse response;
  response.body = "{\"id\":";
  json::AppendQuoted(path.id, response.body);
  response.body += ",\"object\":\"response\",\"deleted\":true}";
  exchange.Reply(std::move(response));
  return nullptr;
}

CallPtr CancelResponse(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const KeptPath path(services, request);
  if (path.kept == nullptr) return Reply(exchange, path.NotFound());
  if (path.rest != "/cancel") return Reply(exchange, path.NothingServed());
  return Reply(exchange, {ApiCode::kInvalidArgument,
                          "the response \"" + path.id +
                              "\" has ended: only a background response can be cancelled, and "
                              "none is served; close the connection to end an answer",
                          "", 0});
}

CallPtr CreateMessage(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kMessages, std::move(request), exchange);
}

CallPtr CountMessageTokens(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return BeginCount(services, kMessageTokens, std::move(request), exchange);
}

}  // namespace quire

// Credentials over HTTP: every route of the table without, with wrong and with another tenant's.
#include <gtest/gtest.h>

#include <set>

#include "router/http/routes.h"
#include "tests/router/support/edge_harness.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

struct Census {
  std::string_view method;
  std::string_view path;  // of the table
  bool open = false;      // for everyone
  std::string body = {};
  std::string target = {};  // what is asked for, where it is not the path itself
  int beta_status = 200;    // for a tenant that may use another model only
  bool operators = false;   // for holders of the admin token alone: no client's key opens it
  int own_status = 200;     // for a tenant that may use the model
};

// What each route shall be, off loopback. A route that is not listed here fails the test.
const std::vector<Census>& Expected() {
  static const auto& expected = *new std::vector<Census>{
      {"POST", "/v1/chat/completions", false,
       R"({"model":"demo","messages":[{"role":"user","content":"x"}]})", "", 404},
      {"POST", "/v1/completions", false, R"({"model":"demo","prompt":"x"})", "", 404},
      {"POST", "/v1/responses", false, R"({"model":"demo","input":"x"})", "", 404},
      {"POST", "/v1/responses/input_tokens", false, R"({"model":"demo","input":"x"})", "", 404},
      {"GET", "/v1/responses/", false, "", "/v1/responses/resp_1", 404, false, 404},
      {"DELETE", "/v1/responses/", false, "", "/v1/responses/resp_1", 404, false, 404},
      {"POST", "/v1/responses/", false, "", "/v1/responses/resp_1/cancel", 404, false, 404},
      {"POST", "/v1/messages", false,
       R"({"model":"demo","max_tokens":3,"messages":[{"role":"user","content":"x"}]})", "", 404},
      {"POST", "/v1/messages/count_tokens", false,
       R"({"model":"demo","messages":[{"role":"user","content":"x"}]})", "", 404},
      {"POST", "/v1/files", false, "", "", 404, false, 404},
      {"GET", "/v1/files", false, "", "", 404, false, 404},
      {"GET", "/v1/files/", false, "", "/v1/files/file-1", 404, false, 404},
      {"DELETE", "/v1/files/", false, "", "/v1/files/file-1", 404, false, 404},
      {"POST", "/v1/batches", false, "{}", "", 404, false, 404},
      {"GET", "/v1/batches", false, "", "", 404, false, 404},
      {"GET", "/v1/batches/", false, "", "/v1/batches/batch_1", 404, false, 404},
      {"POST", "/v1/batches/", false, "", "/v1/batches/batch_1/cancel", 404, false, 404},
      {"GET", "/v1/models", false},
      {"GET", "/v1/models/", false, "", "/v1/models/demo", 404},
      {"POST", "/api/generate", false, R"({"model":"demo","prompt":"x"})", "", 404},
      {"POST", "/api/chat", false, R"({"model":"demo","messages":[{"role":"user","content":"x"}]})",
       "", 404},
      {"GET", "/api/tags", false},
      {"GET", "/api/ps", false},
      {"POST", "/api/show", false, R"({"model":"demo"})", "", 404},
      {"GET", "/api/version", false},
      {"POST", "/api/create", false, R"({"model":"x"})", "", 501, false, 501},
      {"POST", "/api/copy", false, R"({"source":"demo","destination":"x"})", "", 501, false, 501},
      {"POST", "/api/push", false, R"({"model":"demo"})", "", 501, false, 501},
      {"POST", "/api/blobs/", false, "", "/api/blobs/sha256:00", 501, false, 501},
      {"POST", "/api/embed", false, R"({"model":"demo","input":"x"})", "", 501, false, 501},
      {"POST", "/api/embeddings", false, R"({"model":"demo","prompt":"x"})", "", 501, false, 501},
      {"POST", "/tokenize", false, R"({"model":"demo","prompt":"x"})", "", 404},
      {"POST", "/detokenize", false, R"({"model":"demo","tokens":[65]})", "", 404},
      {"GET", "/tokenizer_info", false, "", "", 404},
      {"GET", "/tokenizer_info/", false, "", "/tokenizer_info/demo", 404},
      {"GET", "/v2", false},
      {"GET", "/v2/health/live", true},
      {"GET", "/v2/health/ready", true},
      {"GET", "/v2/models", false},
      {"GET", "/v2/models/", false, "", "/v2/models/demo/ready", 404},
      {"POST", "/v2/models/", false, R"({"text_input":"x"})", "/v2/models/demo/generate", 404},
      {"GET", "/livez", true},
      {"GET", "/readyz", true},
      {"GET", "/health", true},
      {"GET", "/version", false},
      {"GET", "/metrics", false, "", "", 403, true},
      {"GET", "/", true},
      {"GET", "/page.css", true},
      {"GET", "/page.js", true},
      {"GET", "/chat.js", true},
      {"GET", "/markdown.js", true},
      {"POST", "/v1/load_lora_adapter", false, R"({"lora_name":"x","lora_path":"x"})", "", 403,
       true},
      {"POST", "/v1/unload_lora_adapter", false, R"({"lora_name":"x"})", "", 403, true},
      {"GET", "/fleet", false, "", "", 403, true},
      {"GET", "/admin/requests", false, "", "", 403, true},
      {"GET", "/admin/requests/", false, "", "/admin/requests/r1", 403, true},
  };
  return expected;
}

std::string Request(const Census& census, const std::string& headers) {
  const std::string target(census.target.empty() ? std::string(census.path) : census.target);
  if (census.method == "POST") return EdgeHarness::Post(target, census.body, headers);
  return std::string(census.method) + EdgeHarness::Get(target, headers).substr(3);
}

std::string Bearer(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

TEST(HttpKeys, EveryRouteIsInTheCensus) {
  std::set<std::pair<std::string_view, std::string_view>> listed, served;
  for (const Census& census : Expected()) listed.insert({census.method, census.path});
  for (const Route& route : PublicRoutes().routes) served.insert({route.method, route.path});
  EXPECT_EQ(listed, served);
}

TEST(HttpKeys, CensusOfRoutesAndCredentials) {
  EdgeHarness edge({}, TestKeys());
  edge.OnLoop([&] { edge.services.metrics_are_open = false; });
  for (const Census& census : Expected()) {
    SCOPED_TRACE(std::string(census.path));
    if (census.operators) {  // no key is one here
      for (const std::string& key : {std::string(), Bearer(kAcmeKey), Bearer("wrong-key")}) {
        EXPECT_EQ(edge.Ask(Request(census, key)).status, 403);
      }
      continue;
    }
    for (const std::string& wrong :
         {std::string(), Bearer("wrong-key"), std::string("Authorization: Basic a2V5\r\n"),
          std::string("Authorization: Bearer\r\n"), Bearer(kAcmeKey) + Bearer(kAcmeKey),
          std::string("Api-Key: key-of-acme-in-tests\r\n")}) {
      const RawResponse refused = edge.Ask(Request(census, wrong));
      EXPECT_EQ(refused.status, census.open ? 200 : 401) << wrong;
      if (census.open) continue;
      const bool error_alone = census.path.starts_with("/api/") || census.path.starts_with("/v2");
      EXPECT_EQ(refused.body.find("\"type\":\"authentication_error\"") == std::string::npos,
                error_alone);
      EXPECT_EQ(refused.body.starts_with("{\"error\":\""), error_alone);
      const bool has_code = !error_alone && !census.path.starts_with("/v1/messages");
      EXPECT_EQ(refused.body.find("\"code\":\"invalid_api_key\"") != std::string::npos, has_code);
      EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
      EXPECT_EQ(refused.body.find("wrong-key"), std::string::npos);
    }
    EXPECT_EQ(edge.Ask(Request(census, Bearer(kAcmeKey))).status, census.own_status);
    // Another tenant's name under a key of one's own, and another tenant's model.
    const int claimed =
        edge.Ask(Request(census, Bearer(kAcmeKey) + "x-quire-tenant: beta\r\n")).status;
    EXPECT_EQ(claimed, census.open ? 200 : 403);
    EXPECT_EQ(edge.Ask(Request(census, Bearer(kBetaKey))).status, census.beta_status);
  }
  // What is not served tells a stranger nothing.
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/nothing")).status, 401);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/v1/completions")).status, 401);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/nothing", Bearer(kAcmeKey))).status, 404);
  EXPECT_EQ(edge.Ask("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n").status, 401);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/health/../v1/models")).status, 401);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/v1%2Fmodels")).status, 401);
  EXPECT_EQ(edge.Ask("GET http://x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n").status, 401);
}

// Those of a machine are for operators alone, and no other router has them.
TEST(HttpKeys, RoutesThatLoadAndPullModelsAreForOperatorsAndOnMachinesAlone) {
  const std::set<std::pair<std::string_view, std::string_view>> machine = {
      {"POST", "/v2/repository/index"},
      {"POST", "/v2/repository/models/"},
      {"POST", "/sleep"},
      {"POST", "/wake_up"},
      {"GET", "/is_sleeping"},
      {"POST", "/api/pull"},
      {"DELETE", "/api/delete"},
  };
  std::set<std::pair<std::string_view, std::string_view>> only;
  for (const Route& route : MachineRoutes().routes) only.insert({route.method, route.path});
  for (const Route& route : PublicRoutes().routes) only.erase({route.method, route.path});
  EXPECT_EQ(only, machine);
  for (const auto& [method, path] : machine) {
    const std::string below = std::string(path) + (path.ends_with('/') ? "demo/load" : "");
    EXPECT_EQ(AccessOf(MachineRoutes(), below), Access::kOperator) << below;
    EdgeHarness cluster;
    EXPECT_EQ(cluster.Ask(EdgeHarness::Post(below, "{}")).status, 404) << below;
    EdgeHarness edge({}, TestKeys());
    edge.OnLoop([&] { edge.services.routes = &MachineRoutes(); });
    for (const std::string& key : {std::string(), Bearer(kAcmeKey), Bearer("wrong-key")}) {
      std::string request = EdgeHarness::Get(below, key);
      if (method == "POST") request = EdgeHarness::Post(below, "{}", key);
      if (method == "DELETE") request.replace(0, 3, "DELETE");
      EXPECT_EQ(edge.Ask(request).status, 403) << below;
    }
  }
}

TEST(HttpKeys, AKeyMayComeAsAnthropicsClientsSendIt) {
  EdgeHarness edge({}, TestKeys());
  const auto ask = [&](const std::string& headers) {
    return edge.Ask(EdgeHarness::Get("/v1/models", headers)).status;
  };
  const std::string good = std::string("X-Api-Key: ") + kAcmeKey + "\r\n";
  EXPECT_EQ(ask(good), 200);
  EXPECT_EQ(ask("x-api-key: wrong-key\r\n"), 401);
  EXPECT_EQ(ask("x-api-key:\r\n"), 401);
  EXPECT_EQ(ask(good + good), 401) << "which of them?";
  // Authorization goes first: clients that know both send it on purpose.
  EXPECT_EQ(ask(Bearer(kAcmeKey) + "x-api-key: wrong-key\r\n"), 200);
  EXPECT_EQ(ask(Bearer("wrong-key") + good), 401);
}

TEST(HttpKeys, MetricsAskForTheAdminTokenWhereTheyAreNotOpen) {
  EdgeHarness edge({}, TestKeys());
  const auto ask = [&](const std::string& headers) {
    return edge.Ask(EdgeHarness::Get("/metrics", headers));
  };
  EXPECT_EQ(ask("").status, 200) << "open, as on loopback";
  KeyRing operators(*KeyTable::OfPlainKeys({"the-operators-token"}, "admin"), edge.metrics,
                    edge.log, "admin");
  edge.OnLoop([&] { edge.services.metrics_are_open = false; });
  EXPECT_NE(ask(Bearer(kAcmeKey)).body.find("--metrics-port"), std::string::npos);
  edge.OnLoop([&] { edge.services.operators = &operators; });
  EXPECT_EQ(ask("").status, 401);
  EXPECT_EQ(ask(Bearer(kAcmeKey)).status, 401);
  EXPECT_EQ(ask(Bearer("the-operators-token")).status, 200);
  // A port of their own serves them, probes, and nothing else.
  edge.OnLoop([&] {
    edge.services.routes = &MetricsRoutes();
    edge.services.metrics_are_open = true;
  });
  for (const char* path : {"/metrics", "/livez", "/readyz", "/health"}) {
    EXPECT_EQ(edge.Ask(EdgeHarness::Get(path)).status, 200) << path;
  }
  for (const Census& census : Expected()) {
    if (census.open || census.path == "/metrics") continue;
    EXPECT_EQ(edge.Ask(Request(census, "")).status, 401) << census.path;
    EXPECT_EQ(edge.Ask(Request(census, Bearer(kAcmeKey))).status, 404) << census.path;
  }
}

// What follows a body is no header, however the request is cut.
TEST(HttpKeys, TrailersSayNothing) {
  EdgeHarness edge({}, TestKeys());
  const std::string body = R"({"model":"demo","prompt":"x","max_tokens":1})";
  const auto request = [&](const std::string& headers, const std::string& trailers) {
    char size[16];
    std::snprintf(size, sizeof(size), "%zx", body.size());
    return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
           headers + "Transfer-Encoding: chunked\r\n\r\n" + size + "\r\n" + body + "\r\n0\r\n" +
           trailers + "\r\n";
  };
  const auto ask = [&](const std::string& bytes, size_t cut) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    RawClient client(pair[0]);
    edge.OnLoop([&] {
      edge.http->Adopt(EdgeStream(edge.executor.context(), pair[1]), bytes.substr(0, cut), nullptr);
    });
    client.Send(std::string_view(bytes).substr(cut));
    return client.ReadResponse();
  };
  const std::string stranger = request("", Bearer(kAcmeKey));
  const std::string gateway = request(Bearer(kGatewayKey) + "X-Request-Id: of-the-head\r\n",
                                      "X-Quire-Tenant: beta\r\nX-Request-Id: of-the-trailer\r\n");
  for (size_t cut = 0; cut <= stranger.size(); ++cut) {
    ASSERT_EQ(ask(stranger, cut).status, 401) << cut;
  }
  for (size_t cut = 0; cut <= gateway.size(); ++cut) {
    const RawResponse answer = ask(gateway, cut);
    ASSERT_EQ(answer.status, 200) << cut;
    ASSERT_EQ(answer.headers.at("x-request-id"), "of-the-head") << cut;
  }
  edge.OnLoop([&] {
    for (const GenerateRequest& seen : edge.pipeline.seen) EXPECT_EQ(seen.tenant->name, "gateway");
  });
}

TEST(HttpKeys, WithoutKeysNothingIsAsked) {
  EdgeHarness edge;
  for (const Census& census : Expected()) {
    if (census.operators) continue;
    for (const char* headers : {"", "x-quire-tenant: acme\r\n"}) {
      EXPECT_EQ(edge.Ask(Request(census, headers)).status, census.own_status) << census.path;
    }
  }
  edge.OnLoop([&] {
    for (const GenerateRequest& request : edge.pipeline.seen) EXPECT_EQ(request.tenant, nullptr);
  });
}

TEST(HttpKeys, StrangersAreRefusedBeforeTheirBodyIsRead) {
  EdgeHarness edge({}, TestKeys());
  RawClient client = edge.Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
      "Expect: 100-continue\r\n\r\n");
  const RawResponse refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.head.find("100 Continue"), std::string::npos);
  EXPECT_EQ(refused.headers.at("connection"), "close");
}

TEST(HttpKeys, TheTenantTravelsWithTheRequest) {
  EdgeHarness edge({}, TestKeys());
  const std::string body = R"({"model":"demo","prompt":"x","priority":-7})";
  const auto ask = [&](const std::string& headers) {
    return edge.Ask(EdgeHarness::Post("/v1/completions", body, headers)).status;
  };
  EXPECT_EQ(ask(Bearer(kAcmeKey)), 200);
  EXPECT_EQ(ask(Bearer(kGatewayKey) + "x-quire-tenant: customer-7\r\n"), 200);
  EXPECT_EQ(ask(Bearer(kGatewayKey) + "x-quire-tenant: a b\r\n"), 403);
  EXPECT_EQ(ask(Bearer(kGatewayKey) + "x-quire-tenant: a\r\nX-Quire-Tenant: b\r\n"), 401);
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.seen.size(), 2u);
    EXPECT_EQ(edge.pipeline.seen[0].tenant->name, "acme");
    EXPECT_EQ(edge.pipeline.seen[0].priority, 0);  // as far ahead as the tenant may go
    EXPECT_EQ(edge.pipeline.seen[1].tenant->name, "customer-7");
    EXPECT_EQ(edge.pipeline.seen[1].priority, -7);
  });
}

TEST(HttpKeys, ModelsAreListedForThoseWhoMayUseThem) {
  EdgeHarness edge({}, TestKeys());
  const auto list = [&](const char* key) {
    return edge.Ask(EdgeHarness::Get("/v1/models", Bearer(key))).body;
  };
  EXPECT_NE(list(kAcmeKey).find("\"demo\""), std::string::npos);
  EXPECT_EQ(list(kBetaKey).find("\"demo\""), std::string::npos);
  const RawResponse refused =
      edge.Ask(EdgeHarness::Post("/v1/completions", R"({"prompt":"x"})", Bearer(kBetaKey)));
  EXPECT_EQ(refused.status, 404);
  EXPECT_NE(refused.body.find("model_not_found"), std::string::npos);
}

TEST(HttpKeys, PipelinedRequestsAreEachHeldToTheirOwnKey) {
  EdgeHarness edge({}, TestKeys());
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Get("/v1/models", Bearer(kAcmeKey)) + EdgeHarness::Get("/v1/models"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(client.ReadResponse().status, 401);
}

}  // namespace
}  // namespace quire

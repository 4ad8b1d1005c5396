// What pages of other sites may do on one's own machine, and which bodies are read.
#include <gtest/gtest.h>

#include "router/http/browser_guard.h"
#include "tests/router/support/edge_harness.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

constexpr char kBody[] = R"({"model":"demo","prompt":"x","max_tokens":1})";

// A request with these headers and no others.
std::string Request(const std::string& line, const std::string& headers,
                    const std::string& body = "") {
  return line + " HTTP/1.1\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

class OwnMachine : public testing::Test {
 protected:
  OwnMachine() {
    edge.OnLoop([this] {
      edge.services.guards_own_machine = edge.services.fleet_is_open = true;
      edge.services.allowed_hosts = {"llm.example"};
      edge.services.cors_origins = {"https://chat.example"};
    });
  }
  int Get(const std::string& path, const std::string& headers) {
    return edge.Ask(Request("GET " + path, headers)).status;
  }
  int Post(const std::string& headers) {
    return edge.Ask(Request("POST /v1/completions", headers, kBody)).status;
  }

  EdgeHarness edge;
};

TEST_F(OwnMachine, ANameThatIsNoneOfOursIsRefused) {
  for (const char* host : {"127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "localhost:8000",
                           "LocalHost", "a.localhost:1", "llm.example", "LLM.example:8000"}) {
    EXPECT_EQ(Get("/v1/models", std::string("Host: ") + host + "\r\n"), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example",
                           "127.0.0.1.evil.example", "evillocalhost"}) {
    for (const char* path : {"/v1/models", "/fleet", "/metrics", "/"}) {
      EXPECT_EQ(Get(path, std::string("Host: ") + host + "\r\n"), 403) << host << path;
    }
  }
}

TEST_F(OwnMachine, PagesOfOtherSitesAreRefused) {
  const std::string host = "Host: localhost:8000\r\n";
  const std::string json = host + "Content-Type: application/json\r\n";
  EXPECT_EQ(Post(json), 200);
  EXPECT_EQ(Post(json + "Origin: http://localhost:8000\r\nSec-Fetch-Site: same-origin\r\n"), 200);
  EXPECT_EQ(Post(json + "Origin: https://chat.example\r\nSec-Fetch-Site: cross-site\r\n"), 200);
  EXPECT_EQ(Post(json + "Origin: https://evil.example\r\n"), 403);
  EXPECT_EQ(Post(json + "Origin: http://localhost:3000\r\n"), 403);
  EXPECT_EQ(Post(json + "Origin: null\r\n"), 403);
  EXPECT_EQ(Post(host + "Content-Type: text/plain\r\nOrigin: https://evil.example\r\n"), 403);
  EXPECT_EQ(Get("/v1/models", host + "Sec-Fetch-Site: cross-site\r\n"), 403);
  EXPECT_EQ(Get("/v1/models", host + "Sec-Fetch-Site: none\r\n"), 200);
  EXPECT_EQ(Get("/", host + "Sec-Fetch-Site: cross-site\r\n"), 200) << "a link to the page";
}

TEST_F(OwnMachine, OfJsonRoutesOtherBodiesAreNotRead) {
  const std::string host = "Host: localhost\r\n";
  const auto of_type = [&](const std::string& type) {
    return Post(host + "Content-Type: " + type + "\r\n");
  };
  EXPECT_EQ(of_type("application/json"), 200);
  EXPECT_EQ(of_type("Application/JSON ; charset=utf-8"), 200);
  EXPECT_EQ(Post(host), 200) << "clients that say nothing mean JSON";
  EXPECT_EQ(of_type("application/x-www-form-urlencoded"), 200) << "curl -d";
  EXPECT_EQ(of_type("text/plain"), 415);
  EXPECT_EQ(of_type("multipart/form-data; boundary=x"), 415);
  EXPECT_EQ(of_type("application/octet-stream"), 415);
  // A browser that is let in says what it sends.
  const std::string page = host + "Origin: http://localhost\r\n";
  EXPECT_EQ(Post(page), 415);
  EXPECT_EQ(Post(page + "Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(Post(page + "Content-Type: application/json\r\n"), 200);
}

TEST(BodyTypes, HoldWithKeysTooWhateverTheHostIsCalled) {
  EdgeHarness edge({}, TestKeys());
  const std::string key = std::string("Authorization: Bearer ") + kAcmeKey + "\r\n";
  const auto ask = [&](const std::string& headers) {
    return edge.Ask(Request("POST /v1/completions", "Host: any.example\r\n" + headers, kBody))
        .status;
  };
  EXPECT_EQ(ask(key), 200);
  EXPECT_EQ(ask(key + "Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(ask("Content-Type: text/plain\r\n"), 401);
}

}  // namespace
}  // namespace quire

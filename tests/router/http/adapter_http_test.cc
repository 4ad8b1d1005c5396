// vLLM's routes that load and unload adapters: bodies, answers, errors, and who is on the machine.
#include <gtest/gtest.h>

#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

class AdapterRoutes : public testing::Test {
 protected:
  AdapterRoutes() {
    edge.OnLoop([this] { edge.services.fleet_is_open = true; });
  }
  RawResponse Load(const std::string& body) {
    return edge.Ask(EdgeHarness::Post("/v1/load_lora_adapter", body));
  }
  RawResponse Unload(const std::string& body) {
    return edge.Ask(EdgeHarness::Post("/v1/unload_lora_adapter", body));
  }

  EdgeHarness edge;
};

TEST_F(AdapterRoutes, AnOrderGoesToThePipelineWhole) {
  const RawResponse added = Load(
      R"({"lora_name":"sql","lora_path":"/a/b","load_inplace":true,"base_model_name":"demo"})");
  EXPECT_EQ(added.status, 200);
  EXPECT_EQ(added.body, "Success: LoRA adapter 'sql' added successfully.");
  EXPECT_EQ(added.headers.at("content-type"), "text/plain; charset=utf-8");
  const RawResponse removed = Unload(R"({"lora_name":"sql","lora_int_id":null})");
  EXPECT_EQ(removed.status, 200);
  EXPECT_EQ(removed.body, "Success: LoRA adapter 'sql' removed successfully.");
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.orders.size(), 2u);
    const AdapterAsk& load = edge.pipeline.orders[0];
    EXPECT_EQ(load.order.kind, AdapterOrder::Kind::kLoad);
    EXPECT_EQ(load.order.name, "sql");
    EXPECT_EQ(load.order.path, "/a/b");
    EXPECT_TRUE(load.order.replace && load.order.any_path);
    EXPECT_EQ(load.base_model, "demo");
    EXPECT_EQ(edge.pipeline.orders[1].order.kind, AdapterOrder::Kind::kUnload);
    EXPECT_EQ(edge.pipeline.orders[1].base_model, "");
  });
}

TEST_F(AdapterRoutes, WhoBringsATokenMayBeAnywhere) {
  edge.OnLoop([&] {
    edge.services.fleet_is_open = false;
    edge.services.operators = nullptr;
  });
  EXPECT_EQ(Load(R"({"lora_name":"sql","lora_path":"/a"})").status, 403);
  EXPECT_EQ(Unload(R"({"lora_name":"sql"})").status, 403);
  edge.OnLoop([&] { EXPECT_TRUE(edge.pipeline.orders.empty()); });
}

TEST_F(AdapterRoutes, WrongBodiesAreRefusedByField) {
  const std::string long_name(256, 'n');
  const std::string long_path(4096, 'p');
  EXPECT_EQ(
      Load("{\"lora_name\":\"" + long_name + "\",\"lora_path\":\"" + long_path + "\"}").status,
      200);
  const std::pair<std::string, std::string> wrong[] = {
      {"", "lora_name"},
      {"[]", "body"},
      {"{}", "lora_name"},
      {R"({"lora_name":"x"})", "Both 'lora_name' and 'lora_path' must be provided."},
      {R"({"lora_name":"x","lora_path":""})", "lora_path"},
      {R"({"lora_name":["x"],"lora_path":"y"})", "lora_name"},
      {R"({"lora_name":"a:b","lora_path":"y"})", "has a ':'"},
      {R"({"lora_name":"x","lora_path":"y","load_inplace":1})", "load_inplace"},
      {"{\"lora_name\":\"" + long_name + "n\",\"lora_path\":\"y\"}", "at most 256"},
      {"{\"lora_name\":\"x\",\"lora_path\":\"" + long_path + "p\"}", "at most 4096"},
  };
  for (const auto& [body, needle] : wrong) {
    const RawResponse refused = Load(body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_NE(refused.body.find("\"error\":{\"message\":"), std::string::npos) << refused.body;
    if (body.empty()) continue;
    EXPECT_NE(refused.body.find(needle), std::string::npos) << refused.body;
  }
  EXPECT_EQ(Unload(R"({"lora_name":""})").status, 400);
  EXPECT_EQ(Load("{" + std::string(20'000, ' ') + "}").status, 413);
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.orders.size(), 1u); });
}

TEST_F(AdapterRoutes, ErrorsKeepTheirStatus) {
  const std::string body = R"({"lora_name":"x","lora_path":"y"})";
  edge.OnLoop([&] { edge.pipeline.order_end = ApiError{ApiCode::kConflict, "no slot", "", 0}; });
  EXPECT_EQ(Load(body).status, 409);
  edge.OnLoop([&] { edge.pipeline.order_end = ApiError{ApiCode::kNotFound, "none", "", 0}; });
  EXPECT_EQ(Unload(R"({"lora_name":"x"})").status, 404);
  edge.OnLoop([&] {
    edge.pipeline.order_refusal = ApiError{ApiCode::kUnavailable, "64 are under way", "", 1000};
  });
  const RawResponse refused = Load(body);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
}

TEST_F(AdapterRoutes, AClientThatLeavesIsForgotten) {
  edge.OnLoop([&] { edge.pipeline.orders_wait = true; });
  {
    RawClient client = edge.Connect();
    client.Send(EdgeHarness::Post("/v1/unload_lora_adapter", R"({"lora_name":"x"})"));
    EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.orders.size() == 1; }));
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.orders_left == 1; }));
}

}  // namespace
}  // namespace quire

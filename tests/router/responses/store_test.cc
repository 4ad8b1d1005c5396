// Kept responses: whose they are, which give way at the limit, and what continues them.
#include "router/responses/store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/metrics/metrics.h"
#include "router/responses/request.h"

namespace quire::responses {
namespace {

class ResponseStore : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;  // of each response here

  void Keep(const std::string& owner, const std::string& id, size_t more = 0) {
    Turn turn;
    turn.response.reserve(kSize + more - Store::BytesOf(owner, id, turn) +
                          turn.response.capacity());
    turn.response = id;
    ASSERT_EQ(Store::BytesOf(owner, id, turn), kSize + more);
    store.Keep(owner, id, std::move(turn));
  }
  bool Has(const std::string& owner, const std::string& id) {
    return store.Find(owner, id) != nullptr;
  }
  double Metric(const std::string& line) {
    const std::string text = metrics.Render();
    const size_t at = text.find("\n" + line + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
  }

  Metrics metrics;
  std::shared_ptr<MemoryAccount> clients = std::make_shared<MemoryAccount>(16 * kSize);
  Store store{8 * kSize, clients, metrics};
};

TEST_F(ResponseStore, AtTheLimitAllAreKeptAndOneByteMoreEvictsTheOldest) {
  for (int i = 0; i < 8; ++i) Keep("t", "r" + std::to_string(i));
  EXPECT_EQ(store.bytes(), 8 * kSize);
  EXPECT_TRUE(Has("t", "r0"));
  EXPECT_EQ(Metric("quire_router_kept_responses"), 8);
  EXPECT_EQ(Metric("quire_router_kept_responses_evicted_total"), 0);
  Keep("t", "r0", 1);  // the same id: the older one goes first, and one byte is too much
  EXPECT_TRUE(Has("t", "r0"));
  EXPECT_FALSE(Has("t", "r1"));
  EXPECT_TRUE(Has("t", "r2"));
  EXPECT_EQ(Metric("quire_router_kept_responses_evicted_total"), 1);
  EXPECT_EQ(Metric("quire_router_kept_response_bytes"), 7 * kSize + 1);
  EXPECT_EQ(clients->bytes(), 7 * kSize + 1);
}

TEST_F(ResponseStore, ATenantMeetsItsOwnAlone) {
  Keep("a", "r");
  EXPECT_FALSE(Has("b", "r"));
  EXPECT_FALSE(store.Erase("b", "r"));
  EXPECT_TRUE(store.Erase("a", "r"));
  EXPECT_FALSE(Has("a", "r"));
  EXPECT_FALSE(store.Erase("a", "r"));
  EXPECT_EQ(clients->bytes(), 0u);
}

TEST_F(ResponseStore, WhoKeepsMostGivesWay) {
  Keep("quiet", "q");
  for (int i = 0; i < 40; ++i) Keep("loud", "r" + std::to_string(i));
  EXPECT_TRUE(Has("quiet", "q")) << "another tenant's flood pushed it out";
  EXPECT_TRUE(Has("loud", "r39"));
  EXPECT_FALSE(Has("loud", "r32"));
  EXPECT_TRUE(Has("loud", "r33"));
}

TEST_F(ResponseStore, AQuarterIsKeptAndAByteMoreIsNot) {
  Keep("t", "quarter", kSize);
  EXPECT_TRUE(Has("t", "quarter"));
  Keep("t", "more", kSize + 1);
  EXPECT_FALSE(Has("t", "more"));
  EXPECT_EQ(Metric("quire_router_responses_not_kept_total{cause=\"too_large\"}"), 1);
}

TEST_F(ResponseStore, WhereClientsHoldAllMemoryNothingIsKept) {
  MemoryHold live(clients);
  ASSERT_TRUE(live.TryResize(15 * kSize));
  Keep("t", "fits");
  EXPECT_TRUE(Has("t", "fits"));
  Keep("t", "does not");
  EXPECT_FALSE(Has("t", "does not"));
  EXPECT_EQ(Metric("quire_router_responses_not_kept_total{cause=\"memory\"}"), 1);
}

TEST_F(ResponseStore, AReaderHoldsWhatWasDeleted) {
  Keep("t", "r");
  const std::shared_ptr<const KeptResponse> reader = store.Find("t", "r");
  EXPECT_TRUE(store.Erase("t", "r"));
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(reader->turn.response, "r");
  EXPECT_EQ(clients->bytes(), kSize);
}

// ------------------------------------------------------------------------------ conversations

class Conversations : public testing::Test {
 protected:
  // Answers `body` with one word, as the request `id`.
  std::string Answer(const std::string& id, const std::string& body, const std::string& word) {
    AgentRequest request;
    const auto problem = ReadRequest(body, RequestLimits(), keeping, request);
    EXPECT_FALSE(problem) << problem->message;
    if (problem) return "";
    request.answer->Name(id, 1);
    request.answer->Begin({}, nullptr);
    Delta delta;
    delta.text = word;
    request.answer->Add(delta, nullptr);
    request.answer->End({});
    request.answer->Finish({}, nullptr);
    return std::get<ChatPrompt>(request.generate.prompt).messages_json;
  }
  ApiError Refused(const std::string& body, const RequestLimits& limits = {}) {
    AgentRequest request;
    const auto problem = ReadRequest(body, limits, keeping, request);
    EXPECT_TRUE(problem) << body;
    return problem.value_or(ApiError());
  }

  Metrics metrics;
  std::shared_ptr<MemoryAccount> clients = std::make_shared<MemoryAccount>(1u << 20);
  Store store{1u << 19, clients, metrics};
  Keeping keeping{&store, "t"};
};

TEST_F(Conversations, GoOnWithTheirItemsAndWithoutTheirInstructions) {
  Answer("1", R"({"model":"m","instructions":"old","input":"a"})", "b");
  EXPECT_EQ(Answer("2",
                   R"({"model":"m","instructions":"new","input":"c",)"
                   R"("previous_response_id":"resp_1"})",
                   "d"),
            R"([{"role":"system","content":"new"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"},{"role":"user","content":"c"}])");
  EXPECT_EQ(Answer("3",
                   R"({"model":"m","input":[{"role":"user","content":"e"}],)"
                   R"("previous_response_id":"resp_2"})",
                   "f"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"c"},{"role":"assistant","content":"d"},)"
            R"({"role":"user","content":"e"}])");
  const auto third = store.Find("t", "resp_3");
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->turn.item_count, 6u);
  EXPECT_NE(third->turn.items.find(R"({"type":"message","id":"item_4","role":"user")"),
            std::string::npos)
      << third->turn.items;
  EXPECT_NE(third->turn.response.find(R"("previous_response_id":"resp_2","store":true)"),
            std::string::npos)
      << third->turn.response;
}

TEST_F(Conversations, MayReferToKeptItems) {
  Answer("my_1", R"({"model":"m","input":"a"})", "b");
  EXPECT_EQ(Answer("2",
                   R"({"model":"m","input":[{"role":"user","content":"a"},)"
                   R"({"type":"item_reference","id":"msg_my_1_0"},{"role":"user","content":"c"}]})",
                   "d"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"c"}])");
  EXPECT_NE(store.Find("t", "resp_2")->turn.items.find(R"("id":"msg_my_1_0")"), std::string::npos);
  for (const char* id : {"msg_my_1_1", "msg_1_0", "msg_my_1_", "x", "_", "__", "rs_my_1_0",
                         "msg_my_1_99999999999999999999", "msg_my_1_-1"}) {
    const ApiError error = Refused(R"({"model":"m","input":[{"type":"item_reference","id":")" +
                                   std::string(id) + "\"}]}");
    EXPECT_NE(error.message.find("no response that is kept"), std::string::npos) << error.message;
  }
}

// A reference of some bytes brings an item of any size.
TEST_F(Conversations, WhatReferencesBringIsBoundedLikeAPrompt) {
  Answer("1", R"({"model":"m","input":"a"})", std::string(1000, 'b'));
  const std::string output = store.Find("t", "resp_1")->turn.output;
  const auto body = [](int references) {
    std::string items;
    for (int i = 0; i < references; ++i) {
      items += (i == 0 ? "" : ",") + std::string(R"({"type":"item_reference","id":"msg_1_0"})");
    }
    return R"({"model":"m","input":[)" + items + "]}";
  };
  RequestLimits limits;
  limits.max_prompt_bytes = 3 * output.size();
  AgentRequest request;
  EXPECT_FALSE(ReadRequest(body(3), limits, keeping, request));
  EXPECT_NE(Refused(body(4), limits).message.find("--max-prompt-bytes"), std::string::npos);
}

TEST_F(Conversations, AreChargedBeforeTheyAreBuilt) {
  Answer("1", R"({"model":"m","input":"a"})", std::string(20'000, 'b'));
  for (const char* more : {R"("input":"c","previous_response_id":"resp_1")",
                           R"("input":[{"type":"item_reference","id":"msg_1_0"}])"}) {
    const auto account = std::make_shared<MemoryAccount>(60'000);
    MemoryHold hold(account);
    RequestLimits limits;
    limits.hold = &hold;
    const ApiError error = Refused(std::string(R"({"model":"m",)") + more + "}", limits);
    EXPECT_EQ(error.code, ApiCode::kUnavailable) << error.message;
    EXPECT_LE(account->bytes(), 60'000u);
  }
}

TEST_F(Conversations, AreNotKeptWhereStoreIsFalseAndEndWhereTheyAreUnknown) {
  Answer("1", R"({"model":"m","input":"a","store":false})", "b");
  EXPECT_EQ(store.bytes(), 0u);
  const ApiError error = Refused(R"({"model":"m","input":"a","previous_response_id":"resp_1"})");
  EXPECT_EQ(error.reason, "previous_response_not_found");
  EXPECT_NE(error.message.find("was never kept"), std::string::npos) << error.message;
  keeping.owner = "other";
  Answer("2", R"({"model":"m","input":"a"})", "b");
  keeping.owner = "t";
  EXPECT_EQ(Refused(R"({"model":"m","input":"a","previous_response_id":"resp_2"})").reason,
            "previous_response_not_found");
}

TEST_F(Conversations, CountTheirItemsAgainstTheLimit) {
  Answer("1", R"({"model":"m","input":"a"})", "b");
  RequestLimits limits;
  limits.max_messages = 3;
  const std::string one = R"({"role":"user","content":"c"})";
  const auto body = [](const std::string& items) {
    return R"({"model":"m","previous_response_id":"resp_1","input":[)" + items + "]}";
  };
  AgentRequest request;
  EXPECT_FALSE(ReadRequest(body(one), limits, keeping, request));
  EXPECT_NE(Refused(body(one + "," + one), limits).message.find("--max-messages"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::responses

// What requests hold is counted before it is built, in their tenant's account and the router's.
#include <malloc.h>

#include "common/memory_account.h"
#include "router/pipeline/held_bytes.h"
#include "router/pipeline/tenant_memory.h"
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

// Bytes of the heap that are in use; 0 where the allocator does not say, as under sanitizers.
size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

class PipelineMemoryTest : public PipelineTest {
 protected:
  GenerateRequest AskAs(const std::string& tenant, int n = 1) {
    GenerateRequest ask = Ask("", 2);
    ask.prompt = TokenPrompt{{'x'}};
    TenantProfile profile;
    profile.name = tenant;
    ask.tenant = std::make_shared<const TenantProfile>(profile);
    ask.sampling.n = n;
    return ask;
  }
  // As many stop strings and ids as a request may have.
  static void AddStops(GenerateRequest& ask) {
    for (int i = 0; i < 16; ++i) {
      std::string stop(256, '0');
      stop.replace(0, 2, std::to_string(10 + i));
      ask.sampling.stop.push_back(stop);
    }
    for (TokenId id = 128; id < 256; ++id) ask.sampling.stop_token_ids.push_back(id);
  }
  RecordingSink& Start(GenerateRequest ask) {
    sinks_.push_back(std::make_unique<RecordingSink>());
    pipeline_->Start(std::move(ask), sinks_.back().get());
    return *sinks_.back();
  }
  static FakeWorkerOptions OneAtATime() {
    FakeWorkerOptions options;
    options.max_waiting = 1;
    options.max_choices = 128;
    options.features = {"resume", "choices"};
    return options;
  }
  static size_t BytesOf(const GenerateRequest& ask) {
    return HeldBytes(ask) + PromptBytes(ask.prompt);
  }
  bool Says(const std::string& line) {
    const std::string text = metrics_.Render();
    return text.find(line) != std::string::npos || (ADD_FAILURE() << line << " is not in\n"
                                                                  << text,
                                                    false);
  }

  std::vector<std::unique_ptr<RecordingSink>> sinks_;
};

TEST_F(PipelineMemoryTest, ATenantAtItsLimitIsServedAndOneByteMoreIsRefused) {
  AddWorker();
  const GenerateRequest ask = AskAs("a");
  PipelineOptions options;
  options.max_tenant_memory_bytes = 2 * BytesOf(ask);
  StartRouter(options);
  RecordingSink& first = Start(ask);
  RecordingSink& second = Start(ask);
  RecordingSink& beyond = Start(ask);
  RecordingSink& other = Start(AskAs("b"));
  Run(kSecond);
  EXPECT_TRUE(first.usage && second.usage);
  EXPECT_TRUE(other.usage.has_value()) << "another tenant has an account of its own";
  ASSERT_TRUE(beyond.error.has_value());
  EXPECT_EQ(beyond.error->code, ApiCode::kRateLimited);
  EXPECT_GT(beyond.error->retry_after_ms, 0u);
  EXPECT_NE(beyond.error->message.find("--max-tenant-memory-bytes"), std::string::npos);
  EXPECT_TRUE(Says("refused_requests_total{cause=\"tenant_memory\"} 1"));
  EXPECT_EQ(options.memory->bytes(), 0u) << "what has ended holds nothing";

  GenerateRequest longer = AskAs("a");
  longer.request_id = "y";
  Start(ask);
  RecordingSink& one_byte_more = Start(longer);
  Run(kSecond);
  EXPECT_TRUE(one_byte_more.error.has_value());
  EXPECT_TRUE(Says("refused_requests_total{cause=\"tenant_memory\"} 2"));
  ExpectNothingLeft();
}

TEST_F(PipelineMemoryTest, AllClientsAtTheLimitAreServedAndOneByteMoreIsRefused) {
  AddWorker();
  PipelineOptions options;
  options.memory = std::make_shared<MemoryAccount>(2 * BytesOf(AskAs("a")));
  StartRouter(options);
  RecordingSink& first = Start(AskAs("a"));
  RecordingSink& second = Start(AskAs("b"));
  RecordingSink& beyond = Start(AskAs("c"));
  Run(kSecond);
  EXPECT_TRUE(first.usage && second.usage);
  ASSERT_TRUE(beyond.error.has_value());
  EXPECT_EQ(beyond.error->code, ApiCode::kUnavailable);
  EXPECT_NE(beyond.error->message.find("--max-client-memory-bytes"), std::string::npos);
  EXPECT_TRUE(Says("refused_requests_total{cause=\"client_memory\"} 1"));
  ExpectNothingLeft();
}

// Prompts × n × stops × tenants: nothing is built for what waits, and what waits is bounded.
TEST_F(PipelineMemoryTest, ProductsOfPromptsChoicesStopsAndTenantsStayInTheAccount) {
  FakeWorker& worker = AddWorker(OneAtATime());
  PipelineOptions options;
  constexpr size_t kLimit = 32 << 20;
  options.memory = std::make_shared<MemoryAccount>(kLimit);
  options.max_tenant_memory_bytes = kLimit / 2;
  StartRouter(options);
  worker.frozen = true;
  const size_t before = HeapBytes();
  size_t refused = 0;
  for (int i = 0; i < 1024; ++i) {
    GenerateRequest ask = AskAs("tenant-" + std::to_string(i % 8), 128);
    AddStops(ask);
    Start(std::move(ask));
    EXPECT_LE(options.memory->bytes(), kLimit);
  }
  Run(100 * kMicrosPerMilli);
  const size_t held = options.memory->bytes();
  const size_t grown = HeapBytes() - std::min(before, HeapBytes());
  for (const auto& sink : sinks_) refused += sink->error.has_value();
  EXPECT_GT(refused, 500u);
  EXPECT_LT(refused, 1000u);
  EXPECT_LE(grown, held) << "the estimate is an upper bound";
  EXPECT_LE(grown, kLimit / 2) << "no choice is built before its request is launched";
  pipeline_->EndAll({ApiCode::kUnavailable, "over", "", 0});
  EXPECT_EQ(options.memory->bytes(), 0u);
}

TEST_F(PipelineMemoryTest, AChoiceHoldsNoMoreThanItIsChargedFor) {
  if (HeapBytes() == 0) GTEST_SKIP() << "this allocator does not say what is in use";
  FakeWorkerOptions wide = OneAtATime();
  wide.max_waiting = 64;
  AddWorker(wide).frozen = true;
  StartRouter();
  size_t grown[3];
  const int n[3] = {1, 1, 128};  // what comes once for all requests comes with the first
  for (int round = 0; round < 3; ++round) {
    GenerateRequest ask = AskAs("a", n[round]);
    AddStops(ask);
    const size_t charged = BytesOf(ask);
    sinks_.push_back(std::make_unique<RecordingSink>());
    const size_t before = HeapBytes();
    pipeline_->Start(std::move(ask), sinks_.back().get());
    Run(50 * kMicrosPerMilli);
    grown[round] = HeapBytes() - before;
    if (round == 0) continue;
    EXPECT_LE(grown[round], charged) << n[round];
  }
  const size_t each = (grown[2] - grown[1]) / 127;
  RecordProperty("bytes_per_choice", static_cast<int>(each));
  RecordProperty("bytes_per_request", static_cast<int>(grown[1]));
  EXPECT_LE(each, kBytesPerChoice);
  EXPECT_LE(grown[1], kBytesPerRequest + (64 << 10)) << "with its stop strings";
}

// Texts count for the quotas that requests count for, and their answers are bounded.
class TokenizeQuotaTest : public PipelineMemoryTest {
 protected:
  struct Heard {
    int served = 0;
    std::vector<ApiError> refused;
  };
  void Tokenize(const TenantProfile& profile, const std::string& text, bool pieces = false) {
    const auto tenant = std::make_shared<const TenantProfile>(profile);
    pipeline_->Tokenize({{"fake", tenant}, TextPrompt{text, false}, pieces},
                        [this](Result<TokenizeResult> result) {
                          if (result.ok()) {
                            ++heard_.served;
                          } else {
                            heard_.refused.push_back(result.error());
                          }
                        });
    Run(10 * kMicrosPerMilli);
    pipeline_->CheckInvariants();
  }
  Heard heard_;
};

TEST_F(TokenizeQuotaTest, RequestsAndTokensOfTextsCount) {
  AddWorker();
  StartRouter();
  TenantProfile few;
  few.name = "few";
  few.requests_per_minute = 2;
  for (int i = 0; i < 3; ++i) Tokenize(few, "x");
  EXPECT_EQ(heard_.served, 2);
  ASSERT_EQ(heard_.refused.size(), 1u);
  EXPECT_EQ(heard_.refused[0].code, ApiCode::kRateLimited);
  EXPECT_GT(heard_.refused[0].retry_after_ms, 0u);
  TenantProfile short_ones;
  short_ones.name = "short";
  short_ones.tokens_per_minute = 1000;
  Tokenize(short_ones, std::string(2000, 'x'));
  EXPECT_EQ(heard_.served, 3) << "what it costs shows when it is done";
  Tokenize(short_ones, "x");
  EXPECT_EQ(heard_.served, 3);
  Run(30 * kSecond);
  Tokenize(short_ones, "x");
  EXPECT_EQ(heard_.served, 3) << "still in debt";
  Run(31 * kSecond);
  Tokenize(short_ones, "x");
  EXPECT_EQ(heard_.served, 4);
}

TEST_F(TokenizeQuotaTest, ATextIsOfTheModelAndTheTenantThatItNames) {
  AddWorker();
  StartRouter();
  TenantProfile profile;
  profile.name = "one";
  const auto tenant = std::make_shared<const TenantProfile>(profile);
  std::optional<Result<TokenizeResult>> absent;
  size_t held = 0;
  pipeline_->Tokenize({{"absent", tenant}, TextPrompt{"x", false}},
                      [&](Result<TokenizeResult> result) { absent = std::move(result); });
  pipeline_->Tokenize({{"fake", tenant}, TextPrompt{std::string(1000, 'x'), false}},
                      [&](Result<TokenizeResult> result) {
                        EXPECT_TRUE(result.ok());
                        held = pipeline_->MemoryOf(tenant.get())->bytes();
                      });
  Run(10 * kMicrosPerMilli);
  ASSERT_TRUE(absent.has_value());
  ASSERT_FALSE(absent->ok());
  EXPECT_EQ(absent->error().code, ApiCode::kNotFound);
  EXPECT_GE(held, 1000u);
}

TEST_F(TokenizeQuotaTest, AnAnswerAtTheLimitIsGivenAndALongerOneIsRefusedAndCounted) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_tokenize_answer_bytes = 40;
  StartRouter(options);
  TenantProfile one;
  one.name = "one";
  Tokenize(one, std::string(10, 'x'));  // "120," for each
  EXPECT_EQ(heard_.served, 1);
  Tokenize(one, std::string(11, 'x'));
  ASSERT_EQ(heard_.refused.size(), 1u);
  EXPECT_EQ(heard_.refused[0].code, ApiCode::kTooLarge);
  Tokenize(one, std::string(5, 'x'), true);  // and "\"x\","
  EXPECT_EQ(heard_.served, 2);
  Tokenize(one, std::string(6, 'x'), true);
  EXPECT_EQ(heard_.refused.size(), 2u);
  EXPECT_TRUE(Says("limit_refusals_total{limit=\"tokenize_answer\"} 2"));
  EXPECT_EQ(options.memory->bytes(), 0u);
}

TEST_F(TokenizeQuotaTest, TextsHoldWhatTheirTenantMayHold) {
  AddWorker();
  PipelineOptions options;
  options.max_tenant_memory_bytes = 10'000;
  StartRouter(options);
  TenantProfile one;
  one.name = "one";
  Tokenize(one, std::string(10'001, 'x'));
  ASSERT_EQ(heard_.refused.size(), 1u);
  EXPECT_EQ(heard_.refused[0].code, ApiCode::kRateLimited);
  Tokenize(one, std::string(1000, 'x'));
  EXPECT_EQ(heard_.served, 1);
  Tokenize(one, std::string(1500, 'x'), true);
  ASSERT_EQ(heard_.refused.size(), 2u) << "its pieces do not fit";
  EXPECT_EQ(options.memory->bytes(), 0u);
}

TEST_F(TokenizeQuotaTest, TheWorkOfATextAtTheLimitIsDoneAndOneByteMoreIsRefused) {
  AddWorker();
  text_->work_bytes = 40;
  PipelineOptions options;
  options.max_tenant_memory_bytes = 41 * 1000;  // the text, and the work on it
  StartRouter(options);
  TenantProfile one;
  one.name = "one";
  Tokenize(one, std::string(1000, 'x'));
  EXPECT_EQ(heard_.served, 1);
  const int before = text_->encodes;
  Tokenize(one, std::string(1001, 'x'));
  ASSERT_EQ(heard_.refused.size(), 1u);
  EXPECT_EQ(heard_.refused[0].code, ApiCode::kUnavailable);
  EXPECT_GT(heard_.refused[0].retry_after_ms, 0u);
  EXPECT_NE(heard_.refused[0].message.find("--max-tenant-memory-bytes"), std::string::npos);
  Tokenize(one, std::string(1026, 'x'));
  ASSERT_EQ(heard_.refused.size(), 2u);
  EXPECT_EQ(heard_.refused[1].code, ApiCode::kTooLarge) << "it never fits";
  EXPECT_EQ(text_->encodes, before) << "no work begins";
  EXPECT_EQ(options.memory->refused(MemoryScope::kTenant), 2u);
  EXPECT_EQ(options.memory->bytes(), 0u) << "the work gives back what it was charged for";
}

TEST_F(PipelineMemoryTest, TheWorkOfATemplateAtTheLimitIsDoneAndOneByteMoreIsRefused) {
  AddWorker();
  text_->work_bytes = 1000;
  GenerateRequest ask = AskAs("a");
  ChatPrompt chat;
  chat.messages_json = "[1234567]";
  ask.prompt = chat;
  PipelineOptions options;
  options.max_tenant_memory_bytes = BytesOf(ask) + 2 * 1000 * PromptBytes(ask.prompt);
  StartRouter(options);
  EXPECT_TRUE(RunOne(ask).usage.has_value());
  ask.request_id = "y";  // a byte more
  const RecordingSink refused = RunOne(ask);
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code, ApiCode::kUnavailable);
  EXPECT_EQ(options.memory->refused(MemoryScope::kTenant), 1u);
  EXPECT_EQ(options.memory->bytes(), 0u);
}

// A byte of it is a token at least.
TEST_F(PipelineMemoryTest, ATextThatCannotFitTheContextIsNotTokenised) {
  FakeWorkerOptions worker;
  worker.max_model_len = 100;
  AddWorker(worker);
  text_->longest_token_bytes = 4;
  StartRouter();
  const int before = text_->encodes;
  const RecordingSink refused = RunOne(Ask(std::string(400, 'x'), 1));
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code, ApiCode::kInvalidArgument);
  EXPECT_EQ(refused.error->param, "prompt");
  EXPECT_EQ(refused.error->reason, "context_length_exceeded");
  EXPECT_EQ(text_->encodes, before) << refused.error->message;
  (void)RunOne(Ask(std::string(399, 'x'), 1));
  EXPECT_EQ(text_->encodes, before + 1) << "that may be fewer tokens";
  GenerateRequest cut = Ask(std::string(400, 'x'), 1);
  cut.truncate_prompt_tokens = 10;
  EXPECT_TRUE(RunOne(cut).usage.has_value());
}

TEST_F(PipelineMemoryTest, WhoHasGoneIsNotTokenisedFor) {
  AddWorker();
  StartRouter();
  const int before = text_->encodes;
  RecordingSink sink;
  const RequestId id = pipeline_->Start(Ask("hello"), &sink);
  world_.RunUntil(world_.clock().Now());  // begun, and with the background
  pipeline_->Cancel(id);
  Run(kSecond);
  EXPECT_EQ(text_->encodes, before);
}

TEST(TenantMemory, KeepsAccountsAsLongAsTheyCountAndNoLonger) {
  const auto process = std::make_shared<MemoryAccount>(1000);
  TenantMemory tenants(process, 100);
  MemoryHold hold(tenants.Of("a"));
  EXPECT_TRUE(hold.TryResize(100));
  EXPECT_EQ(tenants.Of("a")->bytes(), 100u);
  for (int i = 0; i < 10'000; ++i) tenants.Of("made up " + std::to_string(i));
  EXPECT_LT(tenants.size(), 200u);
  EXPECT_EQ(tenants.Of("a")->bytes(), 100u);
  EXPECT_FALSE(hold.TryResize(101));
}

}  // namespace
}  // namespace quire

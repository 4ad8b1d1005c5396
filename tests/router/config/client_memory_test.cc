// How much memory clients may make the router hold.
#include "router/client_memory.h"

#include <gtest/gtest.h>

#include "common/metrics/memory_metrics.h"

namespace quire {
namespace {

TEST(ClientMemory, IsAShareOfWhatTheProcessMayUse) {
  const ClientMemory memory = MakeClientMemory(RouterConfig{}, int64_t{4} << 30);
  EXPECT_EQ(memory.process->limit(), size_t{1} << 30);
  EXPECT_EQ(memory.tenant_bytes, size_t{1} << 29);
  EXPECT_EQ(memory.connection_bytes, size_t{1} << 28);
}

TEST(ClientMemory, IsBoundedWhereNothingSaysHowMuchThereIs) {
  EXPECT_EQ(MakeClientMemory(RouterConfig{}, 0).process->limit(), size_t{1} << 29);
}

TEST(ClientMemory, FlagsSayItAndAPartIsNeverMoreThanTheWhole) {
  RouterConfig config;
  config.max_client_memory.value = 1000;
  config.max_tenant_memory.value = 2000;
  config.max_connection_memory.value = 7;
  const ClientMemory memory = MakeClientMemory(config, int64_t{4} << 30);
  EXPECT_EQ(memory.process->limit(), 1000u);
  EXPECT_EQ(memory.tenant_bytes, 1000u);
  EXPECT_EQ(memory.connection_bytes, 7u);
}

TEST(ClientMemory, WhatIsHeldAndWhoseLimitRefusedIsShown) {
  Metrics metrics;
  const ClientMemory memory = MakeClientMemory(RouterConfig{}, 400);
  AddMemoryMetrics(memory.process, {"quire_router_client_memory_", "clients", "the router"},
                   metrics);
  const auto refuse = [&](MemoryScope scope, int times) {
    MemoryHold hold(std::make_shared<MemoryAccount>(1, memory.process, scope));
    for (int i = 0; i < times; ++i) EXPECT_FALSE(hold.TryResize(2));
  };
  refuse(MemoryScope::kTenant, 2);
  refuse(MemoryScope::kConnection, 3);
  MemoryHold hold(memory.process);
  EXPECT_TRUE(hold.TryResize(100));
  EXPECT_FALSE(hold.TryResize(101));
  for (int i = 0; i < 2; ++i) {
    const std::string text = metrics.Render();
    EXPECT_NE(text.find("quire_router_client_memory_bytes 100\n"), std::string::npos) << text;
    EXPECT_NE(text.find("quire_router_client_memory_limit_bytes 100\n"), std::string::npos);
    for (const char* line :
         {"{scope=\"process\"} 1\n", "{scope=\"tenant\"} 2\n", "{scope=\"connection\"} 3\n"}) {
      const std::string whole = std::string("quire_router_client_memory_refusals_total") + line;
      EXPECT_NE(text.find(whole), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace quire

// The edge over a fake pipeline, for the APIs that `AgentCall` runs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/router/support/edge_harness.h"

namespace quire {

class AgentEdgeTest : public testing::Test {
 protected:
  RawResponse Post(const std::string& path, const std::string& body,
                   const std::string& headers = "") {
    return edge.Ask(EdgeHarness::Post(path, body, headers));
  }
  void Mode(FakePipeline::Mode mode) {
    edge.OnLoop([&] { edge.pipeline.mode = mode; });
  }
  void Refuse(ApiError error) {
    edge.OnLoop([&] {
      edge.pipeline.mode = FakePipeline::Mode::kRefuse;
      edge.pipeline.refusal = std::move(error);
    });
  }
  GenerateRequest Seen() {
    GenerateRequest seen;
    edge.OnLoop([&] { seen = edge.pipeline.seen.back(); });
    return seen;
  }

  EdgeHarness edge;
};

}  // namespace quire

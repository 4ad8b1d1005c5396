// Holds the one background thread of an EdgeHarness: what is passed to it waits meanwhile.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "tests/router/support/edge_harness.h"

namespace quire {

// From its construction until GoOn() or its end, with `queued` jobs behind.
class BusyPool {
 public:
  explicit BusyPool(EdgeHarness& edge, int queued = 0) {
    const auto begun = std::make_shared<std::promise<void>>();
    const std::shared_future<void> gate = go_on_.get_future().share();
    edge.OnLoop([&] {
      EXPECT_TRUE(edge.background.Run(
          [begun, gate] {
            begun->set_value();
            gate.wait();
          },
          [] {}));
    });
    begun->get_future().wait();
    edge.OnLoop([&] {
      for (int i = 0; i < queued; ++i) EXPECT_TRUE(edge.background.Run([] {}, [] {}));
    });
  }
  ~BusyPool() { GoOn(); }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;

  void GoOn() {
    if (!std::exchange(goes_on_, true)) go_on_.set_value();
  }

 private:
  std::promise<void> go_on_;
  bool goes_on_ = false;
};

}  // namespace quire

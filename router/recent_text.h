// A text that is costly to make, for askers without credentials: made anew for each of them as long
// as they come slowly, else they get the last one.
//
// Owner: main; event loop only.
//  1. It is made at most kMadePerSecond times a second, a burst of two seconds' worth apart; an
//     asker beyond gets one that is as old as the time between two of them.
//  2. Each asker is answered once, in the order in which the texts were ready.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "common/grpc/http2_guard.h"
#include "common/runtime/runtime.h"

namespace quire {

inline constexpr double kMadePerSecond = 20;

class RecentText {
 public:
  using Done = std::function<void(std::string)>;

  // `make` calls what it is given once, then or later, but not after this object's end. `clock`
  // outlives it.
  RecentText(const Clock& clock, std::function<void(Done)> make)
      : clock_(clock),
        make_(std::move(make)),
        makings_({kMadePerSecond, 2 * kMadePerSecond}, clock.Now()) {}

  void Ask(Done done) {
    if (made_ && !makings_.Take(1, clock_.Now())) return done(last_);
    make_([this, done = std::move(done)](std::string text) {
      last_ = text;
      made_ = true;
      done(std::move(text));
    });
  }

 private:
  const Clock& clock_;
  const std::function<void(Done)> make_;
  RateBucket makings_;
  bool made_ = false;
  std::string last_;
};

}  // namespace quire

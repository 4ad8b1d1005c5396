// A text that is costly to make, for callers without credentials: it is made for each caller as
// long as they come slowly; otherwise they share the last one.
//
// Owner: main; event loop only.
//  1. It is made at most kMadePerSecond times a second, plus a burst of two seconds' worth; a
//     caller beyond that gets a text that is at most as old as the time between two of them.
//  2. Each caller is answered once, in the order in which the texts were ready. All callers that
//     get one text share it, and it counts once as memory held for clients.
//  3. The result is nullptr when there is no memory for the text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/memory_account.h"
#include "common/runtime/token_bucket.h"

namespace quire {

inline constexpr double kMadePerSecond = 20;

class RecentText {
 public:
  using Made = std::function<void(std::string)>;
  using Done = std::function<void(std::shared_ptr<const std::string>)>;

  // `make` calls its argument once, now or later, but not after this object's end. `clock` outlives
  // this object.
  RecentText(const Clock& clock, std::shared_ptr<MemoryAccount> memory,
             std::function<void(Made)> make)
      : clock_(clock),
        memory_(std::move(memory)),
        make_(std::move(make)),
        makings_({kMadePerSecond, 2 * kMadePerSecond}, clock.Now()) {}

  void Ask(Done done) {
    if (made_ && !makings_.TryTake(1, clock_.Now())) return done(last_);
    make_([this, done = std::move(done)](std::string text) {
      last_ = Hold(std::move(text));
      made_ = last_ != nullptr;
      done(last_);
    });
  }

 private:
  struct Held {
    explicit Held(std::shared_ptr<MemoryAccount> account) : hold(std::move(account)) {}
    MemoryHold hold;
    std::string text;
  };

  std::shared_ptr<const std::string> Hold(std::string text) const {
    const auto held = std::make_shared<Held>(memory_);
    if (!held->hold.TryResize(text.capacity())) return nullptr;
    held->text = std::move(text);
    return {held, &held->text};
  }

  const Clock& clock_;
  const std::shared_ptr<MemoryAccount> memory_;
  const std::function<void(Made)> make_;
  TokenBucket makings_;
  bool made_ = false;
  std::shared_ptr<const std::string> last_;
};

}  // namespace quire

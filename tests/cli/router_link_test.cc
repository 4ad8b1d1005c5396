// The supervisor's end of the line to its router.
#include "cli/serve/router_link.h"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace quire::cli {
namespace {

// A router that reads nothing until the test does.
class SilentRouter {
 public:
  explicit SilentRouter(RouterLink& link) : descriptor_(dup(link.Open())) { link.CloseChildsEnd(); }
  ~SilentRouter() { close(descriptor_); }
  size_t Unread() const {
    int bytes = -1;
    EXPECT_EQ(ioctl(descriptor_, SIOCINQ, &bytes), 0);
    return static_cast<size_t>(bytes);
  }
  // All that is there, and the end of the line if it has one.
  size_t Read(bool& ended) const {
    std::string bytes(Unread(), '\0');
    const ssize_t count = read(descriptor_, bytes.data(), bytes.size());
    char one = 0;
    ended = recv(descriptor_, &one, 1, MSG_DONTWAIT) == 0;
    return count < 0 ? 0 : static_cast<size_t>(count);
  }

 private:
  const int descriptor_;
};

TEST(RouterLink, NewsAtTheLimitWaitsAndAByteMoreEndsTheLine) {
  RouterLink link;
  SilentRouter router(link);
  size_t sent = 0;
  const auto send = [&](size_t bytes) {
    link.Send(std::string(bytes, 'x'));
    sent += bytes;
  };
  while (!link.has_unsent()) send(4096);  // the system takes some
  const size_t taken = router.Unread();
  send(kMaxUnsentNewsBytes - (sent - taken));
  EXPECT_GE(link.descriptor(), 0);
  EXPECT_EQ(router.Unread(), taken) << "the rest waits here";
  bool ended = true;
  EXPECT_EQ(router.Read(ended), taken);
  EXPECT_FALSE(ended);
  link.Flush();  // what is read makes room
  EXPECT_GT(router.Unread(), 0u);
  const size_t second = router.Unread();
  send(kMaxUnsentNewsBytes - (sent - taken - second));
  EXPECT_GE(link.descriptor(), 0);
  send(1);
  EXPECT_LT(link.descriptor(), 0);
  EXPECT_FALSE(link.has_unsent()) << "and holds nothing any more";
  EXPECT_EQ(router.Read(ended), second);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace quire::cli

#include "router/discovery/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "common/sync.h"

namespace quire {

Addresses LookUpBySystem(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::UnavailableError(AbslView(host + " cannot be resolved: " + gai_strerror(error)));
  }
  std::set<std::string> found;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) ==
        0) {
      found.insert(text);
    }
  }
  freeaddrinfo(list);
  return std::vector<std::string>(found.begin(), found.end());
}

namespace {

// Shared by the resolver and the threads of its lookups, whichever lives longer. A thread that
// comes back late finds no executor any more.
struct Mailbox {
  Mutex mutex;
  Executor* executor ABSL_GUARDED_BY(mutex) = nullptr;  // nullptr: the resolver is gone
  std::atomic<int> lookups{0};
};

class ThreadResolver final : public Resolver {
 public:
  ThreadResolver(Executor& executor, std::function<Addresses(const std::string&)> look_up)
      : look_up_(std::move(look_up)), mailbox_(std::make_shared<Mailbox>()) {
    const MutexLock lock(mailbox_->mutex);
    mailbox_->executor = &executor;
  }
  ~ThreadResolver() override {
    const MutexLock lock(mailbox_->mutex);
    mailbox_->executor = nullptr;
  }

  void Resolve(const std::string& host, Done done) override {
    if (mailbox_->lookups.fetch_add(1) >= kMaxLookups) {
      mailbox_->lookups.fetch_sub(1);
      Answer(*mailbox_, std::move(done),
             absl::ResourceExhaustedError(
                 AbslView(std::to_string(kMaxLookups) + " lookups of names wait for an answer")));
      return;
    }
    // Detached: a lookup cannot be called off, and nothing may wait for it.
    std::thread([mailbox = mailbox_, look_up = look_up_, host, done = std::move(done)]() mutable {
      Addresses addresses = look_up(host);
      mailbox->lookups.fetch_sub(1);
      Answer(*mailbox, std::move(done), std::move(addresses));
    }).detach();
  }

 private:
  static void Answer(Mailbox& mailbox, Done done, Addresses addresses) {
    const MutexLock lock(mailbox.mutex);
    if (mailbox.executor == nullptr) return;
    mailbox.executor->Post(
        [done = std::move(done), addresses = std::move(addresses)] { done(addresses); });
  }

  const std::function<Addresses(const std::string&)> look_up_;
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

std::unique_ptr<Resolver> MakeThreadResolver(Executor& executor,
                                             std::function<Addresses(const std::string&)> look_up) {
  return std::make_unique<ThreadResolver>(executor, std::move(look_up));
}

}  // namespace quire

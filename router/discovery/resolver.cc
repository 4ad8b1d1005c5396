#include "router/discovery/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <map>
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
// returns late finds no executor any more.
struct Mailbox {
  Mutex mutex;
  Executor* executor ABSL_GUARDED_BY(mutex) = nullptr;  // nullptr: the resolver is gone
  // The callers for each name that is being looked up.
  std::map<std::string, std::vector<Resolver::Done>> waiting ABSL_GUARDED_BY(mutex);
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
    mailbox_->waiting.clear();
  }

  void Resolve(const std::string& host, Done done) override {
    const MutexLock lock(mailbox_->mutex);
    const auto found = mailbox_->waiting.find(host);
    if (found != mailbox_->waiting.end()) {
      if (found->second.size() >= kMaxWaitersPerName) {
        return Refuse(std::to_string(kMaxWaitersPerName) + " wait for an answer about " + host,
                      std::move(done));
      }
      found->second.push_back(std::move(done));
      return;
    }
    if (mailbox_->waiting.size() >= kMaxLookups) {
      return Refuse(std::to_string(kMaxLookups) + " lookups of names wait for an answer",
                    std::move(done));
    }
    mailbox_->waiting[host].push_back(std::move(done));
    // Detached: a lookup cannot be cancelled, and nothing may wait for it.
    std::thread([mailbox = mailbox_, look_up = look_up_, host] {
      Answer(*mailbox, host, look_up(host));
    }).detach();
  }

 private:
  void Refuse(const std::string& why, Done done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mailbox_->mutex) {
    mailbox_->executor->Post(
        [done = std::move(done), why] { done(absl::ResourceExhaustedError(AbslView(why))); });
  }

  static void Answer(Mailbox& mailbox, const std::string& host, const Addresses& addresses) {
    const MutexLock lock(mailbox.mutex);
    if (mailbox.executor == nullptr) return;
    auto asked = mailbox.waiting.extract(host);
    for (Done& done : asked.mapped()) {
      mailbox.executor->Post([done = std::move(done), addresses] { done(addresses); });
    }
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

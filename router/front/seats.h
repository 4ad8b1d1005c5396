// Who has a place at a port: so many connections, of one address a share of them, and some beyond
// for probes.
//
// Owner: a front; event loop only.
//
// Invariants:
// 1. At most `places` connections, and kProbePlaces more that are let in for probes alone.
// 2. Of one address at most per_address; none of a trusted proxy's, whose clients are many.
// 3. At the limit the oldest connection gives way that has never shown a key and has nothing to do
//    here but probes: who holds no key can't take the place of who does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "common/client_seat.h"

namespace quire {

inline constexpr size_t kProbePlaces = 16;
// Of all places, those that one address may have where no flag says otherwise: a quarter.
inline constexpr size_t kShareOfOneAddress = 4;

class Seats {
 public:
  struct Options {
    size_t places = 4096;
    size_t per_address = 0;                   // 0: a quarter of them, and any number on loopback
    const TrustedProxies* proxies = nullptr;  // outlives the seats; nullptr: none
  };
  struct Seated {
    std::shared_ptr<ClientSeat> seat;
    // Closes the connection, which is told by Leave later. May be called while it is seated.
    std::function<void()> close;
  };
  using Number = uint64_t;

  explicit Seats(Options options) : options_(options) {}

  // 0: its address has its share.
  Number Sit(const std::shared_ptr<ClientSeat>& seat, std::function<void()> close);
  // A proxy has said whom it speaks for. False: that address has its share.
  bool Name(Number number, const ClientAddress& client);
  void Leave(Number number);

  size_t taken() const { return seated_.size(); }
  uint64_t gave_way() const { return gave_way_; }  // connections

 private:
  bool Count(ClientSeat& seat);
  void Uncount(const ClientSeat& seat);
  bool CountsByAddress(const ClientSeat& seat) const;
  bool CloseOldest(bool probes_only);

  const Options options_;
  std::map<Number, Seated> seated_;  // the oldest first
  std::map<ClientAddress, size_t> by_address_;
  size_t leaving_ = 0;  // seated, and told to close
  size_t for_probes_ = 0;
  uint64_t gave_way_ = 0;
  Number last_ = 0;
};

}  // namespace quire

// Which connections have a place at a port: a total, a share of it for each address, and some more
// for probes.
//
// Owner: a front; event loop only.
//
// Invariants:
// 1. At most `places` connections, and kProbePlaces more that are served probes only.
// 2. At most per_address connections of one address; trusted proxies have no such limit, since
//    their clients are many.
// 3. At the limit the oldest connection that has never shown a key and does nothing but probes is
//    closed: a client without a key can't take the place of one with a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "common/client_seat.h"

namespace quire {

inline constexpr size_t kProbePlaces = 16;
// The number of places that one address may have where no flag says otherwise: a quarter.
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
    // Closes the connection, which calls Leave later. May be called while the connection is being
    // seated.
    std::function<void()> close;
  };
  using Number = uint64_t;

  explicit Seats(Options options) : options_(options) {}

  // 0: its address has used up its share.
  Number Sit(const std::shared_ptr<ClientSeat>& seat, std::function<void()> close);
  // A proxy has named its client. False: that address has used up its share.
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
  size_t leaving_ = 0;  // seated, and asked to close
  size_t for_probes_ = 0;
  uint64_t gave_way_ = 0;
  Number last_ = 0;
};

}  // namespace quire

// Who carries out the orders that routers give about adapters.
//
// Owner: main. Everything happens on the rpc executor.
#pragma once

#include <functional>

#include "common/wire/adapter_orders.h"

namespace quire {

class AdapterControl {
 public:
  virtual ~AdapterControl() = default;
  // Calls `done` once, later: the routers have the changes by then.
  virtual void Order(const AdapterOrder& order, std::function<void(AdapterResult)> done) = 0;
};

}  // namespace quire

// vLLM's routes that load and unload adapters at run time.
//
// Event loop only.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

// They answer when every worker of the model has answered.
std::unique_ptr<Call> LoadLoraAdapter(HttpServices& services, HttpRequest request,
                                      Exchange& exchange);
std::unique_ptr<Call> UnloadLoraAdapter(HttpServices& services, HttpRequest request,
                                        Exchange& exchange);

}  // namespace quire

// /tokenize, /detokenize and /tokenizer_info with vLLM's fields.
//
// Owner: the HTTP session; event loop only.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> BeginTokenize(HttpServices& services, HttpRequest request,
                                    Exchange& exchange);
std::unique_ptr<Call> BeginDetokenize(HttpServices& services, HttpRequest request,
                                      Exchange& exchange);
// /tokenizer_info of the only model, and /tokenizer_info/NAME: the fields of tokenizer_config.json.
std::unique_ptr<Call> TokenizerInfo(HttpServices& services, HttpRequest request,
                                    Exchange& exchange);

}  // namespace quire

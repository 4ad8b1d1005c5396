// The routes of Ollama's API that every router has.
//
// Event loop only. Those that pull and remove models are in ollama_machine.h.
#pragma once

#include <memory>
#include <string>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> OllamaGenerate(HttpServices& services, HttpRequest request,
                                     Exchange& exchange);
std::unique_ptr<Call> OllamaChat(HttpServices& services, HttpRequest request, Exchange& exchange);
// The models that the key may use, and those of them that are loaded.
std::unique_ptr<Call> OllamaTags(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OllamaLoaded(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OllamaShow(HttpServices& services, HttpRequest request, Exchange& exchange);
// 501 with the reason.
std::unique_ptr<Call> OllamaNotServed(HttpServices& services, HttpRequest request,
                                      Exchange& exchange);

// The served name of what a client of Ollama calls a model: that may end in ":latest", or say where
// the model was pulled from.
std::string OllamaModelName(const HttpServices& services, const std::string& name);

}  // namespace quire

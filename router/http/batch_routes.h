// OpenAI's /v1/files and /v1/batches (docs/how-to/batches.md). Without --batches-dir each answers
// 404 with the flag's name.
//
// Event loop only; the disk is read and written on threads of their own.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> UploadFile(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> ListFiles(HttpServices& services, HttpRequest request, Exchange& exchange);
// /v1/files/ID and /v1/files/ID/content
std::unique_ptr<Call> ReadFile(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> DeleteFile(HttpServices& services, HttpRequest request, Exchange& exchange);

std::unique_ptr<Call> CreateBatch(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> ListBatches(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> ReadBatch(HttpServices& services, HttpRequest request, Exchange& exchange);
// /v1/batches/ID/cancel
std::unique_ptr<Call> CancelBatch(HttpServices& services, HttpRequest request, Exchange& exchange);

}  // namespace quire

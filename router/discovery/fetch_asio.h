// GETs over HTTP and HTTPS with a bearer token, as a Kubernetes API server expects them.
//
// Owner: main; event loop only. Outlives its fetches. Token and certificates are read again for
// each fetch, since both are replaced while a router runs. A connection for each fetch.
#pragma once

#include <memory>
#include <string>

#include "router/discovery/fetch.h"
#include "router/discovery/resolver.h"

namespace boost::asio {
class io_context;
}

namespace quire {

struct FetcherOptions {
  std::string server;  // "https://kubernetes.default.svc", "http://127.0.0.1:8080"
  // Only for https: a token is never sent in the clear.
  std::string token_file;
  std::string ca_file;  // the certificates to trust
};

// INVALID_ARGUMENT for a server that is no URL of this form.
absl::Status CheckServerUrl(const std::string& url);

// Requires: CheckServerUrl says OK. All outlive the fetcher.
std::unique_ptr<Fetcher> MakeAsioFetcher(const FetcherOptions& options,
                                         boost::asio::io_context& context, Resolver& resolver,
                                         Files& files);

}  // namespace quire

#include "worker/rpc/server_tls.h"

#include <openssl/ssl.h>

#include <utility>

#include "common/check.h"
#include "common/runtime/asio_executor.h"

namespace quire {
namespace {

// In ALPN's format: the length comes first.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

// Lives as long as the process: a read in the background may outlive its caller.
RealFiles& TheFiles() {
  static RealFiles files;
  return files;
}

}  // namespace

absl::StatusOr<TlsContext> MakeServerContext(const MutualTlsPem& pem,
                                             std::shared_ptr<RouterNames> names) {
  TlsContext context = NewTlsContext(true);
  QUIRE_CHECK(SSL_CTX_set_cipher_list(context.get(), kHttp2Ciphers) == 1);
  // A session ticket would admit a peer whose authority has since been removed.
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
  const auto choose = [](SSL*, const unsigned char** chosen, unsigned char* length,
                         const unsigned char* offered, unsigned int bytes, void*) {
    unsigned char* found = nullptr;
    const int result =
        SSL_select_next_proto(&found, length, kHttp2, sizeof(kHttp2), offered, bytes);
    *chosen = found;
    return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
  };
  SSL_CTX_set_alpn_select_cb(context.get(), choose, nullptr);
  RouterNames::Ask(context, std::move(names));
  QUIRE_RETURN_IF_ERROR(Trust(context, pem.authorities));
  QUIRE_RETURN_IF_ERROR(UseIdentity(context, pem.certificate, pem.key));
  return context;
}

ServerTls::ServerTls(const ServerTlsOptions& options, Counters counters, Logger& log)
    : options_{.paths = {options.files.authorities, options.files.certificate, options.files.key},
               .max_bytes = kMaxPemBytes},
      router_names_(options.router_names),
      counters_(counters),
      log_(log) {}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Read(const ServerTlsOptions& options,
                                                           Counters counters, Logger& log) {
  std::unique_ptr<ServerTls> tls(new ServerTls(options, counters, log));
  QUIRE_ASSIGN_OR_RETURN(tls->known_, ReadAll(TheFiles(), tls->options_));
  QUIRE_RETURN_IF_ERROR(tls->Use(tls->known_));
  return tls;
}

void ServerTls::Watch(Executor& executor, Background& background) {
  watch_ = std::make_unique<WatchedFiles>(
      WatchedFiles::World{executor, background, TheFiles()}, options_, std::move(known_),
      [this](const absl::StatusOr<FileContents>& contents) { OnRead(contents); });
}

absl::Status ServerTls::Use(const FileContents& contents) {
  auto names = std::make_shared<RouterNames>(router_names_, counters_.names_refused, log_);
  QUIRE_ASSIGN_OR_RETURN(
      context_, MakeServerContext({contents[0], contents[1], contents[2]}, std::move(names)));
  return absl::OkStatus();
}

void ServerTls::OnRead(const absl::StatusOr<FileContents>& contents) {
  const absl::Status status = contents.ok() ? Use(*contents) : contents.status();
  if (status.ok()) {
    counters_.reloads.Add();
    log_.Info("the TLS files have changed and hold for new connections",
              {{"file", options_.paths[1]}});
    return;
  }
  counters_.reload_failures.Add();
  log_.Error("the TLS files cannot be used; the last good ones hold",
             {{"file", options_.paths[1]}, {"error", StatusMessage(status)}});
}

}  // namespace quire

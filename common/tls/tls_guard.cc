#include "common/tls/tls_guard.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

namespace quire {

void TlsGuard::Watch(ssl_st* ssl) {
  const auto before_read = [](BIO* bio, int operation, const char*, size_t, int, long, int result,
                              size_t*) -> long {
    if (operation != BIO_CB_READ) return result;
    auto* const guard = reinterpret_cast<TlsGuard*>(BIO_get_callback_arg(bio));
    if (guard->MayRead()) return result;
    BIO_clear_retry_flags(bio);
    BIO_set_retry_read(bio);
    return -1;
  };
  const auto on_message = [](int written, int, int type, const void*, size_t, SSL*, void* guard) {
    if (written == 0 && type == SSL3_RT_HEADER) ++static_cast<TlsGuard*>(guard)->idle_records_;
  };
  BIO* const bio = SSL_get_rbio(ssl);
  BIO_set_callback_arg(bio, reinterpret_cast<char*>(this));
  BIO_set_callback_ex(bio, before_read);
  SSL_set_msg_callback(ssl, on_message);
  SSL_set_msg_callback_arg(ssl, this);
}

// OpenSSL continues by itself after a record without a byte, for as long as its socket has more.
bool TlsGuard::MayRead() {
  if (reads_left_ == 0 || over()) return false;
  --reads_left_;
  return true;
}

}  // namespace quire

// OpenSSL's objects with owners, and PEM text read into them.
//
// Any thread. A reader that finds nothing leaves entries in OpenSSL's error queue, which its caller
// clears.
#pragma once

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace quire::openssl {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

// Reads from `text`, which outlives it.
inline Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A key with a passphrase is refused; the library does not prompt at a terminal.
inline int NoPassphrase(char*, int, int, void*) { return -1; }

// The next certificate in PEM; nullptr: there is none.
inline Certificate ReadCertificate(BIO* bio) {
  return Certificate(PEM_read_bio_X509(bio, nullptr, NoPassphrase, nullptr));
}
inline PrivateKey ReadPrivateKey(BIO* bio) {
  return PrivateKey(PEM_read_bio_PrivateKey(bio, nullptr, NoPassphrase, nullptr));
}

}  // namespace quire::openssl

#include "common/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace quire {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A key that asks for a passphrase is refused, not waited for at a terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

Certificate FirstCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, NoPassphrase, nullptr));
}

}  // namespace

absl::Status CheckMutualTls(const MutualTlsPem& pem) {
  const Certificate authority = FirstCertificate(pem.authorities);
  const Certificate certificate = FirstCertificate(pem.certificate);
  const PrivateKey key(
      PEM_read_bio_PrivateKey(BioOf(pem.key).get(), nullptr, NoPassphrase, nullptr));
  absl::Status status;
  if (!authority) {
    status = InvalidArgument("the file of authorities holds no certificate in PEM");
  } else if (!certificate) {
    status = InvalidArgument("the certificate file holds no certificate in PEM");
  } else if (!key) {
    status = InvalidArgument("the key file holds no private key in PEM without a passphrase");
  } else if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    status = InvalidArgument("the private key does not fit the certificate");
  }
  ERR_clear_error();
  return status;
}

}  // namespace quire

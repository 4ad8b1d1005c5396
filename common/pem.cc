#include "common/pem.h"

#include <openssl/err.h>

#include <ctime>

#include "common/openssl.h"

namespace quire {

absl::Status CheckMutualTls(const MutualTlsPem& pem) {
  const openssl::Certificate authority =
      openssl::ReadCertificate(openssl::BioOf(pem.authorities).get());
  const openssl::Certificate certificate =
      openssl::ReadCertificate(openssl::BioOf(pem.certificate).get());
  const openssl::PrivateKey key = openssl::ReadPrivateKey(openssl::BioOf(pem.key).get());
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

int64_t CertificateEnd(const std::string& pem) {
  const openssl::Certificate certificate = openssl::ReadCertificate(openssl::BioOf(pem).get());
  std::tm end{};
  const bool known =
      certificate != nullptr && ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) == 1;
  ERR_clear_error();
  return known ? static_cast<int64_t>(timegm(&end)) : 0;
}

}  // namespace quire

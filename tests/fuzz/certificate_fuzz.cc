// Fuzzes the PEM files of TLS and the names of a router's certificate: refusals are one line and
// show nothing of a key, and a name is either a host's in lower case or a URI.
//
// The input is three files, parted by zero bytes: authorities, certificate, key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/openssl.h"
#include "common/pem.h"
#include "common/tls_context.h"
#include "common/wire/values.h"
#include "worker/rpc/router_names.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string TakeFile(std::string_view& rest) {
  const size_t end = std::min(rest.find('\0'), rest.size());
  std::string file(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return file;
}

// No refusal shows a key. `of_another_key` is the refusal of the same files with another key: what
// both say is our own words, and the fuzzer makes keys of these, too.
void CheckRefusal(const absl::Status& status, const std::string& key,
                  const absl::Status& of_another_key) {
  if (status.ok()) return;
  const std::string why = quire::StatusMessage(status);
  Require(!why.empty() && why.size() < 1000 && why.find('\n') == std::string::npos);
  if (key.size() < 32) return;
  const std::string head = key.substr(0, 32);
  Require(why.find(head) == std::string::npos ||
          quire::StatusMessage(of_another_key).find(head) != std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  quire::MutualTlsPem pem;
  pem.authorities = TakeFile(rest);
  pem.certificate = TakeFile(rest);
  pem.key = TakeFile(rest);
  const std::string other(pem.key.size(), 'x');
  CheckRefusal(quire::CheckMutualTls(pem), pem.key,
               quire::CheckMutualTls({pem.authorities, pem.certificate, other}));
  quire::CertificateEnd(pem.certificate);
  const auto context = quire::NewTlsContext(true);
  const absl::Status trusted = quire::Trust(context, pem.authorities);
  CheckRefusal(trusted, {}, trusted);
  CheckRefusal(quire::UseIdentity(context, pem.certificate, pem.key), pem.key,
               quire::UseIdentity(context, pem.certificate, other));
  const auto certificate =
      quire::openssl::ReadCertificate(quire::openssl::BioOf(pem.certificate).get());
  if (!certificate) return 0;
  for (const std::string& name : quire::AlternativeNames(certificate.get())) {
    const bool uri = name.find("://") != std::string::npos;
    Require(uri ||
            std::none_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
  }
  return 0;
}

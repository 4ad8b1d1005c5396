// Certificates made while a test runs: an authority, and what it signs.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace quire {

struct TestPem {
  std::string certificate;
  std::string key;
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name, const char* curve = "P-256")
      : key_(NewKey(curve)), certificate_(X509_new()) {
    Fill(certificate_, name, key_);
    AddExtension(certificate_, NID_basic_constraints, "critical,CA:TRUE");
    X509_sign(certificate_, key_, EVP_sha256());
  }
  ~TestAuthority() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  std::string pem() const { return Pem(certificate_); }

  // For servers and clients whose name `dns` is a subject alternative name.
  TestPem Issue(const std::string& dns, const char* usage = "serverAuth,clientAuth") const {
    return IssueFor(dns, "DNS:" + dns, usage);
  }
  // `names` as OpenSSL writes them ("DNS:a,URI:b://c"); empty: none.
  TestPem IssueFor(const std::string& common_name, const std::string& names,
                   const char* usage) const {
    EVP_PKEY* key = NewKey("P-256");
    X509* certificate = X509_new();
    Fill(certificate, common_name, key);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate_));
    if (!names.empty()) AddExtension(certificate, NID_subject_alt_name, names);
    AddExtension(certificate, NID_ext_key_usage, usage);
    X509_sign(certificate, key_, EVP_sha256());
    TestPem made{Pem(certificate), KeyPem(key)};
    X509_free(certificate);
    EVP_PKEY_free(key);
    return made;
  }

 private:
  static EVP_PKEY* NewKey(const char* curve) { return EVP_EC_gen(curve); }

  static void Fill(X509* certificate, const std::string& name, EVP_PKEY* key) {
    X509_set_version(certificate, 2);
    static long serial = 1;
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
    X509_NAME* subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    X509_set_pubkey(certificate, key);
  }
  static void AddExtension(X509* certificate, int nid, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string Written(Write write) {
    BIO* bio = BIO_new(BIO_s_mem());
    write(bio);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  static std::string Pem(X509* certificate) {
    return Written([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
  }
  static std::string KeyPem(EVP_PKEY* key) {
    return Written([&](BIO* bio) {
      PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  EVP_PKEY* key_;
  X509* certificate_;
};

}  // namespace quire

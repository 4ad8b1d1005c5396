// Files of certificates that cannot be used, and what is said of them.
#include "common/tls_context.h"

#include <gtest/gtest.h>

#include "tests/support/test_certificates.h"

namespace quire {
namespace {

class TlsContextTest : public testing::Test {
 protected:
  std::string Refusal(const std::string& certificates) const {
    return StatusMessage(UseIdentity(NewTlsContext(true), certificates, pem_.key));
  }

  const TestAuthority authority_{"an authority"};
  const TestPem pem_ = authority_.Issue("worker.test");
};

TEST_F(TlsContextTest, AChainIsTakenWhole) {
  EXPECT_EQ(Refusal(pem_.certificate), "");
  EXPECT_EQ(Refusal(pem_.certificate + authority_.pem()), "");
}

TEST_F(TlsContextTest, ACertificateThatTlsRefusesIsNamedAndNotLeftOut) {
  const TestAuthority weak("a weak authority", "P-192");
  EXPECT_EQ(Refusal(pem_.certificate + authority_.pem() + weak.pem()),
            "certificate 3 of the file is refused, as its key or signature is too weak for TLS");
}

TEST_F(TlsContextTest, ABrokenCertificateIsNamed) {
  const std::string whole = authority_.pem();
  const std::string cut = whole.substr(0, whole.size() / 2);
  EXPECT_EQ(Refusal(pem_.certificate + cut), "certificate 2 of the file is broken");
}

TEST_F(TlsContextTest, AChainEndsAtItsLimit) {
  std::string chain = pem_.certificate;
  for (int i = 0; i < 16; ++i) chain += authority_.pem();
  EXPECT_EQ(Refusal(chain), "");
  EXPECT_EQ(Refusal(chain + authority_.pem()), "the certificate file holds too long a chain");
}

}  // namespace
}  // namespace quire

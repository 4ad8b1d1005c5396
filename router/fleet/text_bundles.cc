#include "router/fleet/text_bundles.h"

#include <openssl/sha.h>

#include <utility>

#include "common/wire/values.h"

namespace quire {

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

TextBundles::TextBundles(const RouterLimits& limits, Dialer& dialer)
    : limits_(limits), dialer_(dialer), fetching_(std::make_shared<std::set<std::string>>()) {}

bool TextBundles::Fetch(const Request& request, Done done) {
  if (fetching_->contains(request.model_id)) return false;
  if ((fetching_->size() + 1) * kMaxTextBundleBytes > limits_.max_text_bundles_bytes) return false;
  fetching_->insert(request.model_id);
  dialer_.FetchTextBundle(
      request.target, request.model_id, kMaxTextBundleBytes,
      [weak = std::weak_ptr(fetching_), request,
       done = std::move(done)](absl::StatusOr<std::string> bundle) {
        const auto fetching = weak.lock();
        if (fetching == nullptr) return;
        fetching->erase(request.model_id);
        if (bundle.ok() && Sha256(*bundle) != request.sha256) {
          bundle = absl::DataLossError(AbslView("the text bundle of worker " + request.target +
                                                " has not the digest that its Hello names"));
        }
        done(std::move(bundle));
      });
  return true;
}

}  // namespace quire

#!/usr/bin/env bash
# Prints the Secrets that the manifests name: certificates between routers and workers, and between peers of KServe, under
# an authority of their own, one API key, and the salt that keeps tenants' caches apart. With cert-manager, which makes the certificates,
# print only `keys`. Each run draws new ones; keep the output safe.
#   ./secrets.sh [NAMESPACE [all|keys]] | kubectl apply -f -
set -euo pipefail
namespace=${1:-default} what=${2:-all}
if [ $# -gt 2 ] || [[ ! $namespace =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] || [[ $what != all && $what != keys ]]; then
  echo "usage: secrets.sh [NAMESPACE [all|keys]], as in: secrets.sh prod keys" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
days=365
key() { openssl ecparam -genkey -name prime256v1 -noout -out "$1" 2>/dev/null; }
data() { printf '  %s: %s\n' "$1" "$(base64 -w0 <"$2")"; }
secret() { printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: %s\ntype: %s\ndata:\n' "$@"; }
certificates() {
  local name names usage
  key ca.key
  openssl req -x509 -new -key ca.key -days $days -subj /CN=quire-ca -out ca.crt
  for name in quire-router quire-worker quire-peer; do
    names=DNS:$name
    case $name in
      quire-router) usage=clientAuth ;;
      quire-worker) usage=serverAuth ;;
      quire-peer) names=DNS:quire-worker,DNS:quire-router usage=serverAuth,clientAuth ;; # both to each other
    esac
    key "$name.key"
    openssl req -new -key "$name.key" -subj "/CN=$name" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days $days -out "$name.crt" \
      -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=%s\n' "$names" "$usage") 2>/dev/null
    secret "$name-tls" "$namespace" kubernetes.io/tls
    data ca.crt ca.crt
    data tls.crt "$name.crt"
    data tls.key "$name.key"
  done
}
if [ "$what" = all ]; then certificates; fi
printf %s "$(openssl rand -hex 24)" >api-key
openssl rand -hex 32 >salt.key
sha256=$(openssl dgst -sha256 -r api-key | cut -d' ' -f1)
printf '{"keys": [{"sha256": "%s", "tenant": "default"}]}\n' "$sha256" >keys.json
secret quire-api-keys "$namespace" Opaque
data api-key api-key
data keys.json keys.json
data salt.key salt.key

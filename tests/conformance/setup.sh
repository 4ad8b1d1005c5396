#!/usr/bin/env bash
# Fetches the clients of the conformance tests into .cache, once, all pinned: Python packages in a virtual
# environment each, since their requirements differ, and grpcurl. Prints nothing when all is there. Ends with 3 when a registry cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OPENAI=openai==3.3.1
TRITON=("tritonclient[grpc]==2.73.0" grpcio==1.85.1 protobuf==6.33.6 numpy==2.4.6)
KSERVE=(kserve==0.21.0 grpcio==1.85.1 protobuf==6.33.6 numpy==2.4.6)
GRPCURL=v1.8.9  # the newest that Debian 12's Go builds without fetching another Go
GO_BIN=$PWD/.cache/go-bin

# fetch_packages FOLDER PACKAGE...
fetch_packages() {
  local venv=$1
  shift
  [ "$(cat "$venv/.complete" 2>/dev/null)" != "$*" ] || return 0
  echo "conformance: fetching $*" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "$@" >&2 || exit 3
  echo "$*" >"$venv/.complete"
}

fetch_packages .cache/venv-conformance "$OPENAI"
fetch_packages .cache/venv-tritonclient "${TRITON[@]}"
fetch_packages .cache/venv-kserve "${KSERVE[@]}"
if [ "$(cat "$GO_BIN/.grpcurl" 2>/dev/null)" != "$GRPCURL" ]; then
  echo "conformance: building grpcurl $GRPCURL" >&2
  mkdir -p "$GO_BIN"
  GOBIN=$GO_BIN GOTOOLCHAIN=local go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL" >&2 || exit 3
  echo "$GRPCURL" >"$GO_BIN/.grpcurl"
fi

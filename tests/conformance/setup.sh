#!/usr/bin/env bash
# Fetches the clients of the conformance tests into .cache, once: a pinned openai package and a pinned
# grpcurl. Prints nothing when all is there. Ends with 3 when a registry cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OPENAI=openai==3.3.1
GRPCURL=v1.8.9  # the newest that Debian 12's Go builds without fetching another Go
VENV=.cache/venv-conformance
GO_BIN=$PWD/.cache/go-bin

if [ "$(cat "$VENV/.complete" 2>/dev/null)" != "$OPENAI" ]; then
  echo "conformance: fetching $OPENAI" >&2
  rm -rf "$VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check "$OPENAI" >&2 || exit 3
  echo "$OPENAI" >"$VENV/.complete"
fi
if [ "$(cat "$GO_BIN/.grpcurl" 2>/dev/null)" != "$GRPCURL" ]; then
  echo "conformance: building grpcurl $GRPCURL" >&2
  mkdir -p "$GO_BIN"
  GOBIN=$GO_BIN GOTOOLCHAIN=local go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL" >&2 || exit 3
  echo "$GRPCURL" >"$GO_BIN/.grpcurl"
fi

#!/usr/bin/env bash
# Fetches the clients of the conformance tests into .cache, once, all pinned: Python packages in a virtual
# environment each, since their requirements differ, packages of npm, grpcurl, ghz, h2spec and grpc-go's interoperability
# tests. Prints nothing when all is there. Ends with 3 when a registry cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OPENAI=openai==3.3.1
AGENT_PACKAGES=(openai==3.54.0 anthropic==2.12.0)
TRITON=("tritonclient[grpc,http]==2.73.0" grpcio==1.85.1 protobuf==6.33.6 numpy==2.4.6)
KSERVE=(kserve==0.21.0 grpcio==1.85.1 protobuf==6.33.6 numpy==2.4.6)
OPEN_WEBUI=open-webui==0.12.4
# What those of its files import that are run here; the whole of its requirements is some gigabytes.
OPEN_WEBUI_NEEDS=(aiohttp==3.13.2 aiofiles==25.1.0 aiocache==0.12.3 fastapi==0.121.2 "sqlalchemy[asyncio]==2.0.44" pyjwt==2.10.1 python-engineio==4.12.3)
STRUCTURED=(instructor==1.17.0 outlines==1.3.3 openai==3.3.0)
LANGCHAIN=(langchain-openai==1.7.3 langchain-core==1.7.2 openai==3.54.0)
LANGCHAIN_AGENTS=(langchain==1.5.2 langchain-core==1.8.3 langgraph==1.2.24 langchain-openai==1.7.3 openai==3.57.0)
OLLAMA=ollama==0.6.3
OLLAMA_NODE=ollama@0.6.4
AI_PACKAGES=(ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 zod@4.6.7)
NODE_PACKAGES=(openai@6.49.0 @anthropic-ai/sdk@1.12.0 @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1)
# The newest that Debian 12's Go builds without fetching another Go.
GRPCURL=v1.8.9
GHZ=v0.117.0
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
fetch_packages .cache/venv-agents "${AGENT_PACKAGES[@]}"
fetch_packages .cache/venv-ollama "$OLLAMA"
fetch_packages .cache/venv-tritonclient "${TRITON[@]}"
fetch_packages .cache/venv-kserve "${KSERVE[@]}"
fetch_packages .cache/venv-langchain "${LANGCHAIN[@]}"
fetch_packages .cache/venv-langchain-agents "${LANGCHAIN_AGENTS[@]}"
fetch_packages .cache/venv-structured "${STRUCTURED[@]}"
# Of Open WebUI the package alone, and of it the files that speak to a provider.
WEBUI=.cache/open-webui
fetch_packages .cache/venv-open-webui "${OPEN_WEBUI_NEEDS[@]}"
if [ "$(cat "$WEBUI/.complete" 2>/dev/null)" != "$OPEN_WEBUI" ]; then
  echo "conformance: fetching $OPEN_WEBUI" >&2
  rm -rf "$WEBUI"
  mkdir -p "$WEBUI"
  .cache/venv-open-webui/bin/pip download -q --disable-pip-version-check --no-deps -d "$WEBUI" "$OPEN_WEBUI" >&2 || exit 3
  (cd "$WEBUI" && python3 -m zipfile -e open_webui-*.whl all && mkdir open_webui && cp -r all/open_webui/{routers,utils} open_webui/ &&
    rm -rf all open_webui-*.whl)
  echo "$OPEN_WEBUI" >"$WEBUI/.complete"
fi
# fetch_node FOLDER PACKAGE...
fetch_node() {
  local folder=$1
  shift
  [ "$(cat "$folder/.complete" 2>/dev/null)" != "$*" ] || return 0
  echo "conformance: fetching $*" >&2
  rm -rf "$folder"
  mkdir -p "$folder"
  echo '{"private": true}' >"$folder/package.json"
  npm install --prefix "$folder" --silent --no-audit --no-fund --ignore-scripts --save-exact "$@" >&2 || exit 3
  echo "$*" >"$folder/.complete"
}

fetch_node .cache/npm-clients "${NODE_PACKAGES[@]}"
fetch_node .cache/npm-ai "${AI_PACKAGES[@]}"
fetch_node .cache/npm-ollama "$OLLAMA_NODE"
if [ "$(cat "$GO_BIN/.grpcurl" 2>/dev/null)" != "$GRPCURL" ]; then
  echo "conformance: building grpcurl $GRPCURL" >&2
  mkdir -p "$GO_BIN"
  GOBIN=$GO_BIN GOTOOLCHAIN=local go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL" >&2 || exit 3
  echo "$GRPCURL" >"$GO_BIN/.grpcurl"
fi
if [ "$(cat "$GO_BIN/.ghz" 2>/dev/null)" != "$GHZ" ]; then
  echo "conformance: building ghz $GHZ" >&2
  mkdir -p "$GO_BIN"
  GOBIN=$GO_BIN GOTOOLCHAIN=local go install -ldflags='-s -w' "github.com/bojand/ghz/cmd/ghz@$GHZ" >&2 || exit 3
  echo "$GHZ" >"$GO_BIN/.ghz"
fi
H2SPEC=$(cat tests/conformance/h2spec/go.mod)
if [ "$(cat "$GO_BIN/.h2spec" 2>/dev/null)" != "$H2SPEC" ]; then
  echo "conformance: building h2spec" >&2
  (cd tests/conformance/h2spec && GOTOOLCHAIN=local GOFLAGS=-mod=readonly \
    go build -ldflags='-s -w' -o "$GO_BIN/h2spec" github.com/summerwind/h2spec/cmd/h2spec) >&2 || exit 3
  echo "$H2SPEC" >"$GO_BIN/.h2spec"
fi
INTEROP=$(cat tests/conformance/grpc_interop/go.mod)
if [ "$(cat "$GO_BIN/.grpc-interop" 2>/dev/null)" != "$INTEROP" ]; then
  echo "conformance: building grpc-go's interoperability tests" >&2
  for side in client server; do
    (cd tests/conformance/grpc_interop && GOTOOLCHAIN=local GOFLAGS=-mod=readonly \
      go build -ldflags='-s -w' -o "$GO_BIN/grpc-interop-$side" "google.golang.org/grpc/interop/$side") >&2 || exit 3
  done
  echo "$INTEROP" >"$GO_BIN/.grpc-interop"
fi

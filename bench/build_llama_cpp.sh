#!/usr/bin/env bash
# Builds the tools of llama.cpp that the benches of the CPU need, as vendored in the source package
# of llama-cpp-python, into .cache/llama.cpp: the peer of ./dev bench cpu, the quantiser of its
# models, and the measure of its own error; or the tools that are named. Release, native, CPU only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VERSION=${LLAMA_CPP_PYTHON_VERSION:-0.3.36}
DIR=$PWD/.cache/llama.cpp
BIN=$DIR/build-$VERSION/bin
TOOLS=("$@")
[ $# != 0 ] || TOOLS=(llama-bench llama-batched-bench llama-quantize llama-perplexity)
missing=0
for tool in "${TOOLS[@]}"; do [ -x "$BIN/$tool" ] || missing=1; done
if [ $missing = 0 ]; then echo "$BIN"; exit 0; fi
mkdir -p "$DIR"
if [ ! -d "$DIR/llama_cpp_python-$VERSION" ]; then
  python3 -m venv "$DIR/venv" >&2
  [ -f "$DIR/llama_cpp_python-$VERSION.tar.gz" ] ||
    "$DIR/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-python \
      -d "$DIR" "llama-cpp-python==$VERSION" >&2
  tar -xzf "$DIR/llama_cpp_python-$VERSION.tar.gz" -C "$DIR"
fi
SRC=$DIR/llama_cpp_python-$VERSION/vendor/llama.cpp
cmake -G Ninja -S "$SRC" -B "$DIR/build-$VERSION" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
  -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON \
  -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
  -DBUILD_SHARED_LIBS=OFF >&2
nice ninja -C "$DIR/build-$VERSION" ${QUIRE_JOBS:+-j$QUIRE_JOBS} "${TOOLS[@]}" >&2
echo "$BIN"

#!/usr/bin/env bash
# The compilers and emulators that the tests use beside what pip brings. Installs what is missing where it may
# (root on Debian or Ubuntu), else says what is missing and fails: no test is skipped in silence.
set -euo pipefail

# A command (or file) that must be there, and the Debian package that brings it.
needed=(
  "gcc gcc"
  "clang clang"
  "cmake cmake"
  "pkg-config pkg-config"
  "aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu"
  "arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf"
  "qemu-aarch64 qemu-user"
  "qemu-arm qemu-user"
  "/usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross"
  "/usr/arm-linux-gnueabihf/lib/libc.so.6 libc6-dev-armhf-cross"
  "/usr/include/stdio.h libc6-dev"
)

missing_packages() {
  local row what package
  for row in "${needed[@]}"; do
    what=${row% *}
    package=${row#* }
    if [[ $what == /* ]]; then
      [[ -e $what ]] || echo "$package"
    else
      command -v "$what" >/dev/null 2>&1 || echo "$package"
    fi
  done | sort -u
}

if [[ $(uname -s) != Linux ]]; then
  echo "Only Linux is set up for the cross compilers and emulators of the tests." >&2
  exit 1
fi
missing=$(missing_packages | tr '\n' ' ')
[[ -n $missing ]] || exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing $missing..."
  # shellcheck disable=SC2086 # a list of words
  { apt-get -qq update || true; } && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes \
    --no-install-recommends $missing >/dev/null
fi
missing=$(missing_packages | tr '\n' ' ')
if [[ -n $missing ]]; then
  echo "The tests need these packages: apt-get install $missing" >&2
  exit 1
fi

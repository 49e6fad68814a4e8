#!/usr/bin/env bash
# The compilers and emulators that the tests use beside what pip brings. Installs what is missing where it may
# (root on Debian or Ubuntu), else says what is missing and fails: no test is skipped in silence.
set -euo pipefail

# A command (or file) that must be there, and the Debian package that brings it.
needed=(
  "gcc gcc"
  "g++ g++"
  "make make"
  "clang clang"
  "cmake cmake"
  "node nodejs"
  "tsc node-typescript"
  "pkg-config pkg-config"
  "aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu"
  "arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf"
  "riscv64-linux-gnu-gcc gcc-riscv64-linux-gnu"
  "x86_64-linux-musl-gcc musl-tools"
  "qemu-aarch64 qemu-user"
  "qemu-arm qemu-user"
  "qemu-riscv64 qemu-user"
  "qemu-system-arm qemu-system-arm"
  "qemu-system-riscv32 qemu-system-misc"
  "/usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross"
  "/usr/arm-linux-gnueabihf/lib/libc.so.6 libc6-dev-armhf-cross"
  "/usr/riscv64-linux-gnu/lib/libc.so.6 libc6-dev-riscv64-cross"
  "/usr/include/stdio.h libc6-dev"
  "/etc/OpenCL/vendors/pocl.icd pocl-opencl-icd"
  "bwrap bubblewrap"
  "bsdtar libarchive-tools"
  "unzip unzip"
  "zip zip"
  "minisign minisign"
  "openssl openssl"
  "ssh openssh-client"
  "/usr/sbin/sshd openssh-server"
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
  # Debian only recommends the library by which programs find PoCL.
  /sbin/ldconfig -p | grep -q 'libOpenCL\.so\.1' || echo "ocl-icd-libopencl1"
  # Debian only recommends clang's sanitizers, in a package that has clang's version in its name.
  if command -v clang >/dev/null 2>&1 && [[ ! -e $(clang -print-file-name=libclang_rt.asan-x86_64.a) ]] &&
    [[ ! -e $(clang -print-file-name=libclang_rt.asan.a) ]]; then
    echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
  fi
  # Any browser of this family will do. Elsewhere than on Debian there is no package without snap: the tests say so.
  if grep -qs '^ID=debian' /etc/os-release &&
    ! { command -v chromium || command -v chromium-headless-shell || command -v google-chrome; } >/dev/null 2>&1; then
    echo "chromium-headless-shell"
  fi
}

# The tests start an sshd of their own, on loopback. Debian would start one for the whole network.
keep_sshd_off() {
  echo "ssh.service is masked, so that installing openssh-server opens no port (undo: systemctl unmask ssh)."
  mkdir -p /etc/systemd/system
  ln -sf /dev/null /etc/systemd/system/ssh.service
}

install() {
  if [[ " $* " == *" openssh-server "* ]]; then keep_sshd_off; fi
  echo "Installing $*..."
  { apt-get -qq update || true; } && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes \
    --no-install-recommends "$@" >/dev/null
}

if [[ $(uname -s) != Linux ]]; then
  echo "Only Linux is set up for the cross compilers and emulators of the tests." >&2
  exit 1
fi
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null 2>&1; then
  # Twice: what clang lacks is known only once there is a clang.
  for _ in 1 2; do
    mapfile -t missing < <(missing_packages)
    if [[ ${#missing[@]} -gt 0 ]]; then install "${missing[@]}"; fi
  done
fi
mapfile -t missing < <(missing_packages)
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "The tests need these packages: apt-get install ${missing[*]}" >&2
  exit 1
fi

#!/bin/sh
# Installs everything that `make demo` and `make test` need: Debian packages, .venv, the C parts.
# Idempotent; a second run takes a second or two.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
venv=$root/.venv
step_count=5
step=0

say() { printf '%s\n' "greyhound install: $*"; }
fail() { printf '%s\n' "greyhound install: $*" >&2; exit 1; }
begin() { step=$((step + 1)); printf '%s\n' "[$step/$step_count] $*"; }

# --- Debian packages -------------------------------------------------------------------------
PACKAGES="gcc g++ make python3 python3-venv python3-dev libslurm-dev slurmctld slurmd slurmdbd slurm-client
slurm-wlm-basic-plugins slurm-wlm-mysql-plugin munge mariadb-server redis-server iproute2 ca-certificates numactl"

installed() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }

missing_packages() {
  for package in $PACKAGES; do
    installed "$package" || printf '%s ' "$package"
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# The packages' own services stay off: the sandbox starts private daemons by itself.
hold_services() {
  policy=/usr/sbin/policy-rc.d
  [ -e "$policy" ] && return 0
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  trap 'exit 130' INT TERM
}

release_services() {
  trap - EXIT INT TERM
  as_root rm -f /usr/sbin/policy-rc.d
}

install_packages() {
  missing=$(missing_packages)
  if [ -z "$missing" ]; then
    say "Debian packages: all there"
    return 0
  fi
  say "Debian packages to install: $missing"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
    fail "neither root nor sudo: let an administrator run: apt-get install $missing; then run this again"
  fi
  had_policy=no
  [ -e /usr/sbin/policy-rc.d ] && had_policy=yes
  hold_services
  as_root apt-get update -qq || say "apt-get update failed; going on with the lists that are here"
  # shellcheck disable=SC2086 # the list is meant to be split
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
    >"$root/build/apt.log" 2>&1 || { tail -n 20 "$root/build/apt.log" >&2; fail "apt-get failed; the whole log: build/apt.log"; }
  [ "$had_policy" = yes ] || release_services
}

# --- Python ------------------------------------------------------------------------------------
good_python() {
  [ -x "$1" ] && "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# The system's own Python first: job users must be able to run what the venv links to.
find_python() {
  for candidate in "${PYTHON:-}" /usr/bin/python3 "$(command -v python3 || true)"; do
    if [ -n "$candidate" ] && good_python "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  fail "no Python 3.11 or newer with venv found; install python3 and python3-venv, or name one: make install PYTHON=/path/to/python3"
}

make_venv() {
  if [ -x "$venv/bin/python" ] && good_python "$venv/bin/python"; then
    say "virtual environment: .venv is there"
    return 0
  fi
  python=$(find_python)
  say "virtual environment: .venv from $python ($("$python" -V 2>&1))"
  rm -rf "$venv"
  "$python" -m venv "$venv"
}

pip_quiet() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

install_torch() {
  if "$venv/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
    say "torch $("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))') is there"
    return 0
  fi
  "$venv/bin/python" "$root/scripts/choose_torch.py" --venv "$venv" || fail "torch can't be installed here (see above)"
}

# What the venv was made from: when none of it changed, pip is not asked again.
fingerprint() { cat setup.cfg setup.py pyproject.toml scripts/install.sh scripts/choose_torch.py | cksum; "$venv/bin/python" -V; }

install_python() {
  stamp=$venv/.greyhound-installed
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then
    say "Python packages: up to date"
    return 0
  fi
  install_torch
  say "Python packages: greyhound with [control,plot,megatron,dev]"
  pip_quiet install -q --no-warn-script-location "setuptools>=68" wheel 2>"$root/build/pip.log" \
    || { tail -n 20 "$root/build/pip.log" >&2; fail "pip failed; the whole log: build/pip.log"; }
  pip_quiet install -q --no-build-isolation --no-warn-script-location -e ".[control,plot,megatron,dev]" \
    2>"$root/build/pip.log" || { tail -n 20 "$root/build/pip.log" >&2; fail "pip failed; the whole log: build/pip.log"; }
  fingerprint >"$stamp"
}

# --- main --------------------------------------------------------------------------------------
mkdir -p build
begin "Debian packages (Slurm, munge, MariaDB, Redis, a compiler)"
if command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
  install_packages
else
  say "not a Debian system: install Slurm, munge, MariaDB, Redis, a C/C++ compiler and Slurm's headers yourself"
fi
begin "Python environment (.venv)"
make_venv
begin "Python packages (torch and megatron-core are the big ones)"
install_python
begin "C parts: hook, waiter, SPANK plugin"
sh hook/build.sh
make -s -C spank
begin "stand-in for GPUs and NCCL, with its torch backend"
make -s -C hook/standin
make -s -C hook/standin torch_backend PYTHON="$venv/bin/python"
say "done: .venv/bin/greyhound $("$venv/bin/python" -I -c 'import greyhound; print(greyhound.__version__)')"

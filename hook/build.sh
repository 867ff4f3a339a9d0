#!/bin/sh
# Builds libgreyhound_hook.so and libgreyhound_reader.so with a C compiler alone and puts them, with
# the ring header, into OUT (default: ../greyhound/_native). CC and CFLAGS come from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/../greyhound/_native}
cc=${CC:-cc}
flags="-std=gnu11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing
  -fno-plt -Wall -Wextra -Werror"

if ! command -v "${cc%% *}" >/dev/null 2>&1; then
  echo "hook/build.sh: no C compiler '$cc': install one (Debian: apt install gcc) or set CC" >&2
  exit 1
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

# build NAME SOURCE...: a shared library, replaced atomically (a job may be mapping the old one)
build() {
  name=$1
  shift
  # shellcheck disable=SC2086  # flags are lists of words
  $cc $flags ${CFLAGS:-} -shared -Wl,-z,relro -Wl,-z,defs -Wl,-soname,"$name" \
    -o "$out/.$name.$$" "$@"
  mv -f "$out/.$name.$$" "$out/$name"
}

cd "$here"
trap 'rm -f "$out"/.*."$$"' EXIT
if [ -f intercept.c ]; then
  # what every call passes first, side by side
  build libgreyhound_hook.so call.c comm.c ring.c counters.c group.c session.c resolve.c intercept.c \
    graph.c cuda.c directory.c elf.c env.c identity.c log.c preload.c timing.c timing_clock.c timing_cuda.c
fi
build libgreyhound_reader.so reader.c
cp include/greyhound_ring.h "$out/.greyhound_ring.h.$$"
mv -f "$out/.greyhound_ring.h.$$" "$out/greyhound_ring.h"

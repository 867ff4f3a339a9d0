#!/bin/sh
# Plugin, record and report on other Slurm releases: a Debian release each in a folder of its own, with its Slurm.
#
#   scripts/test-matrix.sh [SUITE...]     default: trixie (24.11) forky (26.05)
#
# MATRIX_TESTS: what is run there; MATRIX_DIR: where (4 GB a release); MATRIX_KEEP=1: leave it for the next run;
# MATRIX_MIRROR: a Debian mirror, else the one of this host's apt. Needs root and debootstrap.
# Mounts and processes live in namespaces of their own, which end with this script, however it ends.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
base=${MATRIX_DIR:-/var/tmp/greyhound-matrix}
tests=${MATRIX_TESTS:-"tests/spank tests/slurm tests/report tests/doctor"}
needed_kib=4000000
source_folder=/greyhound

say() { printf '%s\n' "test-matrix: $*"; }
fail() { printf '%s\n' "test-matrix: $*" >&2; exit 1; }

# --- inside the namespaces: ROOT's mounts, then the tests ----------------------------------------------------------
mount_all() {
    mount --make-rprivate /
    mount --bind "$1" "$1"  # a root that is a mount, as the tests of containers need one
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --bind /dev "$1/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    mount --bind /dev/pts "$1/dev/pts"
}

# What the tests need and their run, in the other release.
inside_script() {
    cat <<'INSIDE'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd "$MATRIX_SOURCE"
if ! [ -e .venv/ready ]; then
    eval "$(sed -n '/^PACKAGES="/,/"$/p' scripts/install.sh)"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list
    apt-get install -y -qq --no-install-recommends $PACKAGES procps >/tmp/apt.log 2>&1 || { tail -n 5 /tmp/apt.log; exit 10; }
    update-ca-certificates >/dev/null 2>&1
    python3 -m venv .venv
    .venv/bin/pip install -q --disable-pip-version-check -e '.[control]' pytest hypothesis
    : > .venv/ready
fi
sh hook/build.sh
make -s -C spank
make -s -C hook/standin
slurmctld -V
code=0  # this shell stays: as the namespace's first process it reaps what loses its parent
# shellcheck disable=SC2086 # a list
.venv/bin/python -m pytest $MATRIX_TESTS -p no:cacheprovider || code=$?
exit $code
INSIDE
}

if [ "${1:-}" = --inside ]; then
    mount_all "$2"
    inside_script > "$2/run-tests"
    exec chroot "$2" /usr/bin/env MATRIX_SOURCE="$source_folder" MATRIX_TESTS="$tests" sh /run-tests
fi

# --- outside --------------------------------------------------------------------------------------------------------
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk '$2 !~ /security|updates/ && $1 ~ /debian\/$/ { print $1; exit }'
}

# debootstrap of bookworm knows no release younger than trixie; they are made as sid is.
recipe() { [ -e "/usr/share/debootstrap/scripts/$1" ] || printf '%s' /usr/share/debootstrap/scripts/sid; }

make_root() {
    suite=$1 root=$2
    [ -e "$root/made" ] && return 0
    rm -rf --one-file-system "$root"
    # shellcheck disable=SC2046 # nothing, or one word
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$from" $(recipe "$suite") > "$base/$suite.log" 2>&1 ||
        { tail -n 3 "$base/$suite.log" >&2; return 1; }
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    printf '127.0.0.1 localhost %s\n' "$(hostname)" > "$root/etc/hosts"
    apt-config dump Acquire > "$root/etc/apt/apt.conf.d/90host"  # proxies; whether an old snapshot is believed
    for file in /etc/resolv.conf /etc/pip.conf; do [ -e "$file" ] && cp -L "$file" "$root$file"; done
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
    : > "$root/made"
}

copy_source() {
    mkdir -p "$1$source_folder"
    (cd "$here" && git ls-files -z --cached --others --exclude-standard | xargs -0 tar cf -) | tar xf - -C "$1$source_folder"
}

run_suite() {
    suite=$1 root=$base/$1
    say "$suite: making it from $from"
    make_root "$suite" "$root" || return 1
    copy_source "$root"
    unshare --mount --pid --fork --kill-child sh "$here/scripts/test-matrix.sh" --inside "$root" 9>&- &
    child=$!
    wait "$child"
}

clean() { [ -n "${MATRIX_KEEP:-}" ] || rm -rf --one-file-system "$base"; }

# The first process of a namespace hears no INT; its parent's end takes it along, and all that it started.
stop() {
    [ -z "$child" ] || { kill -KILL "$child" 2>/dev/null; wait "$child" 2>/dev/null; } || true
    exit 130
}

[ "$(id -u)" -eq 0 ] || fail "needs root: it makes chroots and mounts"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
from=${MATRIX_MIRROR:-$(mirror)}
[ -n "$from" ] || fail "no Debian mirror in this host's apt sources: name one by MATRIX_MIRROR"
[ $# -gt 0 ] || set -- trixie forky
mkdir -p "$base" && chmod 700 "$base"
[ "$(stat -c %u "$base")" = 0 ] || fail "$base belongs to another user: name a folder by MATRIX_DIR"
exec 9> "$base/lock"
flock -n 9 || fail "another run has $base: wait for it, or name a folder by MATRIX_DIR"
free_kib=$(df -Pk "$base" | awk 'NR == 2 { print $4 }')
[ "$free_kib" -gt $((needed_kib * $#)) ] || fail "$base has $((free_kib / 1000000)) GB free; $# releases take $((needed_kib * $# / 1000000))"
trap clean EXIT
child=
trap stop INT TERM

failed=
for suite; do
    if run_suite "$suite"; then say "$suite: passed"; else failed="$failed $suite"; say "$suite: FAILED"; fi
done
[ -z "$failed" ] || fail "failed:$failed"
say "all passed: $*"

#!/bin/sh
# Builds greyhound-VERSION-RELEASE.ARCH.rpm into dist/, for this system's python3 or the one that PYTHON names (3.11 or
# newer; Red Hat 9: PYTHON=python3.11). Needs rpmbuild, gcc, make, git. On a Debian host, whose rpm knows no installed
# packages: RPM_OPTIONS=--nodeps.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/greyhound-rpm.XXXXXX")
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = //p' setup.cfg)
mkdir -p "$work/SOURCES" dist
git ls-files -z | xargs -0 tar czf "$work/SOURCES/greyhound-$version.tar.gz" --transform "s|^|greyhound-$version/|"
# shellcheck disable=SC2086 # options
rpmbuild -bb ${RPM_OPTIONS:-} --define "_topdir $work" --define "given_version $version" \
    --define "given_python ${PYTHON:-python3}" packaging/rpm/greyhound.spec
cp "$work"/RPMS/*/*.rpm dist/

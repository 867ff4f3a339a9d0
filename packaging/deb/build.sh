#!/bin/sh
# Builds greyhound_VERSION_ARCH.deb into dist/: everything below /opt/greyhound, with its own Python packages, for the
# python3 of this Debian release. The Slurm plugin is not in it: it belongs to the site's Slurm release, and
# `greyhound slurm install` builds it there.
set -eu
cd "$(dirname "$0")/../.."
prefix=/opt/greyhound
work=$(mktemp -d "${TMPDIR:-/tmp}/greyhound-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root

python=$(command -v python3)
short=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
version=$(sed -n 's/^version = //p' setup.cfg)
architecture=$(dpkg --print-architecture)

# A copy, so that building leaves nothing in the source tree.
mkdir -p "$work/source" "$root$prefix" "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/doc/greyhound" dist
git ls-files -z | xargs -0 tar cf - | tar xf - -C "$work/source"
"$python" -m venv "$root$prefix"
"$root$prefix/bin/pip" install -q --disable-pip-version-check --no-compile "$work/source[control]"
# The files name the folder they were made in; here they move to their own.
grep -rlI "$root$prefix" "$root$prefix/bin" "$root$prefix/pyvenv.cfg" | xargs sed -i "s|$root$prefix|$prefix|g"
find "$root$prefix" -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf "$root$prefix"/lib/python*/site-packages/pip "$root$prefix"/lib/python*/site-packages/pip-*
rm -f "$root$prefix"/bin/pip*
mkdir -p "$root$prefix/share/sbatch_templates"
cp sbatch_templates/*.sbatch "$root$prefix/share/sbatch_templates/"
cp LICENSE "$root/usr/share/doc/greyhound/copyright"
ln -s "$prefix/bin/greyhound" "$root/usr/bin/greyhound"

sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@PYTHON@/$short/; s/@NEXT@/$next/" \
    -e "s/@SIZE@/$(du -sk "$root$prefix" | cut -f1)/" packaging/deb/control.in > "$root/DEBIAN/control"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN/"
chmod -R u=rwX,go=rX "$root$prefix" "$root/usr"
dpkg-deb -Zxz -z1 --root-owner-group --build "$root" "dist/greyhound_${version}_$architecture.deb"

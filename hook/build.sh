#!/bin/sh
# Builds the hook and the ring reader with a C compiler alone (CC, CFLAGS from the environment).
set -eu
here=$(cd "$(dirname "$0")" && pwd)

#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Gets OSTD and what it links from the registry, and cargo-osdk, of which the linker script alone is used. With `--offline`
# it only says whether all is there.
set -eu
cd "$(dirname "$0")"
cargo fetch --locked --quiet --target x86_64-unknown-none "$@"
if [ "${1-}" = --offline ]; then
    ls "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/cargo-osdk-0.18.0/src/base_crate/x86_64.ld.template > /dev/null
else
    cargo info --quiet cargo-osdk@0.18.0 > /dev/null
fi

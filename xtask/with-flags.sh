#!/bin/sh
# Cargo runs this in place of the compiler for the crates of a workspace (RUSTC_WORKSPACE_WRAPPER), whose flags are then
# others than those of the crates that they link, and keeps what comes of it apart.
exec "$@" $TLBKIT_FLAGS

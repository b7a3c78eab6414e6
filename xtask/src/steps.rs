//! The steps of `cargo xtask test`. Each is a command that a developer can type, so that a step which failed is run
//! again by itself; `test.rs` runs them.

use crate::setup::Need;
use crate::test::Lane::{Alone, Beside, Tree};
use crate::test::Runs::{All, Always, Quick};
use crate::test::{Step, step};

/// A kernel's machine: no system, so no std.
const BARE: Need = Need::Target("x86_64-unknown-none");
const GCC: Need = Need::Program("gcc", "gcc");
const QEMU: Need = Need::Program(tlbkit_boot::PROGRAM, tlbkit_boot::PACKAGE);
const OSTD: Need = Need::Crates("metal/ostd");
const SLURM: Need = Need::Program("slurmctld", "slurm-wlm");
const PARALLEL: Need = Need::Program("parallel", "parallel");
const PKG_CONFIG: Need = Need::Program("pkg-config", "pkg-config");
const OLDEST: Need = Need::Rust("1.88");

pub(crate) const STEPS: &[Step] = &[
    step("tidy", Tree, Always, &[], "cargo xtask tidy"),
    step("format", Tree, Always, &[], "cargo fmt --all --check"),
    step("clippy", Tree, Always, &[], "cargo clippy --workspace --all-targets --quiet -- -D warnings"),
    step("tests", Tree, Always, &[GCC], "cargo test --workspace --no-fail-fast --quiet"),
    // By itself, so that no other crate's wish for a feature reaches it: this is what a kernel links.
    step("tests of tlbkit alone", Tree, Always, &[], "cargo test --package tlbkit --no-fail-fast --quiet"),
    step(
        "features of C",
        Tree,
        Always,
        &[GCC],
        "cargo test --package tlbkit-c --features x86,reuse,directories --lib --test x86 --test same_trace --quiet",
    ),
    // As a test, since `cargo bench` would optimise the harness for longer than it counts.
    step("cost of C calls", Tree, Always, &[GCC, BARE], "cargo test --package tlbkit-c --bench c_interface --quiet"),
    step(
        "no std",
        Tree,
        Always,
        &[BARE],
        "cargo build --quiet --target x86_64-unknown-none --no-default-features --package tlbkit \
         --package tlbkit-arch --package tlbkit-pmap --package tlbkit-workloads --package tlbkit-x86",
    ),
    step("loom, quick", Beside, Quick, &[], "cargo xtask loom --quick"),
    step("historical bugs", Beside, Always, &[GCC, BARE], "cargo xtask mutants --quick"),
    step("kernel, one boot", Alone, Quick, &[BARE, QEMU], "cargo xtask qemu boot"),
    // What follows is for `--all`.
    step("docs", Tree, All, &[], "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet"),
    // What a registry would be sent. When they are published, cargo builds each from its package as well.
    step(
        "packages",
        Tree,
        All,
        &[],
        "cargo package --quiet --allow-dirty --offline --no-verify --exclude-lockfile --package tlbkit-observed \
         --package tlbkit --package tlbkit-arch --package tlbkit-pmap --package tlbkit-x86 --package tlbkit-c",
    ),
    step("library for C", Tree, All, &[GCC, PKG_CONFIG, BARE], "cargo xtask c-library --check"),
    // They are a separate workspace and are run with nightly Rust. Nothing is linked here: any file stands for the
    // library, which would be compiled from C++ otherwise.
    step(
        "fuzz targets",
        Tree,
        All,
        &[],
        "CUSTOM_LIBFUZZER_PATH=$PWD/Cargo.toml CARGO_TARGET_DIR=$TARGET cargo check --config Cargo.toml \
         --manifest-path verify/fuzz/Cargo.toml --all-targets --locked --quiet",
    ),
    step(
        "oldest Rust",
        Beside,
        All,
        &[OLDEST],
        "CARGO_TARGET_DIR=$TARGET/oldest cargo +1.88 check --quiet --package tlbkit --package tlbkit-arch \
         --package tlbkit-pmap --package tlbkit-x86 --package tlbkit-c",
    ),
    // Two CPUs a word: inboxes with a top, and sets of several words, on few CPUs.
    step(
        "narrow sets",
        Beside,
        All,
        &[],
        "RUSTFLAGS='--cfg narrow_sets' CARGO_TARGET_DIR=$TARGET/narrow cargo test --package tlbkit --features history \
         --lib --tests --no-fail-fast --quiet",
    ),
    step("loom", Beside, All, &[], "cargo xtask loom"),
    step(
        "sweeps",
        Tree,
        All,
        &[SLURM, PARALLEL],
        "sh cli/tlbkit/tests/slurm.sh cargo test --package tlbkit-cli --test shards --quiet",
    ),
    step("published results", Beside, All, &[], "cargo xtask report"),
    step("kernel in emulators", Alone, All, &[BARE, QEMU], "cargo xtask qemu --short"),
    step("kernel in C", Alone, All, &[BARE, QEMU, GCC], "cargo xtask c-kernel"),
    step("port to Linux", Alone, All, &[BARE, GCC], "cargo xtask linux port"),
    step("port to OSTD", Alone, All, &[BARE, QEMU, OSTD], "cargo xtask ostd --short"),
];

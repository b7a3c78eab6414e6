//! The committed header is what cbindgen makes of the source.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn generated() -> Result<String, Box<dyn Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml"))?;
    let words = protocols_words()?;
    let bindings = cbindgen::Builder::new().with_config(config).with_crate(crate_dir).with_src(words).generate()?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text)?;
    let line = "#define TLBKIT_INTERFACE ";
    Ok(text.replace(&format!("{line}0ull"), &format!("{line}{:#x}ull", hash(&text))))
}

/// FNV-1a, of the header with a 0 in the place of the number.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The protocol's own reasons and places, as C has enums: of an int's width, whatever Rust packs them into.
fn protocols_words() -> Result<PathBuf, Box<dyn Error>> {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit/src");
    let files = ["policy/mod.rs", "policy/history/stats.rs"].map(|file| fs::read_to_string(protocol.join(file)));
    let source = files.into_iter().collect::<Result<Vec<_>, _>>()?.join("\n\n");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("words.rs");
    let enums: Vec<&str> = source
        .split("\n\n")
        .filter(|paragraph| ["pub enum Reason ", "pub enum Place "].iter().any(|name| paragraph.contains(name)))
        .collect();
    fs::write(&copy, enums.join("\n\n").replace("repr(u8)", "repr(C)"))?;
    Ok(copy)
}

#[test]
fn the_archive_knows_the_number_of_its_header() -> Result<(), Box<dyn Error>> {
    let header = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tlbkit.h"))?;
    let line = header.lines().find(|line| line.contains("TLBKIT_INTERFACE 0x")).map(str::to_owned);
    let hash = tlbkit_c::storage::tlbkit_layout().interface_hash;
    assert_eq!(line, Some(format!("#define TLBKIT_INTERFACE {hash:#x}ull")));
    Ok(())
}

/// A compiler warns of such a function in every file of the kernel.
#[test]
fn what_returns_nothing_has_no_result_that_must_be_used() -> Result<(), Box<dyn Error>> {
    let header = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tlbkit.h"))?;
    let words: Vec<_> = header.split_whitespace().collect();
    let wrong: Vec<_> = words.windows(3).filter(|words| words[..2] == ["TLBKIT_MUST_USE", "void"]).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn the_committed_header_is_not_stale() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tlbkit.h");
    let fresh = generated()?;
    if env::var_os("TLBKIT_BLESS").is_some() {
        fs::write(&path, &fresh)?;
    }
    let committed = fs::read_to_string(&path)?;
    let differs = committed.lines().zip(fresh.lines()).position(|(old, new)| old != new);
    let is_same = committed == fresh;
    assert!(
        is_same,
        "include/tlbkit.h is stale from line {}: TLBKIT_BLESS=1 cargo test -p tlbkit-c",
        differs.unwrap_or(0) + 1
    );
    Ok(())
}

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
    Ok(String::from_utf8(text)?)
}

/// The protocol's own reasons and places, as C has enums: of an int's width, whatever Rust packs them into.
fn protocols_words() -> Result<PathBuf, Box<dyn Error>> {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit/src");
    let files = ["reason.rs", "history/stats.rs"].map(|file| fs::read_to_string(protocol.join(file)));
    let source = files.into_iter().collect::<Result<Vec<_>, _>>()?.join("\n\n");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("words.rs");
    let enums: Vec<&str> = source.split("\n\n").filter(|paragraph| paragraph.contains("pub enum")).collect();
    fs::write(&copy, enums.join("\n\n").replace("repr(u8)", "repr(C)"))?;
    Ok(copy)
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

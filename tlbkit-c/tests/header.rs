//! The committed header is what cbindgen makes of the source.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn generated() -> Result<String, Box<dyn Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml"))?;
    let bindings = cbindgen::generate_with_config(crate_dir, config)?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(String::from_utf8(text)?)
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

//! What the `Cargo.lock` of a kernel gains by linking the libraries: themselves. Not what their tests need, nor what
//! watches or explores the protocol here.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The whole lock file: a crate outside this workspace, and the libraries that it links.
const LOCKED: [&str; 5] = ["kernel", "tlbkit", "tlbkit-arch", "tlbkit-pmap", "tlbkit-x86"];

#[test]
fn a_kernel_locks_the_libraries_that_it_links_and_nothing_else() -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(LOCKED[0]);
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("lib");
    let mut manifest = format!("[package]\nname = {:?}\nedition = \"2024\"\n[workspace]\n[dependencies]\n", LOCKED[0]);
    manifest.extend(LOCKED[1..].iter().map(|name| format!("{name} = {{ path = {:?} }}\n", lib.join(name))));
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let cargo = Command::new(env!("CARGO")).args(["generate-lockfile", "--offline"]).current_dir(&folder).output()?;
    ensure!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let lock: toml::Table = fs::read_to_string(folder.join("Cargo.lock"))?.parse()?;
    let packages = lock["package"].as_array().context("a lock file without packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert_eq!(names, LOCKED);
    Ok(())
}

//! Tells the linker where things go.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=linker.ld");
    for argument in
        [&format!("-T{folder}/linker.ld"), "--build-id=none", "-zmax-page-size=4096", "-znoexecstack", "--gc-sections"]
    {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

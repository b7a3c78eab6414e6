//! The machine files, as part of the program.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        pub(super) const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../machines/", $name, ".toml")))),*];
    };
}

files![
    "skylake-laptop-kvm",
    "server-2018-48cpu",
    "server-2008-8cpu",
    "skylake-desktop-pti",
    "ivybridge-8thread",
    "sapphire-rapids",
    "zen4",
    "recent-bare",
    "recent-vm",
    "recent-vm-fractured",
];

//! `tlbkit boot`: the bare-metal test kernel in QEMU: one workload, or what instructions and flushes cost on this host.

mod bench;
mod counts;
mod machine_file;
mod qemu;
mod tables;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::lab::named_run::check_workload;
use crate::lab::nearest::unknown;
use crate::lab::policy;
use crate::lab::terminal::{Ending, Format, note, say};
use crate::output::file::{self, check_absent};
use crate::output::kind::Kind;
use counts::KernelRun;
use qemu::{Accelerator, Failed, Qemu};

/// What to boot for.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tlbkit boot --workload tlb-flush2 --set rounds=5 --cpus 4
  tlbkit boot --bench -o mine.toml && tlbkit run ebizzy-m --machine mine.toml

Needs QEMU and the source tree, from which the kernel is built. Cycles are shown only where KVM runs on hardware \
virtualization and the guest has PCIDs; an emulator's would mean nothing, so there counts stand alone.

Exit status: 0 all checks of the kernel held, 1 one failed, 2 wrong usage, or it could not be booted.")]
pub(crate) struct BootArguments {
    /// Time instructions, flushes, interrupts, the ping-pong and ebizzy
    #[arg(long)]
    bench: bool,
    /// CPUs of the virtual machine
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// A workload of `tlbkit list workloads`, or race, races or readers, which the test kernel alone has
    #[arg(long, default_value = "ebizzy-m", conflicts_with = "bench")]
    workload: String,
    /// A parameter of the workload; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "bench")]
    parameters: Vec<String>,
    /// A preset of `tlbkit list policies`, or one changed: linux-6.18:pti=on+lazy=off
    #[arg(long, default_value = "tlbkit")]
    policy: String,
    /// Another word of metal/kernel/README.md, as with=pti=on, monitor=on or seed=2; may be given again
    #[arg(long = "option", value_name = "KEY=VALUE", conflicts_with = "bench")]
    words: Vec<String>,
    /// With --bench, the machine file to write; boot.toml by default where cycles can be measured
    #[arg(short, long, value_name = "FILE", requires = "bench")]
    output: Option<PathBuf>,
    /// With --bench, replace a machine file that is there and was measured
    #[arg(short, long, requires = "bench")]
    force: bool,
}

/// Boots it.
pub(crate) fn execute(arguments: &BootArguments, format: Format) -> Result<Ending> {
    check_names(arguments)?;
    if let Some(output) = &arguments.output {
        check_output(output, arguments)?;
    }
    tlbkit_boot::find()?;
    let kernel = build_image()?;
    let accelerator = qemu::choose(&kernel);
    let qemu = Qemu { kernel: &kernel, accelerator: &accelerator, cpus: arguments.cpus };
    let ended = if arguments.bench { measure(arguments, &qemu, format) } else { run(arguments, &qemu, format) };
    match ended {
        // The kernel found something wrong: a result, not a misuse.
        Err(error) if error.is::<Failed>() => {
            note!("tlbkit: {error}");
            Ok(Ending::NotAsExpected)
        }
        ended => ended.map(|()| Ending::AsExpected),
    }
}

/// Workloads that the test kernel alone has, with the parameters of madvise1.
const OWN_WORKLOADS: [&str; 3] = ["race", "races", "readers"];

/// Whether everything that is named exists: the kernel would say so only when it has been built and booted.
fn check_names(arguments: &BootArguments) -> Result<()> {
    policy::parse(&arguments.policy)?;
    let name = arguments.workload.as_str();
    let names = || tlbkit_workloads::names().chain(OWN_WORKLOADS);
    ensure!(names().any(|known| known == name), unknown("workload", name, names(), "workloads"));
    // Several settings may stand in one word.
    let settings: Vec<_> = arguments.parameters.iter().flat_map(|set| set.split(',')).map(str::to_owned).collect();
    let parameters_of = if OWN_WORKLOADS.contains(&name) { "madvise1" } else { name };
    check_workload(parameters_of, &settings)
}

/// Whether the machine file can be written: known before the kernel is built, if it is named.
fn check_output(output: &Path, arguments: &BootArguments) -> Result<()> {
    file::check_output(output, Kind::Machine)?;
    if arguments.force { Ok(()) } else { check_absent(output) }
}

/// One workload.
fn run(arguments: &BootArguments, qemu: &Qemu<'_>, format: Format) -> Result<()> {
    let mut words = vec![format!("workload={} policy={}", arguments.workload, arguments.policy)];
    words.extend(arguments.parameters.iter().map(|setting| format!("set={setting}")));
    words.extend(arguments.words.iter().cloned());
    let run = KernelRun::of(&arguments.workload, qemu, &words.join(" "))?;
    match format {
        Format::Json => say!("{}", run.json_row(qemu)),
        Format::Text => {
            say!("{}", counts::table(std::slice::from_ref(&run)));
            say!("{:.2} s from boot to result; {}", run.seconds, qemu.accelerator);
        }
    }
    Ok(())
}

/// All that can be measured, and a machine file of it where cycles mean something.
fn measure(arguments: &BootArguments, qemu: &Qemu<'_>, format: Format) -> Result<()> {
    let is_measuring = *qemu.accelerator == Accelerator::Hardware;
    let output = arguments.output.clone().unwrap_or_else(|| PathBuf::from("boot.toml"));
    ensure!(is_measuring || arguments.output.is_none(), "{}: not written: {}", output.display(), qemu.accelerator);
    if is_measuring {
        check_output(&output, arguments)?;
    }
    let bench = bench::run(qemu, &arguments.policy)?;
    match format {
        Format::Json => bench.json_rows(qemu).iter().for_each(|row| say!("{row}")),
        Format::Text => say!("{}\n{}", tables::text(&bench)?, qemu.accelerator),
    }
    if is_measuring {
        machine_file::write(&output, &bench, arguments.cpus)?;
        note!("machine file: {}", output.display());
    }
    Ok(())
}

/// What the manifest of the kernel calls it.
const KERNEL_NAME: &str = "tlbkit-kernel";

/// Builds it, if it is not up to date, and says where it is.
fn build_image() -> Result<PathBuf> {
    let root = source_root()
        .context("no source tree here: boot needs the folder metal/kernel/ of a clone; run it inside one")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(tlbkit_boot::build(&root.join("metal/kernel"), &target.join("kernel"))?)
}

/// The nearest folder with the kernel: around the current one, else where this program was built.
fn source_root() -> Option<PathBuf> {
    let here = env::current_dir().unwrap_or_default();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().chain(home.ancestors()).find(|folder| holds_kernel(folder)).map(Path::to_path_buf)
}

fn holds_kernel(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("metal/kernel/Cargo.toml"));
    manifest.is_ok_and(|text| text.contains(KERNEL_NAME))
}

//! `tlbkit boot`: the bare-metal test kernel in QEMU: one workload, or what instructions and flushes cost on this host.

mod accelerator;
mod bench;
mod counts;
mod cycles;
mod image;
mod machine_file;
mod qemu;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::output::check_folder;
use crate::{Ending, Format};
use accelerator::Accelerator;
use counts::Run;
use qemu::{Failed, Qemu};

/// What to boot for.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tlbkit boot --workload tlb-flush2 --set rounds=5 --cpus 4
  tlbkit boot --bench -o mine.toml && tlbkit run ebizzy-m --machine mine.toml

Needs QEMU and the source tree, from which the kernel is built. Cycles are shown only where KVM runs on hardware
virtualization and the guest has PCIDs; an emulator's would mean nothing, so there counts stand alone.
Exit status: 0 all checks of the kernel held, 1 one failed, 2 wrong usage, or it could not be booted.")]
pub(crate) struct Options {
    /// Time instructions, flushes, interrupts, the ping-pong and ebizzy
    #[arg(long)]
    bench: bool,
    /// CPUs of the virtual machine
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// A workload of `tlbkit list workloads`
    #[arg(long, default_value = "ebizzy-m", conflicts_with = "bench")]
    workload: String,
    /// A parameter of the workload; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "bench")]
    parameters: Vec<String>,
    /// A preset of `tlbkit list policies`
    #[arg(long, default_value = "tlbkit")]
    policy: String,
    /// Another word of metal/kernel/README.md, as pti=on, monitor=on or seed=2; may be given again
    #[arg(long = "option", value_name = "KEY=VALUE", conflicts_with = "bench")]
    words: Vec<String>,
    /// With --bench, the machine file to write; boot.toml by default where cycles can be measured
    #[arg(short, long, value_name = "FILE", requires = "bench")]
    output: Option<PathBuf>,
}

/// Boots it.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    tlbkit_boot::find()?;
    let kernel = image::build()?;
    let accelerator = Accelerator::choose(&kernel);
    let qemu = Qemu { kernel: &kernel, accelerator: &accelerator, cpus: options.cpus };
    let ended = if options.bench { measure(options, &qemu, format) } else { run(options, &qemu, format) };
    match ended {
        // The kernel found something wrong: a result, not a misuse.
        Err(error) if error.is::<Failed>() => {
            eprintln!("tlbkit: {error}");
            Ok(Ending::OutOfBand)
        }
        ended => ended.map(|()| Ending::Fine),
    }
}

/// One workload.
fn run(options: &Options, qemu: &Qemu<'_>, format: Format) -> Result<()> {
    let mut words = vec![format!("workload={} policy={}", options.workload, options.policy)];
    words.extend(options.parameters.iter().map(|setting| format!("set={setting}")));
    words.extend(options.words.iter().cloned());
    let run = Run::of(&options.workload, qemu, &words.join(" "))?;
    match format {
        Format::Json => println!("{}", run.json_row(qemu)),
        Format::Text => {
            println!("{}", counts::table(std::slice::from_ref(&run)));
            println!("{:.2} s from boot to result; {}", run.seconds, qemu.accelerator);
        }
    }
    Ok(())
}

/// All that can be measured, and a machine file of it where cycles mean something.
fn measure(options: &Options, qemu: &Qemu<'_>, format: Format) -> Result<()> {
    let is_measuring = *qemu.accelerator == Accelerator::Hardware;
    if let Some(output) = &options.output {
        check_folder(output)?;
        ensure!(is_measuring, "{}: not written: {}", output.display(), qemu.accelerator);
    }
    let bench = bench::run(qemu, &options.policy)?;
    match format {
        Format::Json => bench.json_rows(qemu).iter().for_each(|row| println!("{row}")),
        Format::Text => println!("{}\n{}", bench.text()?, qemu.accelerator),
    }
    if is_measuring {
        let output = options.output.clone().unwrap_or_else(|| PathBuf::from("boot.toml"));
        machine_file::write(&output, &bench, options.cpus)?;
        eprintln!("machine file: {}", output.display());
    }
    Ok(())
}

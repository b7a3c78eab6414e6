//! One JSON object a line over the serial port, and the end of the machine with it.

use core::fmt::{self, Display, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use tlbkit::{Place, Reason, SIZES, SizeRow};

use crate::arch::exit::{Ending, exit};
use crate::arch::{cpu, serial};
use crate::bench::Sample;
use crate::boot::options::{Error, Options};
use crate::machine::{
    self,
    counters::{self, Counter},
};
use crate::memory;
use crate::user::shared;

/// Set by whoever writes the last line: nobody else writes one.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Text inside a JSON string.
struct Escaped(serial::Serial);

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(self.0, "\\{c}"),
            '\n' => self.0.write_str("\\n"),
            c if c.is_control() => self.0.write_char(' '),
            c => self.0.write_char(c),
        })
    }
}

/// Only the first one goes on; the others stop where they are.
fn be_the_last() {
    // SeqCst: one of all; partner is itself.
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        x86_64::instructions::interrupts::disable();
        loop {
            x86_64::instructions::hlt();
        }
    }
}

fn end_with(kind: &str, what: &dyn Display, ending: Ending) -> ! {
    be_the_last();
    let mut port = serial::Serial;
    // Nothing can be done about a port that does not take it.
    let _ = write!(port, "{{\"kind\":\"{kind}\",\"what\":\"");
    let _ = write!(Escaped(serial::Serial), "{what}");
    let _ = writeln!(port, "\"}}");
    exit(ending)
}

/// A check of the kernel failed.
pub(crate) fn failure(what: &dyn Display) -> ! {
    end_with("failure", &format_args!("cpu{}: {what}", cpu::index()), Ending::Failed)
}

/// A page held something else than it must.
pub(crate) fn wrong_value(va: u64, found: u64, expected: u64) -> ! {
    failure(&format_args!("the page at {va:#x} holds {found:#x} and not {expected:#x}: a flush was lost"))
}

/// The kernel went wrong.
pub(crate) fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    end_with("panic", info, Ending::Panicked)
}

/// The command line is wrong.
pub(crate) fn wrong_usage(error: &Error) -> ! {
    end_with("usage", error, Ending::WrongUsage)
}

/// One rule of the manual, and how it was found.
pub(crate) fn rule(name: &dyn Display, holds: bool, found: &dyn Display) {
    // As in `end_with`. One CPU is up in earnest, so nobody else writes.
    let _ = writeln!(serial::Serial, r#"{{"kind":"rule","name":"{name}","holds":{holds},"found":"{found}"}}"#);
}

/// How many rules were asked and how many broken, and the end.
pub(crate) fn rules(asked: u32, broken: u32) -> ! {
    be_the_last();
    let kind = if broken == 0 { "result" } else { "failure" };
    // As above.
    let _ = writeln!(serial::Serial, r#"{{"kind":"{kind}","what":"{broken} of {asked} rules broken"}}"#);
    exit(if broken == 0 { Ending::Fine } else { Ending::Failed })
}

/// What one thing costs on this machine.
pub(crate) fn cost(name: &str, sample: &Sample) {
    let Sample { low, median, high, repetitions } = sample;
    // As in `rule`: the other CPUs only take interrupts.
    let _ = write!(serial::Serial, r#"{{"kind":"cost","name":"{name}","low":{low},"median":{median},"#);
    let _ = writeln!(serial::Serial, r#""high":{high},"repetitions":{repetitions}}}"#);
}

/// How many interrupts that took, and the end.
pub(crate) fn benched(options: &Options) -> ! {
    be_the_last();
    let (features, cpus) = (machine::features(), options.cpus);
    let [sent, received] = [Counter::IpisSent, Counter::IpisReceived].map(counters::sum);
    let mut port = serial::Serial;
    // As in `end_with`.
    let _ = write!(port, r#"{{"kind":"result","cpus":{cpus},"pcid":{},"invpcid":{},"#, features.pcid, features.invpcid);
    let _ = writeln!(port, r#""ipis_sent":{sent},"ipis_received":{received}}}"#);
    exit(Ending::Fine)
}

/// The run's numbers, and the end.
pub(crate) fn result(options: &Options) -> ! {
    be_the_last();
    let _ = write_result(options);
    exit(Ending::Fine)
}

fn write_result(options: &Options) -> fmt::Result {
    let mut port = serial::Serial;
    let features = machine::features();
    let (workload, policy, cpus, seed) = (options.workload_name, options.policy_name, options.cpus, options.seed);
    write!(port, r#"{{"kind":"result","workload":"{workload}","policy":"{policy}","cpus":{cpus},"seed":{seed},"#)?;
    write!(port, r#""pcid":{},"invpcid":{},"score":{}"#, features.pcid, features.invpcid, shared::score())?;
    write!(port, r#","cycles":{}"#, shared::elapsed_cycles())?;
    let (tables, data) = memory::frames_used();
    write!(port, r#","tables_left":{tables},"data_left":{data}"#)?;
    for (counter, name) in Counter::ALL {
        write!(port, r#","{name}":{}"#, counters::sum(*counter))?;
    }
    write!(port, r#","reasons":["#)?;
    for (n, reason) in Reason::ALL.into_iter().enumerate() {
        let [local, remote, kernel] =
            [Place::Local, Place::Remote, Place::Kernel].map(|at| machine::reason(reason, at));
        let comma = if n == 0 { "" } else { "," };
        write!(port, r#"{comma}{{"local":{local},"remote":{remote},"kernel":{kernel}}}"#)?;
    }
    write!(port, r#"],"sizes":["#)?;
    write_sizes(&mut port)?;
    writeln!(port, "]}}")
}

/// The histogram of flush sizes, without empty rows; 0 stands for flushes of everything.
fn write_sizes(port: &mut serial::Serial) -> fmt::Result {
    let rows = (0..=SIZES).map(|pages| (pages, machine::size(pages))).filter(|(_, row)| row.samples > 0);
    for (n, (pages, SizeRow { samples, cycles })) in rows.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(port, r#"{comma}{{"pages":{pages},"samples":{samples},"cycles":{cycles}}}"#)?;
    }
    Ok(())
}

//! `tlbscope top`: this machine's flushes, live.
//!
//! One thread keeps the recorder handing out what it has; this one reads the stream and shows an interval when the
//! first event after it comes. So what is shown is whole, and the clock is the kernel's.

mod screen;
mod tables;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tlbkit_host::Host;
use tlbkit_host::recorder::{Order, Recorder, Stacks, available};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::{EVENTS, Error, Source, Summary, open_pipe};

use crate::watching::{LOOK_EVERY, WatchArguments, WatchedRun, Watching};
use screen::Screen;
use tables::Observed;

/// How many times an interval the recorder is asked for what it has.
const NUDGES: u32 = 4;

/// Whom to observe.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbscope top --all-cpus\n  tlbscope top -- make -j4\n  \
    tlbscope top --pid 1234 --duration 10")]
pub(crate) struct TopArguments {
    /// Seconds from one picture to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    #[command(flatten)]
    subject: WatchArguments,
}

/// Observes it.
pub(crate) fn execute(arguments: &TopArguments, format: Format) -> Result<Ending> {
    arguments.subject.check()?;
    let interval = arguments.interval;
    ensure!((0.1..=3600.0).contains(&interval), "--interval {interval}: must be 0.1 to 3600");
    let available = available(EVENTS)?;
    let order =
        Order { events: available.events, watched: arguments.subject.watched(), stacks: Stacks::Recorded, file: None };
    let stopping = Stopping::listen()?;
    let mut recorder = Recorder::start(&order)?;
    let stream = recorder.stream().context("the recorder has no stream")?;
    let interval = Duration::from_secs_f64(interval);
    let mut observed = Observed::new(Host::ask()?.tsc_mhz, available.missing);
    thread::scope(|scope| {
        let keeper = scope.spawn(|| keep(recorder, &arguments.subject, format, stopping, interval / NUDGES));
        let source = open_pipe(stream).and_then(|mut source| {
            let screen = Screen::open(format, &arguments.subject);
            read(source.as_mut(), interval, &mut observed, &screen)?;
            Ok((source, screen))
        });
        // What the recorder complains of explains what is wrong with its stream.
        let run = keeper.join().map_err(|_| anyhow::anyhow!("the thread that keeps the recorder failed"))??;
        let (source, screen) = source?;
        screen.end(&observed, source.names(), source.health(), &run);
        Ok(run.ending())
    })
}

/// Makes the recorder hand out what it has, until the watching is over; then ends it, and with it the stream.
fn keep(
    mut recorder: Recorder,
    subject: &WatchArguments,
    format: Format,
    stopping: Stopping,
    pause: Duration,
) -> Result<WatchedRun> {
    recorder.wait_until_ready()?;
    let mut watching = Watching::start(subject, format, stopping)?;
    let mut since_nudge = Duration::ZERO;
    while !watching.is_over()? && !recorder.is_over() {
        thread::sleep(LOOK_EVERY);
        since_nudge += LOOK_EVERY;
        if since_nudge >= pause {
            recorder.nudge()?;
            since_nudge = Duration::ZERO;
        }
    }
    let run = watching.finish()?;
    recorder.stop();
    recorder.wait()?;
    Ok(run)
}

/// Reads to the end of the stream, and shows each interval.
fn read(source: &mut dyn Source, interval: Duration, observed: &mut Observed, screen: &Screen) -> Result<(), Error> {
    let interval_ns = interval.as_nanos() as u64;
    let mut end_ns = None;
    let mut window = Summary::default();
    while let Some(event) = source.next_event()? {
        let end = *end_ns.get_or_insert(event.time_ns + interval_ns);
        if event.time_ns >= end {
            screen.interval(&window, observed, source.names(), source.health());
            window = Summary::default();
            end_ns = Some(end + interval_ns * (1 + (event.time_ns - end) / interval_ns));
        }
        window.add(&event, source.names());
        observed.total.add(&event, source.names());
    }
    Ok(())
}

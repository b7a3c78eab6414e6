//! `tlbscope top`: what shootdowns cost this machine now, program by program.
//!
//! Four tracepoints are recorded, without stacks: flushes that are no switch, and the calls by which CPUs ask each
//! other and answer. One thread reads the stream, one keeps the recorder handing out what it has, one reads keys; this
//! one shows what they send.

mod ledger;
mod metrics;
mod screen;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use console::Term;
use tlbkit_host::recorder::{Order as Recorded, Recorder, Stacks, available};
use tlbkit_output::file::{check_place, write_whole};
use tlbkit_output::say;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::blame::Shootdowns;
use tlbkit_trace::{Error, Source, open_pipe};

use crate::watching::WatchArguments;
use ledger::{Ledger, People};
use screen::{Screen, View, Wish};

/// What a shootdown needs: who flushes, whom he asks, and when each of those begins and ends.
const EVENTS: &[&str] = &["tlb:tlb_flush", "csd:csd_queue_cpu", "csd:csd_function_entry", "csd:csd_function_exit"];
/// How often to look whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whom to observe.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbscope top\n  tlbscope top --pid 1234 --duration 10\n  \
    tlbscope top --prometheus 9101\n  tlbscope top --interval 15 --textfile tlbscope.prom")]
pub(crate) struct TopArguments {
    /// One process, and what it starts from now on; else all
    #[arg(long)]
    pid: Option<i32>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Seconds from one picture to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Serve the sums to Prometheus: a port of this machine alone, or an address
    #[arg(long, value_name = "ADDR")]
    prometheus: Option<String>,
    /// Write the sums into a file, as node_exporter reads it, after each interval
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

/// What the other threads send.
enum Message {
    /// An interval that was not empty.
    Interval(Ledger),
    /// The time of an interval has passed.
    Tick,
    Key(char),
    /// The stream has ended.
    End(Result<(), Error>),
}

/// Observes it.
pub(crate) fn execute(arguments: &TopArguments, format: Format) -> Result<Ending> {
    let TopArguments { interval, duration, textfile, .. } = arguments;
    let subject = WatchArguments::of_process_or_all(arguments.pid, *duration);
    subject.check()?;
    ensure!((0.1..=3600.0).contains(interval), "--interval {interval}: must be 0.1 to 3600");
    textfile.as_deref().map_or(Ok(()), check_place)?;
    let address = arguments.prometheus.as_deref().map(metrics::address).transpose()?;
    let available = available(EVENTS)?;
    let order = Recorded { events: available.events, watched: subject.watched(), stacks: Stacks::Absent, file: None };
    let stopping = Stopping::listen()?;
    let mut recorder = Recorder::start(&order)?;
    let stream = recorder.stream().context("the recorder has no stream")?;
    let (sender, messages) = channel();
    let interval = Duration::from_secs_f64(*interval);
    let reader = thread::spawn({
        let sender = sender.clone();
        move || {
            let end = open_pipe(stream).and_then(|mut source| read(source.as_mut(), interval, &sender));
            let _ = sender.send(Message::End(end));
        }
    });
    recorder.wait_until_ready()?;
    let page = metrics::Page::default();
    if let Some(address) = address {
        metrics::serve(address, Arc::clone(&page))?;
    }
    let is_wanted = Arc::new(AtomicBool::new(true));
    let keeper = thread::spawn({
        let (sender, is_wanted) = (sender.clone(), Arc::clone(&is_wanted));
        let limit = duration.map(Duration::from_secs_f64);
        move || keep(recorder, interval, limit, &stopping, &is_wanted, &sender)
    });
    let term = Term::stdout();
    let screen = (format == Format::Text && term.is_term()).then(|| Screen::open(term, sender));
    let is_silent = address.is_some() || textfile.is_some();
    let shown = Shown { screen, format, is_silent, page, textfile: textfile.clone() };
    let sums = show(&messages, shown, &is_wanted);
    is_wanted.store(false, Ordering::Relaxed);
    let failed = |_| anyhow::anyhow!("a thread of top failed");
    keeper.join().map_err(failed)??;
    reader.join().map_err(failed)?;
    let sums = sums?;
    match format {
        Format::Json => sums.json("sum").iter().for_each(|row| say!("{row}")),
        Format::Text => say!("{:.1} s. {}", sums.seconds, screen::text(&sums, &View::new(), usize::MAX)),
    }
    Ok(Ending::AsExpected)
}

/// Makes the recorder hand out what it has after each interval, until it is over; then ends it, and with it the stream.
fn keep(
    mut recorder: Recorder,
    interval: Duration,
    limit: Option<Duration>,
    stopping: &Stopping,
    is_wanted: &AtomicBool,
    sender: &Sender<Message>,
) -> Result<()> {
    let started = Instant::now();
    let is_within = |started: Instant| limit.is_none_or(|limit| started.elapsed() < limit);
    let mut next = interval;
    while is_within(started) && is_wanted.load(Ordering::Relaxed) && !stopping.is_wanted() && !recorder.is_over() {
        thread::sleep(LOOK_EVERY.min(interval));
        if started.elapsed() >= next {
            next += interval;
            recorder.nudge()?;
            // Nobody is left if that fails, and the loop ends.
            let _ = sender.send(Message::Tick);
        }
    }
    recorder.stop();
    recorder.wait()?;
    Ok(())
}

/// Reads to the end of the stream, and sends each interval when the first event after it comes.
fn read(source: &mut dyn Source, interval: Duration, sender: &Sender<Message>) -> Result<(), Error> {
    let interval_ns = interval.as_nanos() as u64;
    let (mut shootdowns, mut people) = (Shootdowns::default(), People::default());
    let mut span_ns: Option<(u64, u64)> = None;
    while let Some(event) = source.next_event()? {
        let (start_ns, _) = span_ns.unwrap_or((event.time_ns, 0));
        if event.time_ns >= start_ns + interval_ns {
            let seconds = (event.time_ns - start_ns) as f64 / 1e9;
            send(Ledger::of(shootdowns.take(), &people, seconds), source, sender);
        }
        let is_next = event.time_ns >= start_ns + interval_ns;
        span_ns = Some((if is_next { event.time_ns } else { start_ns }, event.time_ns));
        people.meet(&event, || source.names().text(event.comm).to_owned());
        shootdowns.add(&event);
    }
    let seconds = span_ns.map_or(0.0, |(start_ns, last_ns)| (last_ns - start_ns) as f64 / 1e9);
    send(Ledger::of(shootdowns.take(), &people, seconds), source, sender);
    Ok(())
}

fn send(ledger: Ledger, source: &dyn Source, sender: &Sender<Message>) {
    // Nobody is left if that fails, and the stream ends.
    let _ = sender.send(Message::Interval(Ledger { lost: source.health().lost, ..ledger }));
}

/// Where what happened goes.
struct Shown {
    screen: Option<Screen>,
    format: Format,
    /// Whether a file or a server has the sums, so that lines would be noise.
    is_silent: bool,
    page: metrics::Page,
    textfile: Option<PathBuf>,
}

impl Shown {
    fn interval(&self, window: &Ledger, sums: &Ledger, view: &View) -> Result<()> {
        let text = metrics::text(sums);
        if let Some(file) = &self.textfile {
            write_whole(file, &text)?;
        }
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
        match (&self.screen, self.format) {
            (Some(screen), _) => screen.draw(window, view),
            (None, _) if self.is_silent => {}
            (None, Format::Json) => window.json("interval").iter().for_each(|row| say!("{row}")),
            (None, Format::Text) => say!("{}", screen::text(window, view, usize::MAX)),
        }
        Ok(())
    }
}

/// Shows each interval until the stream ends, and returns the sums.
fn show(messages: &Receiver<Message>, shown: Shown, is_wanted: &AtomicBool) -> Result<Ledger> {
    let (mut view, mut sums) = (View::new(), Ledger::default());
    let (mut window, mut is_fresh) = (Ledger::default(), true);
    for message in messages {
        match message {
            Message::Interval(next) => {
                sums.add(&next);
                (window, is_fresh) = (next, true);
                shown.interval(&window, &sums, &view)?;
            }
            // Nothing came since the last one: nothing was flushed.
            Message::Tick if !std::mem::take(&mut is_fresh) => {
                window = Ledger { seconds: 1.0, lost: sums.lost, ..Ledger::default() };
                if let Some(screen) = &shown.screen {
                    screen.draw(&window, &view);
                }
            }
            Message::Tick => {}
            Message::Key(key) => {
                let wish = view.press(key);
                if wish == Wish::Quit {
                    is_wanted.store(false, Ordering::Relaxed);
                }
                if let Some(screen) = &shown.screen {
                    screen.draw(&window, &view);
                }
            }
            Message::End(end) => return end.map(|()| sums).map_err(anyhow::Error::from),
        }
    }
    Ok(sums)
}

//! Processes on one CPU that wake each other in turn, each using its own pages: how many address spaces keep their
//! translations over a switch.
//!
//! A ring has this process and others that the caller starts, each with an event counter as standard input and the next
//! one's as standard output. The number that travels says how many pages to use before it is passed on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::host::MeasuringPlace;
use crate::sample::{Effort, Sample, try_nanoseconds};
use crate::sys::{self, Backing, Mapping, PAGE_WORDS};

/// The largest ring: two more than the six tags a CPU has on Linux.
const LARGEST: usize = 8;
/// Pages that each process uses in a turn: those of six fit a second-level TLB of 1,536 entries.
const FEW_PAGES: usize = 256;
/// Pages of the published ping-pong.
const PING_PONG_PAGES: usize = 512;
/// Rounds of one repetition.
const ROUNDS: usize = 200;
/// How long the processes may take to start, on a busy machine: it only ends a hang.
const START: Duration = Duration::from_secs(120);
/// A part of a walk that a page must cost more than in the smallest ring to count as lost: some second-level hits are
/// always among the rest.
const LOST_SHARE: f64 = 0.5;

/// A ring of one size, in nanoseconds a hop from one process to the next.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RingCost {
    /// Processes of the ring.
    pub processes: usize,
    /// None uses a page.
    pub idle: Sample,
    /// Each uses 256.
    pub few_pages: Sample,
    /// Each uses 512.
    pub many_pages: Sample,
}

impl RingCost {
    /// What a hop pays for each of 256 pages, in nanoseconds; of the fastest tenths, as what disturbs only ever adds.
    #[must_use]
    pub fn page(&self) -> f64 {
        (self.few_pages.low - self.idle.low) / FEW_PAGES as f64
    }
}

/// What rings of different sizes tell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rings {
    /// By number of processes, from two.
    pub rows: Vec<RingCost>,
}

impl Rings {
    /// Measures rings of two to eight processes on the CPU of this thread. `member` makes the command of a process
    /// that calls [`serve`].
    ///
    /// # Errors
    /// If a process cannot be started or ends early.
    pub fn measure(effort: Effort, place: &MeasuringPlace, member: &mut dyn FnMut() -> Command) -> Result<Self> {
        sys::pin(place.cpu)?;
        let rows: Result<_> = (2..=LARGEST).map(|processes| row(effort, processes, member)).collect();
        sys::pin_to(&place.allowed)?;
        Ok(Self { rows: rows? })
    }

    /// The ping-pong of two processes.
    #[must_use]
    pub fn ping_pong(&self) -> Option<&RingCost> {
        self.rows.first()
    }

    /// How many processes keep their translations, where a walk that others overlap costs `walk`; none if even the
    /// largest ring loses none.
    #[must_use]
    pub fn tags(&self, walk: &Sample) -> Option<usize> {
        let limit = self.rows.first()?.page() + LOST_SHARE * walk.median;
        let kept = self.rows.iter().take_while(|row| row.page() < limit).last()?;
        (kept.processes < self.rows.last()?.processes).then_some(kept.processes)
    }
}

fn row(effort: Effort, processes: usize, member: &mut dyn FnMut() -> Command) -> Result<RingCost> {
    let mut ring = Ring::start(processes, member)?;
    let mut memory = Mapping::new(PING_PONG_PAGES, Backing::Small)?;
    let mut hop = |pages: usize| -> Result<Sample> {
        let mut once = || ring.rounds(&mut memory, pages).map(|time| time / (ROUNDS * processes) as f64);
        once()?;
        Ok(Sample::of((0..effort.repetitions()).map(|_| once()).collect::<Result<_>>()?))
    };
    Ok(RingCost { processes, idle: hop(0)?, few_pages: hop(FEW_PAGES)?, many_pages: hop(PING_PONG_PAGES)? })
}

/// The other processes of a ring.
struct Ring {
    first: OwnedFd,
    last: OwnedFd,
    members: Vec<Child>,
}

impl Ring {
    fn start(processes: usize, member: &mut dyn FnMut() -> Command) -> Result<Self> {
        let counter = || eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::kernel("eventfd"));
        let first = counter()?;
        let mut ring = Self { last: duplicate(&first)?, first, members: Vec::new() };
        for _ in 1..processes {
            let next = counter()?;
            let input = std::mem::replace(&mut ring.last, duplicate(&next)?);
            let child = member().stdin(Stdio::from(input)).stdout(Stdio::from(next)).spawn();
            ring.members.push(child.map_err(Error::kernel("starting a process of the ring"))?);
        }
        ring.wait_until_complete()?;
        Ok(ring)
    }

    /// Sends a first message round, and gives up if a process ends or takes too long.
    fn wait_until_complete(&mut self) -> Result<()> {
        send(&self.first, 0)?;
        let started = Instant::now();
        let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        while poll(&mut [PollFd::new(&self.last, PollFlags::IN)], Some(&moment)).map_err(Error::kernel("poll"))? == 0 {
            let is_broken = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
            if self.members.iter_mut().any(is_broken) || started.elapsed() > START {
                return Err(Error::RingBroke);
            }
        }
        receive(&self.last).map(drop)
    }

    fn rounds(&mut self, memory: &mut Mapping, pages: usize) -> Result<f64> {
        try_nanoseconds(|| {
            for _ in 0..ROUNDS {
                use_pages(memory, pages);
                send(&self.first, pages)?;
                receive(&self.last)?;
            }
            Ok(())
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for member in &mut self.members {
            // One that ended before cannot be killed any more, and that is well.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// What a process of a ring does: wait at standard input, use pages, pass the message on to standard output.
///
/// # Errors
/// If the kernel refuses memory, or the ring is broken.
pub fn serve() -> Result<()> {
    // Without a parent nobody would ever send the last message.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Error::kernel("prctl(PR_SET_PDEATHSIG)"))?;
    serve_between(&io::stdin(), &io::stdout())
}

fn serve_between(input: &impl AsFd, output: &impl AsFd) -> Result<()> {
    let mut memory = Mapping::new(PING_PONG_PAGES, Backing::Small)?;
    while let Some(pages) = receive(input)? {
        use_pages(&mut memory, pages);
        send(output, pages)?;
    }
    Ok(())
}

/// Reads untouched memory: the kernel maps its page of zeros everywhere, so that the data caches hold it all.
fn use_pages(memory: &mut Mapping, pages: usize) {
    let words = memory.words();
    let used = pages.min(PING_PONG_PAGES);
    std::hint::black_box((0..used).fold(0, |sum, page| sum | words[page * PAGE_WORDS + (page * 8) % PAGE_WORDS]));
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().map_err(Error::kernel("dup"))
}

/// One more than the number of pages travels: a counter of zero wakes nobody.
fn send(to: &impl AsFd, pages: usize) -> Result<()> {
    rustix::io::write(to, &(pages as u64 + 1).to_ne_bytes()).map_err(Error::kernel("writing to the ring")).map(drop)
}

/// What was sent; none at the end of the input.
fn receive(from: &impl AsFd) -> Result<Option<usize>> {
    let mut bytes = [0; 8];
    match rustix::io::read(from, &mut bytes).map_err(Error::kernel("reading from the ring"))? {
        0 => Ok(None),
        _ => Ok(Some(u64::from_ne_bytes(bytes).saturating_sub(1) as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(processes: usize, page: f64) -> RingCost {
        let of = |value| Sample { low: value, median: value, high: value, repetitions: 1 };
        RingCost { processes, idle: of(1000.0), few_pages: of(1000.0 + 256.0 * page), many_pages: of(2000.0) }
    }

    #[test]
    fn tags_end_where_pages_become_dear() {
        let walk = Sample { low: 7.0, median: 7.5, high: 8.0, repetitions: 1 };
        let tags = |costs: [f64; 7]| {
            Rings { rows: (2..).zip(costs).map(|(processes, page)| row(processes, page)).collect() }.tags(&walk)
        };
        assert_eq!(tags([0.2, 0.6, 0.4, 5.0, 7.7, 8.6, 7.6]), Some(4));
        assert_eq!(tags([0.4; 7]), None, "no cost rises");
    }

    #[test]
    fn a_member_passes_messages_on_until_its_input_ends() {
        let ((reader, input), (output, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
        std::thread::scope(|scope| {
            let member = scope.spawn(move || serve_between(&reader, &writer));
            for pages in [0, 1, 512] {
                send(&input, pages).unwrap();
                assert_eq!(receive(&output).unwrap(), Some(pages));
            }
            drop(input);
            member.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_member_that_ends_early_is_an_error_and_no_hang() {
        let place = MeasuringPlace::choose().unwrap();
        let broken = Rings::measure(Effort::Quick, &place, &mut || Command::new("false"));
        assert!(matches!(broken, Err(Error::RingBroke)), "{broken:?}");
    }
}

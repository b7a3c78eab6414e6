//! What happened, step by step: kept only when a run is replayed to be shown.

use std::ops::Range;

use tlbkit::Event;
use tlbkit::sync::Access;

use crate::machine::buffer::{Place, Store};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// When.
    pub step: u64,
    /// On which CPU.
    pub cpu: usize,
    /// What kind of thing.
    pub kind: LineKind,
    /// In words.
    pub text: String,
}

/// What kind of thing happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineKind {
    /// A call of the kernel began.
    Begin,
    /// An operation ended.
    End,
    /// A shared access, an instruction, a store that reached memory, an interrupt.
    Step,
}

/// What shared words are called, by their addresses.
pub(crate) type Names = Vec<(Range<usize>, String)>;

/// Lines, if anybody wants them.
#[derive(Clone, Default, Debug)]
pub struct Log(Option<Vec<Line>>);

impl Log {
    /// Keeps nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Keeps everything.
    #[must_use]
    pub const fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// What was kept.
    #[must_use]
    pub fn into_lines(self) -> Vec<Line> {
        self.0.unwrap_or_default()
    }

    fn add(&mut self, step: u64, cpu: usize, kind: LineKind, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(Line { step, cpu, kind, text: text() });
        }
    }

    pub(crate) fn op(&mut self, step: u64, cpu: usize, name: &'static str) {
        self.add(step, cpu, LineKind::Begin, || name.to_owned());
    }

    pub(crate) fn op_end(&mut self, step: u64, cpu: usize, name: &'static str) {
        self.add(step, cpu, LineKind::End, || name.to_owned());
    }

    pub(crate) fn drained(&mut self, step: u64, cpu: usize, store: Option<&Store>) {
        let Some(store) = store else { return };
        self.add(step, cpu, LineKind::Step, || match store.to {
            Place::Physical(at) => format!("its store of {:#x} to table word {at:#x} reaches memory", store.value),
            Place::Shared(_) => format!("its store of {:#x} reaches memory", store.value),
        });
    }

    pub(crate) fn interrupt(&mut self, step: u64, cpu: usize) {
        self.add(step, cpu, LineKind::Step, || "takes the interrupt".to_owned());
    }

    pub(crate) fn nmi(&mut self, step: u64, cpu: usize) {
        self.add(step, cpu, LineKind::Step, || "takes a non-maskable interrupt".to_owned());
    }

    pub(crate) fn instruction(&mut self, step: u64, cpu: usize, name: &'static str, detail: u64) {
        self.add(step, cpu, LineKind::Step, || format!("{name} {detail:#x}"));
    }

    pub(crate) fn sent(&mut self, step: u64, cpu: usize, to: usize) {
        self.add(step, cpu, LineKind::Step, || format!("interrupts CPU {to}"));
    }

    pub(crate) fn event(&mut self, step: u64, cpu: usize, event: Event) {
        let is_news = !matches!(event, Event::Waiting(_));
        if is_news {
            self.add(step, cpu, LineKind::Step, || format!("({event:?})"));
        }
    }

    pub(crate) fn table_write(&mut self, step: u64, cpu: usize, how: &'static str, at: u64, value: u64) {
        self.add(step, cpu, LineKind::Step, || format!("{how} table word {at:#x} := {value:#x}"));
    }

    pub(crate) fn freed(&mut self, step: u64, cpu: usize, at: u64) {
        self.add(step, cpu, LineKind::Step, || format!("frees frame {:#x}", at >> 12));
    }

    /// A shared access, by one of `names` if its word has one.
    pub(crate) fn access(&mut self, step: u64, cpu: usize, names: &Names, access: Access, address: usize) {
        self.add(step, cpu, LineKind::Step, || {
            let verb = match access {
                Access::Load => "loads",
                Access::Store => "stores to",
                Access::Rmw => "locked:",
                Access::Fence => return "fence".to_owned(),
            };
            let name = names.iter().find(|(range, _)| range.contains(&address));
            format!("{verb} {}", name.map_or("a lock or count", |(_, name)| name))
        });
    }

    pub(crate) fn touched(&mut self, step: u64, cpu: usize, text: impl FnOnce() -> String) {
        self.add(step, cpu, LineKind::Step, text);
    }
}

/// The story of a failing run in two columns: `left` is the CPU that could do what it must not, all others are right.
#[must_use]
pub fn two_columns(lines: &[Line], left: usize, width: usize) -> String {
    let half = width.saturating_sub(9) / 2;
    let mut text = format!("{:>6}  {:<half$} | other CPUs\n", "step", format!("CPU {left}"));
    for line in lines {
        let mark = match line.kind {
            LineKind::Begin => "> ",
            LineKind::End => "< ",
            LineKind::Step => "  ",
        };
        let row = if line.cpu == left {
            format!("{mark}{}", clip(&line.text, half - 2))
        } else {
            format!("{:half$} | {}: {mark}{}", "", line.cpu, clip(&line.text, half - 5))
        };
        text += &format!("{:>6}  {row}\n", line.step);
    }
    text
}

fn clip(text: &str, width: usize) -> &str {
    &text[..text.len().min(width)]
}

//! What happened, step by step: kept only when a run is replayed to be shown.

use std::ops::Range;

use tlbkit::sync::Access;

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

/// Lines, if anybody wants them.
#[derive(Clone, Default, Debug)]
pub struct Log {
    lines: Option<Vec<Line>>,
    /// What shared words are called, by their addresses.
    names: Vec<(Range<usize>, String)>,
}

impl Log {
    /// Keeps nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { lines: None, names: Vec::new() }
    }

    /// Keeps everything.
    #[must_use]
    pub const fn kept() -> Self {
        Self { lines: Some(Vec::new()), names: Vec::new() }
    }

    /// What was kept.
    #[must_use]
    pub fn into_lines(self) -> Vec<Line> {
        self.lines.unwrap_or_default()
    }

    pub(crate) fn add(&mut self, step: u64, cpu: usize, kind: LineKind, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { step, cpu, kind, text: text() });
        }
    }

    /// Calls the words of `object` by `name` from now on.
    pub(crate) fn name_words<T>(&mut self, object: &T, name: &str) {
        if self.lines.is_some() {
            let start = std::ptr::from_ref(object).addr();
            self.names.push((start..start + size_of::<T>(), name.to_owned()));
        }
    }

    /// A shared access, by the name of its word if that has one.
    pub(crate) fn add_access(&mut self, step: u64, cpu: usize, access: Access, address: usize) {
        let Some(lines) = &mut self.lines else { return };
        let name = self.names.iter().find(|(range, _)| range.contains(&address));
        let name = name.map_or("a lock or count", |(_, name)| name);
        let text = match access {
            Access::Load => format!("loads {name}"),
            Access::Store => format!("stores to {name}"),
            Access::Rmw => format!("locked: {name}"),
            Access::Fence => "fence".to_owned(),
        };
        lines.push(Line { step, cpu, kind: LineKind::Step, text });
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

//! Machines drawn from one machine file: each prior anew inside its band, and everything else as the file has it. What
//! comes out differently on them shows how far a result rests on guesses.
//!
//! A prior's value is the median of its draws, unless it is one of a pair that has an order. Half of the draws lie
//! between the lower end of the band and the value, half between the value and the upper end, evenly on a logarithmic
//! scale, or on a linear one where an end is zero. Each prior is drawn by itself, by the seed and its name: what else
//! the file says moves none of its draws. The numbers of a pair are drawn again until they have their order: that moves
//! the median of the lower one down, and that of the higher one up.
//!
//! Two kinds of numbers stay. A number of things that a machine is made of (CPUs, sets, ways, entries, lines) is
//! structure, and a number between two of them is no machine. What every machine shares (`noise.toml`, `cold.toml`,
//! counted instructions) is no part of a machine file.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use tlbkit_arch::random::mix;

use super::error::{MachineError, line_at};
use super::files;
use super::model::Machine;
use super::quantity::{Limit, NumberKind};

/// Pairs of numbers of which the first is not larger than the second on any machine: what is near and what is far, or a
/// part and the whole. If a file has them in that order, so have its draws.
const NO_MORE_THAN: [[&str; 2]; 11] = [
    ["walk.leaf_hot_cycles", "walk.leaf_cold_cycles"],
    ["walk.upper_hot_cycles", "walk.upper_cold_cycles"],
    ["cycles.stlb_hit_independent", "cycles.stlb_hit_dependent"],
    ["cycles.cr3_keep", "cycles.cr3_flush"],
    ["cycles.zero_page", "cycles.copy_page"],
    ["cycles.ipi_deliver_same_socket", "cycles.ipi_deliver_cross_socket"],
    ["cache_line.local_hit_cycles", "cache_line.same_socket_cycles"],
    ["cache_line.local_hit_cycles", "cache_line.same_group_cycles"],
    ["cache_line.same_group_cycles", "cache_line.same_socket_cycles"],
    ["cache_line.same_socket_cycles", "cache_line.cross_socket_cycles"],
    ["caches.l2_hit_cycles", "caches.beyond_l2_cycles"],
];

/// Tries after which bands that leave no room for one of these pairs are given up, and the pair that was
/// broken most often is named.
const MOST_TRIES: u64 = 10_000;

/// Keeps draws apart from all else that begins with the same seed.
const STREAM: u64 = u64::from_be_bytes(*b"priors \0");

/// The priors of a machine file.
#[derive(Debug)]
pub struct Priors {
    file: String,
    text: String,
    /// The priors that are drawn, in the order of the text.
    drawn: Vec<Prior>,
    /// Names of the priors that are not drawn, because each counts something.
    kept: Vec<String>,
    pairs: Vec<Pair>,
}

/// A prior that is drawn.
#[derive(Clone, Debug)]
pub struct Prior {
    /// Its dotted name.
    pub name: String,
    /// What the file says: the median of the draws, but for pairs that have an order.
    pub value: f64,
    /// Between which numbers it is drawn: the file's band, as far as a file may say what lies in it.
    pub band: [f64; 2],
    limit: Limit,
    /// Bytes of the text at which the value stands.
    span: Range<usize>,
}

/// One of [`NO_MORE_THAN`] in this file.
#[derive(Debug)]
struct Pair {
    names: [&'static str; 2],
    /// The less and the more.
    sides: [Side; 2],
}

/// Where a number of a drawn machine comes from.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The prior at this index.
    Drawn(usize),
    /// The file.
    Fixed(f64),
}

/// A machine of one draw.
#[derive(Debug)]
pub struct DrawnMachine {
    /// The machine: what [`Machine::parse`] makes of the file with the values of this draw.
    pub machine: Machine,
    /// What was drawn, in the order of [`Priors::drawn`].
    pub values: Vec<f64>,
}

impl Priors {
    /// The priors of the `text` of a machine file; `file` is what messages call it.
    ///
    /// # Errors
    /// If it says something wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineError> {
        let machine = Machine::parse(file, text)?;
        let (mut drawn, mut kept) = (Vec::new(), Vec::new());
        machine.visit(&mut |name, quantity, limit| {
            let Some(band) = quantity.band.filter(|_| quantity.kind == NumberKind::Prior) else { return };
            match limit.drawable(band) {
                None => kept.push(name),
                // Nothing to draw.
                Some([low, high]) if low >= high => {}
                Some(band) => {
                    drawn.push(Prior { name, value: quantity.value, band, limit, span: quantity.span.clone() });
                }
            }
        });
        drawn.sort_by_key(|prior: &Prior| prior.span.start);
        let pairs = NO_MORE_THAN.iter().filter_map(|&names| Pair::of(names, &machine, &drawn)).collect();
        Ok(Self { file: file.into(), text: text.into(), drawn, kept, pairs })
    }

    /// The priors of a machine that is part of the program.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn builtin(name: &str) -> Result<Self, MachineError> {
        let (file, text) = files::builtin(name)?;
        Self::parse(&file, text)
    }

    /// The priors of a file on the disk.
    ///
    /// # Errors
    /// If the file cannot be read or says something wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let (file, text) = files::read(path.as_ref())?;
        Self::parse(&file, &text)
    }

    /// The priors that are drawn, in the order of the file.
    #[must_use]
    pub fn drawn(&self) -> &[Prior] {
        &self.drawn
    }

    /// The names of the priors that are not drawn, because each counts something.
    #[must_use]
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// The machine of `seed`. The numbers of a pair that are not in their order are drawn again.
    ///
    /// # Errors
    /// If the bands leave hardly any other draw.
    pub fn draw(&self, seed: u64) -> Result<DrawnMachine, MachineError> {
        let mut breaks = vec![0; self.pairs.len()];
        let mut attempts = vec![0; self.drawn.len()];
        for _ in 0..MOST_TRIES {
            let draw = |(prior, attempt): (&Prior, &u64)| prior.draw(seed, *attempt);
            let values: Vec<_> = self.drawn.iter().zip(&attempts).map(draw).collect();
            let broken = self.broken(&values);
            if broken.is_empty() {
                let machine = Machine::parse(&self.file, &self.text_with(&values))?;
                return Ok(DrawnMachine { machine, values });
            }
            for pair in broken {
                breaks[pair] += 1;
                let drawn = self.pairs[pair].sides.iter().filter_map(|side| side.drawn());
                drawn.for_each(|prior| attempts[prior] += 1);
            }
        }
        let worst = (0..breaks.len()).max_by_key(|&pair| breaks[pair]).unwrap_or_default();
        Err(self.exclusion(&self.pairs[worst]))
    }

    /// The error that the bands of a pair leave hardly any draw.
    fn exclusion(&self, pair: &Pair) -> MachineError {
        let in_file: Vec<_> = self.drawn.iter().map(|prior| prior.value).collect();
        let [less, more] = [0, 1].map(|side| (pair.names[side], pair.sides[side].of(&in_file)));
        let drawn = pair.sides.iter().find_map(|side| side.drawn());
        let line = drawn.map_or(1, |prior| line_at(&self.text, self.drawn[prior].span.start));
        MachineError::Bands { file: self.file.clone(), line, less, more }
    }

    /// The pairs, by index, whose less is more in `values`.
    fn broken(&self, values: &[f64]) -> Vec<usize> {
        let is_broken = |pair: &Pair| {
            let [less, more] = pair.sides.map(|side| side.of(values));
            less > more
        };
        (0..self.pairs.len()).filter(|&pair| is_broken(&self.pairs[pair])).collect()
    }

    /// The file with `values` in place of its own.
    fn text_with(&self, values: &[f64]) -> String {
        let (mut text, mut from) = (String::new(), 0);
        for (prior, value) in self.drawn.iter().zip(values) {
            text += &self.text[from..prior.span.start];
            text += &value.to_string();
            from = prior.span.end;
        }
        text + &self.text[from..]
    }
}

impl Prior {
    /// Its value in one draw.
    fn draw(&self, seed: u64, attempt: u64) -> f64 {
        let start = mix(mix(seed ^ STREAM) ^ attempt);
        let bits = self.name.bytes().fold(start, |bits, byte| mix(bits ^ u64::from(byte)));
        self.at((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// The value below which `part` of the draws lie, to four digits: no host's logarithm shows in them.
    fn at(&self, part: f64) -> f64 {
        let [low, high] = self.band;
        let (from, to, place) =
            if part < 0.5 { (low, self.value, 2.0 * part) } else { (self.value, high, 2.0 * part - 1.0) };
        let exact = if from > 0.0 { from * (to / from).powf(place) } else { from + place * (to - from) };
        let short = format!("{exact:.3e}").parse().unwrap_or(exact);
        self.limit.nearest(short).clamp(low, high)
    }
}

impl Pair {
    /// The pair of these names, if `machine` has both, has them so, and one of them is drawn.
    fn of(names: [&'static str; 2], machine: &Machine, drawn: &[Prior]) -> Option<Self> {
        let quantities = machine.quantities();
        let value = |name| quantities.iter().find(|(known, _)| known == name).map(|(_, quantity)| quantity.value);
        let (less, more) = (value(names[0])?, value(names[1])?);
        let side =
            |name, value| drawn.iter().position(|prior| prior.name == name).map_or(Side::Fixed(value), Side::Drawn);
        let sides = [side(names[0], less), side(names[1], more)];
        let is_drawn = sides.iter().any(|side| side.drawn().is_some());
        (less <= more && is_drawn).then_some(Self { names, sides })
    }
}

impl Side {
    fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Drawn(index) => values[index],
            Self::Fixed(value) => value,
        }
    }

    /// The prior that is drawn, if it is one.
    fn drawn(self) -> Option<usize> {
        match self {
            Self::Drawn(index) => Some(index),
            Self::Fixed(_) => None,
        }
    }
}

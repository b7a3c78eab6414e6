//! Reading a machine file, and everything that is checked beyond its shape.

use std::ops::Range;

use serde::de::DeserializeOwned;

use super::error::MachineError;
use super::model::{Index, Machine, ReplacementPolicy, Size, TlbArray};
use super::quantity::{Limit, Quantity};

impl Machine {
    /// Reads the `text` of a machine file; `file` is what messages call it.
    ///
    /// # Errors
    /// If it says something wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| shape_error(file, text, &error))?;
        if let Some(error) = first_complaint(file, text, |each| machine.visit(each)) {
            return Err(error);
        }
        match machine.objection() {
            Some(objection) => Err(objection.into_error(file, text)),
            None => Ok(machine),
        }
    }

    /// What no single field is to blame for.
    fn objection(&self) -> Option<Objection> {
        let system = &self.system;
        let sockets = system.sockets.count();
        if !system.cpus.count().is_multiple_of(sockets) {
            let complaint = format!("must be a multiple of sockets, {sockets}");
            return Some(Objection::new("system.cpus".into(), &system.cpus, complaint));
        }
        let cpus = system.cpus.count() / sockets;
        if !cpus.is_multiple_of(system.smt.count()) {
            let complaint = format!("must divide the {cpus} CPUs of a socket");
            return Some(Objection::new("system.smt".into(), &system.smt, complaint));
        }
        let lines = &self.walk.hot_lines;
        if lines.count() > 0 && !lines.count().is_power_of_two() {
            return Some(Objection::new("walk.hot_lines".into(), lines, "must be zero or a power of two".into()));
        }
        if let Some(apic) = &self.apic
            && !apic.cpus_a_write.count().is_power_of_two()
        {
            let complaint = "must be a power of two".into();
            return Some(Objection::new("apic.cpus_a_write".into(), &apic.cpus_a_write, complaint));
        }
        self.group_objection().or_else(|| self.array_objection()).or_else(|| self.feature_objection())
    }

    fn group_objection(&self) -> Option<Objection> {
        let system = &self.system;
        let cores = system.cpus.count() / (system.sockets.count() * system.smt.count());
        match (&system.groups, &self.cache_line.same_group_cycles) {
            (Some(groups), _) if !cores.is_multiple_of(groups.count()) => {
                let complaint = format!("must divide the {cores} cores of a socket");
                Some(Objection::new("system.groups".into(), groups, complaint))
            }
            (Some(groups), None) => {
                Some(Objection::new("system.groups".into(), groups, "needs cache_line.same_group_cycles".into()))
            }
            (None, Some(cycles)) => {
                Some(Objection::new("cache_line.same_group_cycles".into(), cycles, "needs system.groups".into()))
            }
            (Some(_), Some(cycles)) if cycles.value > self.cache_line.same_socket_cycles.value => {
                let complaint = format!("at most same_socket_cycles, {}", self.cache_line.same_socket_cycles.value);
                Some(Objection::new("cache_line.same_group_cycles".into(), cycles, complaint))
            }
            _ => None,
        }
    }

    fn array_objection(&self) -> Option<Objection> {
        for (level, arrays) in [("l1", &self.tlb.l1), ("stlb", &self.tlb.stlb)] {
            for (at, array) in arrays.iter().enumerate() {
                if let Some((field, quantity, complaint)) = shape_complaint(array) {
                    return Some(Objection::new(format!("tlb.{level}[{at}].{field}"), quantity, complaint));
                }
                let before =
                    |place: usize| arrays[..at].iter().flat_map(|other| &other.holds).chain(&array.holds[..place]);
                let again =
                    array.holds.iter().enumerate().find(|(place, size)| before(*place).any(|held| held == *size));
                if let Some((_, size)) = again {
                    let name = ["4K", "2M", "1G"][*size as usize];
                    let limit = "must be held by one array of a level, once".to_owned();
                    return Some(Objection {
                        value: Some(name.into()),
                        ..Objection::new(format!("tlb.{level}[{at}].holds"), &array.sets, limit)
                    });
                }
            }
        }
        let base = self.tlb.l1.iter().any(|array| array.holds.contains(&Size::Small));
        (!base).then(|| Objection::bare("tlb.l1", "no array holds 4K pages"))
    }

    fn feature_objection(&self) -> Option<Objection> {
        let invpcid = self.features.invpcid;
        let wanted = [
            ("cr3_keep", &self.cycles.cr3_keep, self.features.pcid),
            ("invpcid_address", &self.cycles.invpcid_address, invpcid),
            ("invpcid_single", &self.cycles.invpcid_single, invpcid),
            ("invpcid_all", &self.cycles.invpcid_all, invpcid),
        ];
        for (field, cost, feature) in wanted {
            let field = format!("cycles.{field}");
            match cost {
                None if feature => return Some(Objection::bare(&field, "is missing although the CPU has the feature")),
                Some(cost) if !feature => {
                    return Some(Objection::new(field, cost, "is a cost of a feature that the CPU lacks".into()));
                }
                _ => {}
            }
        }
        None
    }
}

/// What each quantity of a file is shown to, with its name and its limit.
type Look<'l, 'q> = &'l mut dyn FnMut(String, &'q Quantity, Limit);

/// What is wrong with the first quantity outside its limit, of all that `visit` shows.
pub(super) fn first_complaint<'q>(file: &str, text: &str, visit: impl FnOnce(Look<'_, 'q>)) -> Option<MachineError> {
    let mut first = None;
    visit(&mut |field, quantity, limit| {
        if first.is_none() {
            first = objection_to(field, quantity, limit);
        }
    });
    first.map(|objection| objection.into_error(file, text))
}

/// What is wrong with one quantity.
fn objection_to(field: String, quantity: &Quantity, limit: Limit) -> Option<Objection> {
    if let Some([low, high]) = quantity.wrong_band() {
        let limit = "must be two finite numbers, none below 0, and the lower one first";
        let objection = Objection::new(field + ".band", quantity, limit.into());
        return Some(Objection { value: Some(format!("[{low}, {high}]")), ..objection });
    }
    limit.complaint(quantity).map(|complaint| Objection::new(field, quantity, complaint))
}

/// The numbers of a file of ours that is the same for every machine, read from its `text`.
///
/// # Panics
/// If the file is wrong: it is part of the program.
pub(super) fn shared<T: DeserializeOwned>(
    file: &str,
    text: &str,
    visit: for<'q> fn(&'q T, &mut dyn FnMut(String, &'q Quantity, Limit)),
) -> T {
    let numbers: T = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    if let Some(complaint) = first_complaint(file, text, |each| visit(&numbers, each)) {
        panic!("{complaint}");
    }
    numbers
}

/// Makes such a file a part of the program: `$model` is what `sim/machines/$file` holds, read once, and the names of
/// its numbers begin with `$prefix`.
macro_rules! same_for_all {
    ($model:ident, $prefix:literal, $file:literal) => {
        static MODEL: std::sync::LazyLock<$model> = std::sync::LazyLock::new(|| {
            let text = include_str!(concat!("../../../machines/", $file));
            $crate::machine::check::shared(concat!("sim/machines/", $file), text, |model: &$model, each| {
                model.visit($prefix, each);
            })
        });

        impl $model {
            /// The numbers of the file, which is part of the program.
            #[must_use]
            pub fn builtin() -> &'static Self {
                &MODEL
            }

            /// Every number with its name, in the order of the file.
            #[must_use]
            pub fn quantities(&self) -> Vec<(String, &Quantity)> {
                let mut all = Vec::new();
                self.visit($prefix, &mut |name, quantity, _: Limit| all.push((name, quantity)));
                all
            }
        }
    };
}
pub(super) use same_for_all;

/// What is wrong with one array.
fn shape_complaint(array: &TlbArray) -> Option<(&'static str, &Quantity, String)> {
    let (sets, ways) = (array.sets.count(), array.ways.count());
    if !sets.is_power_of_two() {
        return Some(("sets", &array.sets, "must be a power of two".into()));
    }
    if array.index == Index::Xor7 && sets != 128 {
        return Some(("sets", &array.sets, "must be 128 for the index xor7".into()));
    }
    match array.policy {
        ReplacementPolicy::TreePlru if !ways.is_power_of_two() || ways > 64 => {
            Some(("ways", &array.ways, "must be a power of two up to 64 for the policy tree-plru".into()))
        }
        ReplacementPolicy::RotatingPlru4 if ways != 12 => {
            Some(("ways", &array.ways, "must be 12 for the policy rotating-plru4".into()))
        }
        _ => None,
    }
}

/// A complaint about a field, before it is known on which line the field stands.
struct Objection {
    field: String,
    value: Option<String>,
    span: Option<Range<usize>>,
    limit: String,
}

impl Objection {
    fn new(field: String, quantity: &Quantity, limit: String) -> Self {
        let value = quantity.value;
        // A number of three hundred digits is no help.
        let value = if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") };
        Self { field, value: Some(value), span: Some(quantity.span.clone()), limit }
    }

    /// About something that the file does not have.
    fn bare(field: &str, limit: &str) -> Self {
        Self { field: field.into(), value: None, span: None, limit: limit.into() }
    }

    fn into_error(self, file: &str, text: &str) -> MachineError {
        let line = self.span.map_or(1, |span| line_at(text, span.start));
        MachineError::Invalid { file: file.into(), line, field: self.field, value: self.value, limit: self.limit }
    }
}

/// The parser's objection as one line: what it says of the field is what stands where it points.
fn shape_error(file: &str, text: &str, error: &toml::de::Error) -> MachineError {
    let span = error.span().unwrap_or_default();
    let line = line_at(text, span.start);
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let said = error.message().lines().collect::<Vec<_>>().join(" ");
    let quoted = |prefix: &str| said.strip_prefix(prefix).and_then(|rest| rest.split('`').next());
    let (field, value, limit) = match (quoted("missing field `"), quoted("unknown field `")) {
        (Some(field), _) => (name_inside(written, span.start, field), None, "is missing".to_owned()),
        (_, Some(field)) => unknown_field(text, &span, written, field, &said),
        _ => wrong_value(text, span, written, &said),
    };
    let (field, value, limit) = (plain(&field), value.map(|value| plain(&value)), plain_whole(&limit));
    MachineError::Invalid { file: file.into(), line, field, value, limit }
}

/// The name of a `field` in what begins at `byte`, on the line that is `written` there: a section, a field with braces,
/// or the whole file.
fn name_inside(written: &str, byte: usize, field: &str) -> String {
    let section = written.trim_start().strip_prefix('[').and_then(|rest| rest.split(']').next());
    let outer = section.map(|section| section.trim_start_matches('['));
    match outer.or_else(|| written.split_once('=').map(|(left, _)| left.trim()).filter(|_| byte > 0)) {
        Some(outer) => format!("{outer}.{field}"),
        None => field.to_owned(),
    }
}

/// Field, value and limit.
type Complaint = (String, Option<String>, String);

/// About a `field` that nobody knows, whose name stands at `span`.
fn unknown_field(text: &str, span: &Range<usize>, written: &str, field: &str, said: &str) -> Complaint {
    let known = wanted(said).map_or_else(String::new, |wanted| format!("; must be {wanted}"));
    let limit = format!("no such field is known{known}");
    let (left, right) = written.split_once('=').unwrap_or((written, ""));
    if left.trim() == field || left.trim() == written.trim() {
        return (field.to_owned(), Some(right.to_owned()).filter(|right| !right.is_empty()), limit);
    }
    // In braces, after others.
    let rest = text.get(span.end..).and_then(|rest| rest.split([',', '}', '\n']).next()).unwrap_or_default();
    let value = rest.trim_start_matches([' ', '=']).to_owned();
    (format!("{}.{field}", left.trim()), Some(value), limit)
}

/// About what is written where something else is wanted.
fn wrong_value(text: &str, span: Range<usize>, written: &str, said: &str) -> Complaint {
    let (left, right) = written.split_once('=').unwrap_or((written, ""));
    let inner = inner_field(text, span.start);
    let pointed = text.get(span).filter(|pointed| !pointed.contains('\n') && pointed.len() < written.len());
    let (left, right) = (left.to_owned(), Some(right.trim().to_owned()).filter(|right| !right.is_empty()));
    let is_of_value = ["invalid type", "invalid length", "unknown variant"].iter().any(|begin| said.starts_with(begin));
    match (wanted(said), said.strip_prefix("wanted ")) {
        (Some(wanted), _) if is_of_value => {
            (inner.unwrap_or(left), pointed.map(String::from).or(right), format!("must be {wanted}"))
        }
        (_, Some(wanted)) => (inner.unwrap_or(left), pointed.map(String::from).or(right), format!("must be {wanted}")),
        _ if said.starts_with("duplicate key") => (left, right, "stands in this section twice".to_owned()),
        _ if right.is_none() && written.contains('=') => (left, right, "needs a value".to_owned()),
        _ => (left, right, format!("is no TOML: {said}")),
    }
}

/// What the parser wants, in words of a machine file instead of the program's.
fn wanted(said: &str) -> Option<String> {
    let (_, wanted) = said.split_once("expected ")?;
    let words = [("f64", "a number"), ("a sequence", "a list"), ("a boolean", "true or false")];
    let is_program = wanted.starts_with("struct ") || wanted.starts_with("internally");
    let plain = words.iter().fold(wanted.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    Some(if is_program { "a section of fields".to_owned() } else { plain })
}

/// The dotted name of what stands at `byte` in braces, as `invlpg.value`; none if it stands in none.
fn inner_field(text: &str, byte: usize) -> Option<String> {
    let before = text.get(..byte)?;
    let line = before.rsplit('\n').next()?;
    let (outer, inside) = line.split_once('{')?;
    let (key, _) = inside.rsplit_once('=')?;
    let key = key.trim_end().rsplit([' ', ',', '{']).next()?;
    Some(format!("{}.{key}", outer.trim_end_matches([' ', '='])))
}

/// Characters of a value that a message shows.
const MOST_SHOWN: usize = 60;

/// The begin of what a file says, with nothing in it that would command a terminal.
fn plain(text: &str) -> String {
    let text = plain_whole(text.trim());
    let begin: String = text.chars().take(MOST_SHOWN).collect();
    if begin.len() < text.len() { begin + "..." } else { text }
}

fn plain_whole(text: &str) -> String {
    let of = |letter: char| if letter.is_control() { letter.escape_default().collect() } else { String::from(letter) };
    text.chars().map(of).collect()
}

/// The line, from one, of a byte.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&byte| byte == b'\n').count()
}

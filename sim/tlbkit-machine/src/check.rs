//! Reads a machine file, and checks what its numbers may be, by themselves and beside each other.

use std::ops::Range;

use super::error::{MachineError, line_at, parser_error};
use super::model::{Index, Machine, ReplacementPolicy, Size, TlbArray};
use super::quantity::{Limit, Quantity};

impl Machine {
    /// Reads the `text` of a machine file; `file` is what messages call it.
    ///
    /// # Errors
    /// If it says something wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| parser_error(file, text, &error))?;
        if let Some(error) = first_complaint(file, text, |each| machine.visit(each)) {
            return Err(error);
        }
        let name = &machine.name;
        if name.trim().is_empty() || name.contains(char::is_control) {
            let line = 1 + text.lines().position(|line| line.trim_start().starts_with("name")).unwrap_or_default();
            let (field, value) = ("name".to_owned(), Some(format!("{name:?}")));
            return Err(MachineError::Invalid {
                file: file.into(),
                line,
                field,
                value,
                limit: "must be a name in plain signs".into(),
            });
        }
        match machine.objection() {
            Some(objection) => Err(objection.into_error(file, text)),
            None => Ok(machine),
        }
    }

    /// What is wrong with numbers beside each other, if anything is.
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
        if let (Some(broadcast), false) = (&self.broadcast, self.features.pcid) {
            return Some(Objection::new("broadcast.pages".into(), &broadcast.pages, "needs features.pcid".into()));
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
        // Written out, a large number could have three hundred digits.
        let value = if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") };
        Self { field, value: Some(value), span: Some(quantity.span.clone()), limit }
    }

    /// A complaint about something that the file does not have.
    fn bare(field: &str, limit: &str) -> Self {
        Self { field: field.into(), value: None, span: None, limit: limit.into() }
    }

    fn into_error(self, file: &str, text: &str) -> MachineError {
        let line = self.span.map_or(1, |span| line_at(text, span.start));
        MachineError::Invalid { file: file.into(), line, field: self.field, value: self.value, limit: self.limit }
    }
}

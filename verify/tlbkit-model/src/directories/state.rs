//! All that there is: what CPUs publish, hold, cache and are about, and the tables in two places.

use super::worlds::{Budget, INCARNATIONS, TABLES_OF_SPACE};

/// What a CPU publishes of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Presence {
    Running,
    Lazy,
    Switching,
    Elsewhere,
}

/// A store of a CPU on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Store {
    Presence(Presence),
    /// In the directory of a CPU, for a place: the incarnation of the table there.
    Directory(usize, usize, u8),
    /// In a place, of this incarnation.
    Sharers(usize, u8, u8),
    Entry(usize, u8, u8),
    Unlock(usize),
    /// CPUs load tables of their own from here on.
    Name,
}

/// The next steps of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    Lock,
    Find,
    Record,
    Hook,
    Unlock,
    Change,
    TakeOut,
    ReadSharers,
    ClearDirectory(usize),
    Fence,
    Decide,
    Advance,
    Look(usize),
    Send,
    FlushHere,
    Wait,
    End,
    Say(Presence),
    ReadGeneration,
    Load,
    Unload,
    CarryOut(usize),
    Answer(usize),
    Name,
}

/// What a CPU takes away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Page,
    PageOfAll,
    Table,
    /// Nothing: each CPU gets tables of its own.
    Convert,
}

/// What a CPU is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) place: usize,
    pub(super) incarnation: u8,
    pub(super) version: u8,
    pub(super) reach: u8,
    pub(super) targets: u8,
    pub(super) generation: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cpu {
    pub(super) presence: Presence,
    pub(super) own_presence: Presence,
    /// CPUs that have not answered its request.
    pub(super) outbox: u8,
    pub(super) directory: [u8; TABLES_OF_SPACE],
    pub(super) buffer: Vec<Store>,
    pub(super) steps: Vec<Step>,
    pub(super) call: Call,
    pub(super) is_loaded: bool,
    /// What it loads is its own, and not what all share.
    pub(super) is_own: bool,
    pub(super) newest: u8,
    /// The generation of its ASID.
    pub(super) held: u8,
    /// The incarnations to whose tables it has a path, and the versions of their pages that it has cached.
    pub(super) paths: [u8; TABLES_OF_SPACE],
    pub(super) cached: [u8; TABLES_OF_SPACE],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    /// The table that the master tree names.
    pub(super) master: u8,
    pub(super) made: u8,
    /// The lock under which CPUs hook the table.
    pub(super) is_locked: bool,
    /// That of the regions: nothing else is mapped there until the flush of a table that was taken out is over.
    pub(super) is_closed: bool,
    pub(super) sharers: [u8; INCARNATIONS + 1],
    pub(super) entries: [u8; INCARNATIONS + 1],
    pub(super) is_freed: [bool; INCARNATIONS + 1],
    pub(super) version: u8,
    /// Older versions may not be used any more.
    pub(super) floor: u8,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub(super) generation: u8,
    pub(super) places: [Place; TABLES_OF_SPACE],
    pub(super) cpus: Vec<Cpu>,
    pub(super) budget: Budget,
    /// CPUs that load the space load tables of their own.
    pub(super) is_named: bool,
    /// All do: flushes go to sharers alone.
    pub(super) is_converted: bool,
    /// A flush has interrupted nobody while another CPU ran the space.
    pub(super) was_alone: bool,
    /// A CPU that was behind has flushed a page by itself.
    pub(super) was_behind: bool,
}

impl State {
    /// The CPUs walk as early as they can.
    pub(super) fn fill(&mut self) {
        for (number, cpu) in self.cpus.iter_mut().enumerate().filter(|(_, cpu)| cpu.is_loaded) {
            for place in 0..TABLES_OF_SPACE {
                if cpu.paths[place] == 0 {
                    cpu.paths[place] = if cpu.is_own { cpu.named(number, place) } else { self.places[place].master };
                }
                let path = usize::from(cpu.paths[place]);
                if path != 0 && cpu.cached[place] == 0 {
                    cpu.cached[place] = self.places[place].entries[path];
                }
            }
        }
    }
}

impl Cpu {
    /// What its directory names, as it sees it itself.
    pub(super) fn named(&self, number: usize, place: usize) -> u8 {
        let own = |store: &Store| match *store {
            Store::Directory(cpu, at, table) if cpu == number && at == place => Some(table),
            _ => None,
        };
        self.buffer.iter().rev().find_map(own).unwrap_or(self.directory[place])
    }

    pub(super) fn say(&mut self, presence: Presence) {
        self.own_presence = presence;
        self.buffer.push(Store::Presence(presence));
    }

    /// INVLPG: the page, and every path.
    pub(super) fn flush_page(&mut self, place: usize) {
        self.cached[place] = 0;
        self.paths = [0; TABLES_OF_SPACE];
    }

    pub(super) fn flush_all(&mut self, newest: u8) {
        self.held = newest;
        self.cached = [0; TABLES_OF_SPACE];
        self.paths = [0; TABLES_OF_SPACE];
    }

    pub(super) fn then(&mut self, steps: &[Step]) {
        self.steps.extend(steps.iter().rev());
    }

    /// It hooks a table, or takes something away; once a page is out of its table, others may change the regions.
    pub(super) fn holds_regions(&self) -> bool {
        let is_out = self.call.kind == Kind::PageOfAll && !self.steps.contains(&Step::Change);
        !is_out
            && self.steps.iter().any(|step| matches!(step, Step::Unlock | Step::ReadSharers | Step::Decide | Step::End))
    }

    /// In a switch interrupts are off.
    pub(super) fn is_quiet(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Say(_) | Step::Load | Step::CarryOut(_) | Step::Answer(_)))
    }
}

//! What happens, in which small worlds, and the mistakes that each of them shows.

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// A CPU records itself by a plain store.
    RecordsUnfenced,
    /// A CPU stores the entry of its directory before it records itself.
    HooksFirst,
    /// A CPU hooks a table without the lock under which tables are taken out.
    HooksWithoutLock,
    /// A flush reads the sharers before it changes the entry.
    ReadsSharersFirst,
    /// A flush changes the entry by a plain store.
    ChangesUnfenced,
    /// A flush leaves its own CPU out when it reads the sharers.
    LeavesItselfOut,
    /// A single sharer is taken for this CPU.
    AloneWhereverItIs,
    /// The only sharer flushes what it does not run.
    AloneElsewhere,
    /// A flush to sharers advances no generation.
    NeverAdvances,
    /// A CPU that flushes a page by itself is then said to be up to date.
    PageRaisesGeneration,
    /// A CPU that was passed by leaves out what is named.
    BehindFlushesNothing,
    /// A flush to all of a CPU that was passed by is one of the page.
    BehindFlushesThePage,
    /// A flush passes over sharers that are being switched.
    SkipsSwitching,
    /// A freed table passes over sharers that idle.
    SkipsLazy,
    /// A table is taken out of one directory alone.
    KeepsOtherDirectories,
    /// A table is freed before the flush.
    FreesFirst,
    /// The sharers of a table are forgotten before the flush.
    ForgetsSharersFirst,
    /// Another table is made in the place of one before that one's flush is over: a CPU that takes its pages away knows
    /// nothing of CPUs that hold what was there.
    MakesTableTooEarly,
    /// A CPU comes back to the space before others can see that it does.
    ReturnsUnfenced,
    /// A CPU answers before it flushes.
    AnswersFirst,
    /// The CPUs' own tables are named after the flush by which CPUs load them.
    NamesAfterTheFlush,
    /// A CPU that is asked flushes, and goes on with the tables that it shared.
    KeepsTheSharedRoot,
    /// A CPU that comes back from lazy mode does.
    ReturnsToTheSharedRoot,
    /// CPUs that idle are not asked, and keep the tables that they shared.
    ConvertsPastLazy,
    /// Other CPUs take something away, from sharers alone, while CPUs are about to load their own tables.
    ConvertsUnderNoLock,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::RecordsUnfenced,
        Self::HooksFirst,
        Self::HooksWithoutLock,
        Self::ReadsSharersFirst,
        Self::ChangesUnfenced,
        Self::LeavesItselfOut,
        Self::AloneWhereverItIs,
        Self::AloneElsewhere,
        Self::NeverAdvances,
        Self::PageRaisesGeneration,
        Self::BehindFlushesNothing,
        Self::BehindFlushesThePage,
        Self::SkipsSwitching,
        Self::SkipsLazy,
        Self::KeepsOtherDirectories,
        Self::FreesFirst,
        Self::ForgetsSharersFirst,
        Self::MakesTableTooEarly,
        Self::ReturnsUnfenced,
        Self::AnswersFirst,
        Self::NamesAfterTheFlush,
        Self::KeepsTheSharedRoot,
        Self::ReturnsToTheSharedRoot,
        Self::ConvertsPastLazy,
        Self::ConvertsUnderNoLock,
    ];

    /// The world in which it is seen.
    #[must_use]
    pub const fn world(self) -> &'static World {
        match self {
            Self::PageRaisesGeneration | Self::BehindFlushesThePage => &SENDERS,
            Self::BehindFlushesNothing => &PASSED_BY,
            Self::MakesTableTooEarly => &MIXED,
            Self::HooksWithoutLock
            | Self::SkipsLazy
            | Self::KeepsOtherDirectories
            | Self::FreesFirst
            | Self::ForgetsSharersFirst => &TABLES,
            Self::NamesAfterTheFlush | Self::KeepsTheSharedRoot | Self::ConvertsUnderNoLock => &CONVERTED,
            Self::ReturnsToTheSharedRoot | Self::ConvertsPastLazy => &CONVERTED_LAZY,
            Self::AloneElsewhere | Self::NeverAdvances | Self::SkipsSwitching | Self::ReturnsUnfenced => &SWITCHES,
            _ => &HOOKS,
        }
    }
}

pub(super) const TABLES_OF_SPACE: usize = 2;
/// Tables that there can be in one place, one after another; 0 is none.
pub(super) const INCARNATIONS: usize = 2;

/// What happens, and how often.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    pub(super) cpus: usize,
    /// The CPUs that share each table at first.
    pub(super) sharers: [u8; TABLES_OF_SPACE],
    /// CPUs that take pages or tables away, from the first on.
    pub(super) initiators: usize,
    pub(super) budget: Budget,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Budget {
    pub(super) hooks: u8,
    /// Pages taken away from the sharers of their table.
    pub(super) pages: u8,
    /// Pages taken away from all CPUs.
    pub(super) pages_of_all: u8,
    pub(super) tables: u8,
    pub(super) idles: u8,
    pub(super) switches: u8,
    /// Where it is not 0, the CPUs share all tables at first.
    pub(super) conversions: u8,
}

const NOTHING: Budget =
    Budget { hooks: 0, pages: 0, pages_of_all: 0, tables: 0, idles: 0, switches: 0, conversions: 0 };

const HOOKS: World = World {
    name: "hooks",
    cpus: 2,
    sharers: [0b01, 0],
    initiators: 2,
    budget: Budget { hooks: 2, pages: 2, ..NOTHING },
};
const SWITCHES: World = World {
    name: "switches",
    cpus: 2,
    sharers: [0b11, 0b01],
    initiators: 1,
    budget: Budget { hooks: 1, pages: 2, switches: 2, ..NOTHING },
};
const TABLES: World = World {
    name: "tables",
    cpus: 2,
    sharers: [0b11, 0],
    initiators: 1,
    budget: Budget { hooks: 2, tables: 1, idles: 1, ..NOTHING },
};
const PASSED_BY: World = World {
    name: "passed by",
    cpus: 3,
    sharers: [0b101, 0b011],
    initiators: 1,
    budget: Budget { pages: 2, pages_of_all: 1, ..NOTHING },
};
const SENDERS: World = World {
    name: "two senders",
    cpus: 3,
    sharers: [0b101, 0b110],
    initiators: 2,
    budget: Budget { pages: 2, pages_of_all: 1, ..NOTHING },
};
const MIXED: World = World {
    name: "mixed",
    cpus: 2,
    sharers: [0b11, 0b01],
    initiators: 2,
    budget: Budget { hooks: 1, pages: 1, tables: 1, idles: 1, ..NOTHING },
};

const CONVERTED: World = World {
    name: "converted",
    cpus: 2,
    sharers: [0, 0],
    initiators: 2,
    budget: Budget { hooks: 1, pages: 1, switches: 1, conversions: 1, ..NOTHING },
};
const CONVERTED_LAZY: World = World {
    name: "converted, lazy",
    cpus: 2,
    sharers: [0, 0],
    initiators: 1,
    budget: Budget { pages: 1, tables: 1, idles: 1, conversions: 1, ..NOTHING },
};

/// All of them.
pub const WORLDS: [World; 8] = [HOOKS, SWITCHES, TABLES, PASSED_BY, SENDERS, MIXED, CONVERTED, CONVERTED_LAZY];

//! What is explored: how many CPUs, under which policy, from where, and how much may happen.

use tlbkit::{
    Acknowledgement, Broadcast, CpuSetUpkeep, HostFlush, Isolation, Lazy, LazyReferences, LocalFlush, Policy, Reclaim,
    Tags, Unaccessed, Unmapping, UserFlush,
};

use crate::deviation::Deviation;
use crate::state::{Budget, CpuNumber, RING, SpaceNumber};

/// One bounded world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// What the table calls it.
    pub name: &'static str,
    /// 2 or 3.
    pub cpus: usize,
    /// The protocol's own policy; the model has 1 or 2 ASIDs, recycled in turn.
    pub policy: Policy,
    /// Switches that are over when the exploration begins.
    pub before: &'static [(CpuNumber, SpaceNumber)],
    /// What may happen from then on.
    pub budget: Budget,
    /// How many CPUs revoke translations: the first ones.
    pub initiators: usize,
    /// Mailboxes of a CPU: 1 or 2.
    pub mailboxes: usize,
    /// Spaces whose pages are revoked: the first, or both.
    pub flushed_spaces: usize,
    /// What the host flushes of CPUs that it does not run.
    pub host: HostFlush,
    /// How the protocol is broken, if it is.
    pub deviation: Option<Deviation>,
}

impl World {
    const fn new(name: &'static str, policy: Policy, before: &'static [(CpuNumber, SpaceNumber)], may: Budget) -> Self {
        Self {
            name,
            cpus: 2,
            policy,
            before,
            budget: may,
            initiators: usize::MAX,
            mailboxes: 1,
            flushed_spaces: 1,
            host: HostFlush::None,
            deviation: None,
        }
    }

    const fn flushing_both(self) -> Self {
        Self { flushed_spaces: 2, ..self }
    }

    const fn with_three_cpus(self) -> Self {
        Self { cpus: 3, ..self }
    }

    const fn with_a_ring(self) -> Self {
        Self { mailboxes: RING, ..self }
    }

    const fn in_a_guest(self, host: HostFlush) -> Self {
        Self { host, ..self }
    }

    /// The first CPU alone revokes; any may wait for it.
    const fn revoked_by_one(self) -> Self {
        Self { initiators: 1, ..self }
    }

    /// The same world with a mistake in it.
    #[must_use]
    pub const fn deviating(self, deviation: Deviation) -> Self {
        Self { deviation: Some(deviation), ..self }
    }
}

const NOTHING: Budget = Budget {
    switches: 0,
    idles: 0,
    pages: 0,
    wholes: 0,
    issues: 0,
    waits: 0,
    names: 0,
    batches: 0,
    drains: 0,
    besides: 0,
    tables: 0,
    shares: 0,
    destroys: 0,
    absences: 0,
    preemptions: 0,
};

/// The policy that the others vary: two ASIDs, a set that only grows.
fn kept() -> Policy {
    Policy {
        tags: Tags::RoundRobin(2),
        lazy: Lazy::SkipUnlessTablesFreed,
        cpu_set: CpuSetUpkeep::Trimmed { every: 0 },
        local_flush: LocalFlush::WhileRemote,
        isolation: Isolation::Off,
        broadcast: Broadcast::Off,
        unmapping: Unmapping::Awaited,
        directories: tlbkit::Directories::Shared,
        acknowledgement: Acknowledgement::AfterFlush,
        unaccessed: Unaccessed::Flushed,
        reclaim: Reclaim::Awaited,
        ..Policy::default()
    }
}

fn one_asid() -> Policy {
    Policy { tags: Tags::RoundRobin(1), local_flush: LocalFlush::BeforeRemote, ..kept() }
}

fn exact() -> Policy {
    Policy { cpu_set: CpuSetUpkeep::Exact, ..kept() }
}

fn isolated(user_flush: UserFlush) -> Policy {
    Policy { isolation: Isolation::On, user_flush, ..kept() }
}

fn counted() -> Policy {
    Policy { lazy_references: LazyReferences::Counted, ..exact() }
}

fn trimmed() -> Policy {
    Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 2 }, ..kept() }
}

/// The other ways to answer a request are those of the other worlds.
fn early(policy: Policy) -> Policy {
    Policy { acknowledgement: Acknowledgement::BeforeFlush, ..policy }
}

/// The kernel alone says which spaces get a PCID that all CPUs share.
fn broadcast() -> Policy {
    Policy { broadcast: Broadcast::From { cpus: u32::MAX }, ..kept() }
}

const APART: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 1)];
const TOGETHER: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 0)];
const BOTH_KNOWN: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 0), (1, 1)];
const CROSSED: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 0), (0, 1)];
const ALL_TOGETHER: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 0), (2, 0)];
const ONE_APART: &[(CpuNumber, SpaceNumber)] = &[(0, 0), (1, 0), (2, 0), (2, 1)];

/// Worlds that a test explores to the end, one for each part of the protocol.
#[must_use]
pub fn small() -> Vec<World> {
    let once = Policy { lazy: Lazy::InterruptOnce, ..exact() };
    vec![
        World::new("two ASIDs", kept(), BOTH_KNOWN, Budget { switches: 2, pages: 2, ..NOTHING }),
        World::new("one ASID", one_asid(), APART, Budget { switches: 2, pages: 1, wholes: 1, ..NOTHING }),
        World::new("lazy", kept(), TOGETHER, Budget { switches: 1, idles: 1, pages: 1, tables: 1, ..NOTHING }),
        World::new("lazy, pages", kept(), TOGETHER, Budget { switches: 1, idles: 1, pages: 2, ..NOTHING }),
        World::new("lazy, interrupted once", once, TOGETHER, Budget { switches: 1, idles: 1, pages: 2, ..NOTHING }),
        World::new("exact set", exact(), APART, Budget { switches: 2, idles: 1, tables: 1, ..NOTHING }),
        World::new("trimmed set", trimmed(), BOTH_KNOWN, Budget { switches: 2, pages: 2, ..NOTHING }),
        World::new("end, set kept", kept(), BOTH_KNOWN, Budget { switches: 2, pages: 1, destroys: 1, ..NOTHING }),
        World::new("end, set exact", exact(), TOGETHER, Budget { switches: 2, idles: 2, destroys: 1, ..NOTHING }),
        World::new("end, counted", counted(), TOGETHER, Budget { switches: 2, idles: 2, destroys: 1, ..NOTHING }),
        World::new(
            "isolation",
            isolated(UserFlush::Invpcid),
            TOGETHER,
            Budget { switches: 1, pages: 1, wholes: 1, ..NOTHING },
        ),
        World::new(
            "isolation, deferred",
            isolated(UserFlush::DeferredCr3),
            BOTH_KNOWN,
            Budget { switches: 2, pages: 1, ..NOTHING },
        ),
        World::new("a CPU leaves", kept(), TOGETHER, Budget { switches: 1, pages: 2, absences: 1, ..NOTHING }),
        World::new("a CPU comes back", kept(), TOGETHER, Budget { switches: 1, pages: 1, absences: 2, ..NOTHING }),
        World::new("two senders", kept(), ALL_TOGETHER, Budget { wholes: 2, ..NOTHING }).with_three_cpus(),
        World::new("a ring", kept(), TOGETHER, Budget { issues: 2, ..NOTHING }).with_a_ring(),
        World::new("a ring, flush", kept(), TOGETHER, Budget { issues: 2, pages: 1, ..NOTHING })
            .with_a_ring()
            .revoked_by_one(),
        World::new("a ring that is full", kept(), TOGETHER, Budget { issues: 3, ..NOTHING })
            .with_a_ring()
            .revoked_by_one(),
        World::new("a batch", kept(), TOGETHER, Budget { names: 2, drains: 1, ..NOTHING }),
        World::new("a batch, joined", exact(), BOTH_KNOWN, Budget { names: 1, switches: 2, drains: 1, ..NOTHING }),
        World::new("a batch, two spaces", kept(), BOTH_KNOWN, Budget { names: 2, switches: 1, drains: 1, ..NOTHING })
            .flushing_both()
            .revoked_by_one(),
        World::new("a batch, beside", kept(), TOGETHER, Budget { names: 1, besides: 1, ..NOTHING }),
        World::new("a guest", kept(), BOTH_KNOWN, Budget { switches: 2, pages: 1, preemptions: 2, ..NOTHING })
            .in_a_guest(HostFlush::Translations)
            .revoked_by_one(),
        World::new("a guest, answers", kept(), TOGETHER, Budget { pages: 2, preemptions: 2, ..NOTHING })
            .in_a_guest(HostFlush::Translations),
        World::new("a guest, tables", kept(), TOGETHER, guest_with_tables())
            .in_a_guest(HostFlush::TranslationsAndPaths)
            .revoked_by_one(),
        World::new("a guest, paths kept", kept(), TOGETHER, guest_with_tables())
            .in_a_guest(HostFlush::Translations)
            .revoked_by_one(),
        World::new(
            "a guest, end",
            exact(),
            TOGETHER,
            Budget { switches: 1, idles: 2, destroys: 1, preemptions: 2, ..NOTHING },
        )
        .in_a_guest(HostFlush::TranslationsAndPaths),
        World::new("shared, joined", broadcast(), BOTH_KNOWN, Budget { switches: 2, pages: 1, shares: 1, ..NOTHING }),
        World::new("shared, flushed", broadcast(), TOGETHER, Budget { pages: 2, shares: 1, ..NOTHING }),
        World::new(
            "shared, lazy",
            broadcast(),
            TOGETHER,
            Budget { switches: 1, idles: 1, tables: 1, shares: 1, ..NOTHING },
        )
        .revoked_by_one(),
        World::new("shared, two movers", broadcast(), TOGETHER, Budget { pages: 1, shares: 2, ..NOTHING }),
        World::new(
            "shared, given back",
            broadcast(),
            CROSSED,
            Budget { switches: 1, idles: 1, shares: 2, destroys: 1, ..NOTHING },
        )
        .flushing_both(),
        World::new(
            "shared, isolated",
            Policy { isolation: Isolation::On, ..broadcast() },
            TOGETHER,
            Budget { pages: 1, shares: 1, ..NOTHING },
        ),
        World::new("shared, a batch", broadcast(), TOGETHER, Budget { names: 1, shares: 1, drains: 1, ..NOTHING }),
        World::new(
            "shared, a batch, beside",
            broadcast(),
            TOGETHER,
            Budget { names: 1, shares: 1, besides: 1, ..NOTHING },
        )
        .revoked_by_one(),
        World::new(
            "shared, exact set",
            Policy { cpu_set: CpuSetUpkeep::Exact, ..broadcast() },
            APART,
            Budget { switches: 2, pages: 1, shares: 1, ..NOTHING },
        ),
        World::new("early", early(kept()), BOTH_KNOWN, Budget { switches: 1, pages: 2, ..NOTHING }),
        World::new("early, tables", early(kept()), TOGETHER, Budget { switches: 1, idles: 1, tables: 1, ..NOTHING }),
        World::new(
            "early, trimmed",
            early(trimmed()),
            BOTH_KNOWN,
            Budget { switches: 1, pages: 1, destroys: 1, ..NOTHING },
        ),
        World::new("early, a ring", early(kept()), TOGETHER, Budget { issues: 2, pages: 1, ..NOTHING })
            .with_a_ring()
            .revoked_by_one(),
        World::new(
            "early, isolated",
            early(isolated(UserFlush::DeferredCr3)),
            TOGETHER,
            Budget { pages: 2, ..NOTHING },
        ),
        World::new("early, a batch", early(kept()), TOGETHER, Budget { names: 1, besides: 1, ..NOTHING }),
        World::new("early, a CPU leaves", early(kept()), TOGETHER, Budget { pages: 2, absences: 1, ..NOTHING }),
        World::new("early, a guest", early(kept()), TOGETHER, Budget { pages: 2, preemptions: 2, ..NOTHING })
            .in_a_guest(HostFlush::Translations),
    ]
}

const fn guest_with_tables() -> Budget {
    Budget { switches: 1, idles: 1, tables: 1, preemptions: 2, ..NOTHING }
}

/// Larger ones, for the command.
#[must_use]
pub fn large() -> Vec<World> {
    vec![
        World::new("two ASIDs, more", kept(), BOTH_KNOWN, Budget { switches: 2, idles: 1, pages: 2, ..NOTHING })
            .flushing_both(),
        World::new("one ASID, more", one_asid(), BOTH_KNOWN, Budget { switches: 3, pages: 2, ..NOTHING })
            .flushing_both(),
        World::new(
            "lazy, more",
            kept(),
            TOGETHER,
            Budget { switches: 1, idles: 1, pages: 1, wholes: 1, tables: 1, ..NOTHING },
        ),
        World::new("three generations", kept(), TOGETHER, Budget { switches: 1, idles: 1, pages: 3, ..NOTHING }),
        World::new(
            "a CPU comes back, more",
            kept(),
            TOGETHER,
            Budget { switches: 2, pages: 2, absences: 2, ..NOTHING },
        ),
        World::new("end, more", exact(), TOGETHER, Budget { switches: 2, idles: 2, pages: 1, destroys: 2, ..NOTHING }),
        World::new(
            "end, counted, more",
            counted(),
            TOGETHER,
            Budget { switches: 2, idles: 2, pages: 1, destroys: 2, ..NOTHING },
        ),
        World::new("one sender, two switch", kept(), ONE_APART, Budget { switches: 2, pages: 1, ..NOTHING })
            .with_three_cpus(),
        World::new("early, pages and everything", early(kept()), TOGETHER, Budget { pages: 2, wholes: 1, ..NOTHING }),
        World::new("early, shared", early(broadcast()), TOGETHER, Budget { pages: 2, shares: 1, ..NOTHING }),
        World::new("early, three CPUs", early(kept()), ALL_TOGETHER, Budget { pages: 2, ..NOTHING }).with_three_cpus(),
        World::new("shared, three CPUs", broadcast(), ALL_TOGETHER, Budget { pages: 1, shares: 1, ..NOTHING })
            .with_three_cpus(),
        World::new("switch, two senders", kept(), ONE_APART, Budget { switches: 1, pages: 2, ..NOTHING })
            .with_three_cpus(),
    ]
}

/// The small world of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn named(name: &str) -> World {
    small().into_iter().find(|world| world.name == name).expect("a name out of `small`")
}

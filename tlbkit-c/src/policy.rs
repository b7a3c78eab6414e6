//! The policy as C sees it: integers, checked when they come in.

use core::ffi::c_char;

use tlbkit::{Batching, Compare, CpuSetUpkeep, LargePageWalk, MAX_PAGES, MAX_SLOTS, PRESETS, RangeRule};

use crate::status::{Status, report};
use crate::storage::{check, put};

/// How many tags a CPU uses, and which it recycles.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// One context, no PCID.
    Off = 0,
    /// `slots` slots, recycled in turn.
    RoundRobin = 1,
    /// `slots` slots, the one used longest ago is recycled.
    LeastRecent = 2,
}

/// What a CPU does with the user space when it goes idle or runs a kernel thread.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lazy {
    /// Loads the kernel's tables.
    Off = 0,
    /// Keeps the space loaded until the first request interrupts it.
    InterruptOnce = 1,
    /// Keeps the space loaded; is interrupted only when page tables are freed.
    SkipUnlessTablesFreed = 2,
}

/// When a CPU leaves the set of a space that it no longer runs.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuSet {
    /// At each switch away.
    Exact = 0,
    /// Every `trim_every`-th generation of the space; never if that is 0.
    Trimmed = 1,
    /// The same, and whenever page tables are freed.
    TrimmedWithTables = 2,
}

/// Whether the CPUs that run the kernel's own tables are recorded.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// They are not.
    Unwritten = 0,
    /// They are, for what it costs.
    Written = 1,
}

/// When a range is flushed page by page and when everything is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// More than `range_pages` pages flush everything.
    Above = 0,
    /// `range_pages` pages or more flush everything.
    AtLeast = 1,
    /// More than `min(active pages, range_entries) >> range_shift` pages flush everything.
    FamilyShift = 2,
    /// The same, after a search of the page tables for large pages.
    FamilyShiftWalk = 3,
}

/// When invalidations go out.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchingKind {
    /// Each at the time of its request.
    None = 0,
    /// Up to `packet_pages` single pages, then one full flush.
    Packet = 1,
    /// One range that covers them all.
    Range = 2,
}

/// When a page-table page of a space that is being emptied is freed: a choice for the kernel to read and follow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFree {
    /// As soon as it is empty.
    AtOnce = 0,
    /// When the space ends, unless memory is low.
    AtDestroyUnlessLow = 1,
}

/// How the page tables of a space that is not loaded are reached: a choice for the kernel to read and follow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// Through an alternate recursive window.
    Window = 0,
    /// By loading the space for as long as it takes.
    TemporarySwitch = 1,
    /// Through a direct map of all memory.
    DirectMap = 2,
}

/// Page-table isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// One half, kernel pages global.
    Off = 0,
    /// Two halves, kernel pages not global.
    On = 1,
}

/// How the user half is flushed under isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// INVPCID page by page, now.
    Invpcid = 0,
    /// One flushing CR3 write on the way back to user mode.
    DeferredCr3 = 1,
}

/// When the initiator flushes its own TLB.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFlush {
    /// Before it interrupts the others.
    BeforeRemote = 0,
    /// While they work.
    WhileRemote = 1,
}

/// How a lazily loaded space is kept from being freed.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LazyReferences {
    /// By a count; `last_lazy_reference` of the table tells the end.
    Counted = 0,
    /// By nothing: destroy interrupts the CPUs that hold it.
    ShotDown = 1,
}

/// Whether flushes are counted.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounting {
    /// They are not.
    Off = 0,
    /// They are, into the counters given to `tlbkit_machine_init`.
    On = 1,
}

/// Every choice on which kernels differ. Start from `tlbkit_policy_preset` and change fields.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// An `enum tlbkit_tags`.
    pub tags: u32,
    /// 1 to 15 unless tags are off.
    pub slots: u32,
    /// An `enum tlbkit_lazy`.
    pub lazy: u32,
    /// An `enum tlbkit_cpu_set`.
    pub cpu_set: u32,
    /// A power of two, or 0.
    pub trim_every: u32,
    /// An `enum tlbkit_kernel_set`.
    pub kernel_set: u32,
    /// An `enum tlbkit_range`.
    pub range: u32,
    /// The limit of the first two rules.
    pub range_pages: u32,
    /// The shift of the last two, up to 63; -1 for always everything.
    pub range_shift: i32,
    /// Their entries, up to 65535.
    pub range_entries: u32,
    /// An `enum tlbkit_batching`.
    pub batching: u32,
    /// 1 to 16 if batching is by packet.
    pub packet_pages: u32,
    /// An `enum tlbkit_table_free`.
    pub table_free: u32,
    /// An `enum tlbkit_foreign`.
    pub foreign: u32,
    /// An `enum tlbkit_isolation`.
    pub isolation: u32,
    /// An `enum tlbkit_user_flush`.
    pub user_flush: u32,
    /// An `enum tlbkit_local_flush`.
    pub local_flush: u32,
    /// An `enum tlbkit_lazy_references`.
    pub lazy_references: u32,
    /// An `enum tlbkit_accounting`.
    pub accounting: u32,
}

/// The way from a number to a choice of the protocol and back, for choices without fields.
macro_rules! convert {
    ($($name:ident { $($variant:ident),* })*) => {$(
        impl $name {
            pub(crate) const fn decode(number: u32) -> Option<tlbkit::$name> {
                $(if number == Self::$variant as u32 {
                    return Some(tlbkit::$name::$variant);
                })*
                None
            }

            const fn encode(choice: tlbkit::$name) -> u32 {
                match choice { $(tlbkit::$name::$variant => Self::$variant as u32),* }
            }
        }
    )*};
}

convert! {
    Lazy { Off, InterruptOnce, SkipUnlessTablesFreed }
    KernelSet { Unwritten, Written }
    TableFree { AtOnce, AtDestroyUnlessLow }
    Foreign { Window, TemporarySwitch, DirectMap }
    Isolation { Off, On }
    UserFlush { Invpcid, DeferredCr3 }
    LocalFlush { BeforeRemote, WhileRemote }
    LazyReferences { Counted, ShotDown }
    Accounting { Off, On }
}

impl Policy {
    /// The protocol's policy; `None` if a field is out of its range.
    pub(crate) fn decode(&self) -> Option<tlbkit::Policy> {
        Some(tlbkit::Policy {
            tags: self.decode_tags()?,
            lazy: Lazy::decode(self.lazy)?,
            cpu_set: self.decode_cpu_set()?,
            kernel_set: KernelSet::decode(self.kernel_set)?,
            range: self.decode_range()?,
            batching: self.decode_batching()?,
            table_free: TableFree::decode(self.table_free)?,
            foreign: Foreign::decode(self.foreign)?,
            isolation: Isolation::decode(self.isolation)?,
            user_flush: UserFlush::decode(self.user_flush)?,
            local_flush: LocalFlush::decode(self.local_flush)?,
            lazy_references: LazyReferences::decode(self.lazy_references)?,
            accounting: Accounting::decode(self.accounting)?,
        })
    }

    fn decode_tags(&self) -> Option<tlbkit::Tags> {
        let slots = u8::try_from(self.slots).ok().filter(|slots| (1..=MAX_SLOTS).contains(&usize::from(*slots)));
        match self.tags {
            tags if tags == Tags::Off as u32 => Some(tlbkit::Tags::Off),
            tags if tags == Tags::RoundRobin as u32 => slots.map(tlbkit::Tags::RoundRobin),
            tags if tags == Tags::LeastRecent as u32 => slots.map(tlbkit::Tags::LeastRecent),
            _ => None,
        }
    }

    fn decode_cpu_set(&self) -> Option<CpuSetUpkeep> {
        let every = self.trim_every;
        match self.cpu_set {
            set if set == CpuSet::Exact as u32 => Some(CpuSetUpkeep::Exact),
            _ if every != 0 && !every.is_power_of_two() => None,
            set if set == CpuSet::Trimmed as u32 => Some(CpuSetUpkeep::Trimmed { every }),
            set if set == CpuSet::TrimmedWithTables as u32 => Some(CpuSetUpkeep::TrimmedWithTables { every }),
            _ => None,
        }
    }

    fn decode_range(&self) -> Option<RangeRule> {
        let ceiling = |compare| Some(RangeRule::Ceiling { pages: self.range_pages, compare });
        match self.range {
            rule if rule == Range::Above as u32 => ceiling(Compare::Above),
            rule if rule == Range::AtLeast as u32 => ceiling(Compare::AtLeast),
            rule if rule == Range::FamilyShift as u32 => self.decode_shift(LargePageWalk::Skip),
            rule if rule == Range::FamilyShiftWalk as u32 => self.decode_shift(LargePageWalk::Walk),
            _ => None,
        }
    }

    fn decode_shift(&self, walk: LargePageWalk) -> Option<RangeRule> {
        let shift = i8::try_from(self.range_shift).ok().filter(|shift| (-1..=63).contains(shift))?;
        Some(RangeRule::FamilyShift { shift, entries: u16::try_from(self.range_entries).ok()?, walk })
    }

    fn decode_batching(&self) -> Option<Batching> {
        match self.batching {
            kind if kind == BatchingKind::None as u32 => Some(Batching::None),
            kind if kind == BatchingKind::Range as u32 => Some(Batching::Range),
            kind if kind == BatchingKind::Packet as u32 => {
                let pages = u8::try_from(self.packet_pages).ok()?;
                (1..=MAX_PAGES).contains(&usize::from(pages)).then_some(Batching::Packet(pages))
            }
            _ => None,
        }
    }

    fn encode(policy: &tlbkit::Policy) -> Self {
        let (tags, slots) = match policy.tags {
            tlbkit::Tags::Off => (Tags::Off, 0),
            tlbkit::Tags::RoundRobin(slots) => (Tags::RoundRobin, slots),
            tlbkit::Tags::LeastRecent(slots) => (Tags::LeastRecent, slots),
        };
        let (cpu_set, trim_every) = match policy.cpu_set {
            CpuSetUpkeep::Exact => (CpuSet::Exact, 0),
            CpuSetUpkeep::Trimmed { every } => (CpuSet::Trimmed, every),
            CpuSetUpkeep::TrimmedWithTables { every } => (CpuSet::TrimmedWithTables, every),
        };
        let (batching, packet_pages) = match policy.batching {
            Batching::None => (BatchingKind::None, 0),
            Batching::Packet(pages) => (BatchingKind::Packet, pages),
            Batching::Range => (BatchingKind::Range, 0),
        };
        let (range, range_pages, range_shift, range_entries) = encode_range(policy.range);
        Self {
            tags: tags as u32,
            slots: u32::from(slots),
            lazy: Lazy::encode(policy.lazy),
            cpu_set: cpu_set as u32,
            trim_every,
            kernel_set: KernelSet::encode(policy.kernel_set),
            range: range as u32,
            range_pages,
            range_shift,
            range_entries,
            batching: batching as u32,
            packet_pages: u32::from(packet_pages),
            table_free: TableFree::encode(policy.table_free),
            foreign: Foreign::encode(policy.foreign),
            isolation: Isolation::encode(policy.isolation),
            user_flush: UserFlush::encode(policy.user_flush),
            local_flush: LocalFlush::encode(policy.local_flush),
            lazy_references: LazyReferences::encode(policy.lazy_references),
            accounting: Accounting::encode(policy.accounting),
        }
    }
}

fn encode_range(rule: RangeRule) -> (Range, u32, i32, u32) {
    match rule {
        RangeRule::Ceiling { pages, compare: Compare::Above } => (Range::Above, pages, 0, 0),
        RangeRule::Ceiling { pages, compare: Compare::AtLeast } => (Range::AtLeast, pages, 0, 0),
        RangeRule::FamilyShift { shift, entries, walk } => {
            let rule = if walk == LargePageWalk::Walk { Range::FamilyShiftWalk } else { Range::FamilyShift };
            (rule, 0, i32::from(shift), u32::from(entries))
        }
    }
}

/// Writes the preset called `name`, such as "tlbkit", "linux-6.18" or "netbsd-10", into `policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_preset(name: *const c_char, policy: *mut Policy) -> Status {
    report(|| {
        check(name)?;
        // SAFETY: the contract, and a name ends in a zero byte.
        let preset = PRESETS.iter().find(|preset| unsafe { is_text(name, preset.name) }).ok_or(Status::NoSuchPreset)?;
        // SAFETY: the contract.
        unsafe { put(policy, Policy::encode(&preset.policy)) }
    })
}

/// True if C's `text` is `wanted` and then a zero byte; reads no further than the first difference.
///
/// # Safety
/// `text` ends in a zero byte.
unsafe fn is_text(text: *const c_char, wanted: &str) -> bool {
    let bytes = wanted.bytes().chain([0]);
    // SAFETY: no byte before this one was zero, or it would have differed.
    bytes.enumerate().all(|(index, byte)| unsafe { text.add(index).read() } as u8 == byte)
}

/// Whether a policy's fields are all in range: `TLBKIT_STATUS_OK`, or `TLBKIT_STATUS_BAD_VALUE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_check(policy: *const Policy) -> Status {
    report(|| {
        check(policy)?;
        // SAFETY: not null, aligned, and by the contract a whole struct of integers.
        unsafe { &*policy }.decode().map(|_| ()).ok_or(Status::BadValue)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_survives_the_way_to_c_and_back() {
        for preset in PRESETS {
            assert_eq!(Policy::encode(&preset.policy).decode(), Some(preset.policy), "{}", preset.name);
        }
    }

    #[test]
    fn each_field_out_of_range_is_refused() {
        let good = Policy::encode(&tlbkit::Policy::default());
        let packets = Policy { batching: BatchingKind::Packet as u32, packet_pages: 16, ..good };
        let shift = Policy { range: Range::FamilyShift as u32, range_shift: 63, range_entries: 65_535, ..good };
        assert!([good, packets, shift].iter().all(|policy| policy.decode().is_some()));
        let bad = [
            Policy { tags: 3, ..good },
            Policy { slots: 0, ..good },
            Policy { slots: 16, ..good },
            Policy { lazy: 3, ..good },
            Policy { cpu_set: 2, ..good },
            Policy { trim_every: 3, ..good },
            Policy { kernel_set: 2, ..good },
            Policy { range: 4, ..good },
            Policy { range_shift: 64, ..shift },
            Policy { range_shift: -2, ..shift },
            Policy { range_entries: 65_536, ..shift },
            Policy { batching: 3, ..good },
            Policy { packet_pages: 0, ..packets },
            Policy { packet_pages: 17, ..packets },
            Policy { table_free: 2, ..good },
            Policy { foreign: 3, ..good },
            Policy { isolation: 2, ..good },
            Policy { user_flush: 2, ..good },
            Policy { local_flush: 2, ..good },
            Policy { lazy_references: 2, ..good },
            Policy { accounting: u32::MAX, ..good },
        ];
        for policy in bad {
            assert_eq!(policy.decode(), None, "{policy:?}");
        }
    }
}

//! Policies from C's integers to the protocol's choices, checked, and back.

use tlbkit::{Batching, Compare, CpuSetUpkeep, FamilyShift, History, LargePageWalk, MAX_PAGES, MAX_SLOTS, RangeRule};

use super::{
    Accounting, BatchingKind, CpuSet, Foreign, Isolation, KernelSet, Lazy, LazyReferences, LocalFlush, Policy, Range,
    TableFree, Tags, UserFlush,
};

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
            range: self.decode_range()?,
            table_free: TableFree::decode(self.table_free)?,
            foreign: Foreign::decode(self.foreign)?,
            isolation: Isolation::decode(self.isolation)?,
            user_flush: UserFlush::decode(self.user_flush)?,
            local_flush: LocalFlush::decode(self.local_flush)?,
            history: History {
                kernel_set: KernelSet::decode(self.kernel_set)?,
                batching: self.decode_batching()?,
                lazy_references: LazyReferences::decode(self.lazy_references)?,
                accounting: Accounting::decode(self.accounting)?,
            },
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
        Some(RangeRule::FamilyShift(FamilyShift { shift, entries: u16::try_from(self.range_entries).ok()?, walk }))
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

    pub(super) fn encode(policy: &tlbkit::Policy) -> Self {
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
        let (batching, packet_pages) = match policy.history.batching {
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
            kernel_set: KernelSet::encode(policy.history.kernel_set),
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
            lazy_references: LazyReferences::encode(policy.history.lazy_references),
            accounting: Accounting::encode(policy.history.accounting),
        }
    }
}

fn encode_range(rule: RangeRule) -> (Range, u32, i32, u32) {
    match rule {
        RangeRule::Ceiling { pages, compare: Compare::Above } => (Range::Above, pages, 0, 0),
        RangeRule::Ceiling { pages, compare: Compare::AtLeast } => (Range::AtLeast, pages, 0, 0),
        RangeRule::FamilyShift(FamilyShift { shift, entries, walk }) => {
            let rule = if walk == LargePageWalk::Walk { Range::FamilyShiftWalk } else { Range::FamilyShift };
            (rule, 0, i32::from(shift), u32::from(entries))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit::PRESETS;

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
            Policy { cpu_set: 3, ..good },
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

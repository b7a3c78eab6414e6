//! The fields of a machine file. Every number is a [`Quantity`]; a field that is not declared here is an error.

use serde::{Deserialize, Serialize};

use super::quantity::{Limit, Quantity, amount, cycles, quantities, translation_cycles, whole};

/// The most CPUs that a machine may have, and a run on it.
pub const MOST_CPUS: usize = 8192;

/// One CPU model in one set-up: what `sim/machines/*.toml` holds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called on the command line.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// Why its numbers mean little, if those who measured them say so.
    pub caution: Option<String>,
    /// Size and clock.
    pub system: System,
    /// What the CPU can do.
    pub features: Features,
    /// Translation hardware.
    pub tlb: Tlb,
    /// Paging-structure caches.
    pub psc: Psc,
    /// Page walks.
    pub walk: Walk,
    /// Instructions, interrupts and software that the simulation does not run.
    pub cycles: Cycles,
    /// Cache lines that CPUs share.
    pub cache_line: CacheLine,
    /// Kernel code whose instructions are not simulated one by one.
    pub software: Software,
    /// Caches of a core; where they are not said, the kernel's code and data are always near.
    pub caches: Option<Caches>,
    /// How one write of an interrupt command goes; absent if it names one CPU and the next need not wait for it.
    pub apic: Option<Apic>,
    /// INVLPGB and TLBSYNC; absent if the CPU lacks them.
    pub broadcast: Option<Broadcast>,
    /// What a host adds; none on bare metal.
    pub guest: Option<Guest>,
    /// How that host shares its CPUs out among guests; absent if each CPU of the guest has one by itself.
    pub host: Option<Host>,
}

quantities! {
    /// Size and clock.
    System {
        /// The clock in which this file counts cycles.
        frequency_mhz: whole(100, 10_000),
        /// Logical CPUs.
        cpus: whole(1, MOST_CPUS as u32),
        /// Sockets; CPUs are numbered socket by socket.
        sockets: whole(1, 64),
        /// Logical CPUs of one core.
        smt: whole(1, 2),
    } optional {
        /// Groups of cores in a socket, each with a separate last-level cache; absent if all share one.
        groups: whole(1, 64),
    }
}

/// What the CPU can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// CR4.PCIDE may be set.
    pub pcid: bool,
    /// INVPCID exists.
    pub invpcid: bool,
    /// CR4.PGE may be set.
    pub pge: bool,
}

/// TLB arrays.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// PCIDs that the second level remembers; absent if all.
    pub stlb_pcids: Option<Quantity>,
    /// PCIDs besides the loaded one that the first level keeps over a CR3 write; absent if all.
    pub l1_keeps_pcids: Option<Quantity>,
    /// First-level arrays for data.
    pub l1: Vec<TlbArray>,
    /// Second-level arrays.
    pub stlb: Vec<TlbArray>,
}

/// One TLB array.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbArray {
    /// Page sizes that it holds.
    pub holds: Vec<Size>,
    /// How a set is found.
    pub index: Index,
    /// How a way is chosen.
    pub policy: ReplacementPolicy,
    /// Sets.
    pub sets: Quantity,
    /// Ways.
    pub ways: Quantity,
}

/// A page size, as files write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Size {
    /// 4 KiB.
    #[serde(rename = "4K")]
    Small,
    /// 2 MiB.
    #[serde(rename = "2M")]
    Large,
    /// 1 GiB.
    #[serde(rename = "1G")]
    Huge,
}

/// How a set is found, as files write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// Low bits of the page number.
    Linear,
    /// Low bits combined with the seven above.
    Xor7,
}

/// How a way is chosen, as files write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementPolicy {
    /// Least recently used.
    Lru,
    /// A tree of direction bits.
    TreePlru,
    /// Three trees of four ways in turn.
    RotatingPlru4,
}

quantities! {
    /// Entries of the paging-structure caches.
    Psc {
        /// Entries that lead to a PDPT.
        pml4e: whole(0, 255),
        /// Entries that lead to a page directory.
        pdpte: whole(0, 255),
        /// Entries that lead to a page table.
        pde: whole(0, 255),
    }
}

quantities! {
    /// What a walk costs, reference by reference; a paging-structure hit saves the references above it.
    Walk {
        /// Before the first reference.
        start_cycles: translation_cycles(),
        /// The leaf entry, in a line that was read not long ago.
        leaf_hot_cycles: translation_cycles(),
        /// The leaf entry, in another line.
        leaf_cold_cycles: translation_cycles(),
        /// An entry above it, in a line that was read not long ago.
        upper_hot_cycles: translation_cycles(),
        /// An entry above it, in another line.
        upper_cold_cycles: translation_cycles(),
        /// What a walk costs where other accesses overlap it, in percent of its latency.
        overlap_percent: amount(1.0, 100.0),
        /// Lines of page tables that stay near.
        hot_lines: whole(0, 65_536),
    }
}

quantities! {
    /// What instructions, events and uninterpreted software cost, in cycles of [`System::frequency_mhz`].
    Cycles {
        /// INVLPG.
        invlpg: cycles(),
        /// MOV to CR3 that flushes.
        cr3_flush: cycles(),
        /// CR4.PGE off and on.
        cr4_pge_toggle: cycles(),
        /// A second-level hit that the next instruction waits for.
        stlb_hit_dependent: translation_cycles(),
        /// A second-level hit that other accesses overlap.
        stlb_hit_independent: translation_cycles(),
        /// Exception entry and return of a page fault, without what the handler does.
        page_fault_entry_exit: cycles(),
        /// A system call that does nothing.
        syscall: cycles(),
        /// Interrupt entry, end-of-interrupt and return.
        interrupt_entry_exit: cycles(),
        /// The sender's part of an IPI to one CPU.
        ipi_send: cycles(),
        /// The sender's part of an IPI to all others.
        ipi_send_shorthand: cycles(),
        /// From the end of the send to the first instruction of the handler, same socket.
        ipi_deliver_same_socket: cycles(),
        /// From the end of the send to the first instruction of the handler, across sockets.
        ipi_deliver_cross_socket: cycles(),
        /// What an idle target adds to delivery.
        idle_wake: cycles(),
        /// Going idle: HLT or MWAIT and the way there.
        halt_entry: cycles(),
        /// A context switch without its CR3 write.
        context_switch_base: cycles(),
        /// Allocating and zeroing a base page, and freeing it where `give_back_page` is not there.
        zero_page: cycles(),
        /// Copying a base page.
        copy_page: cycles(),
    } optional {
        /// MOV to CR3 that keeps; there if PCIDs are.
        cr3_keep: cycles(),
        /// INVPCID 0; there if the instruction is.
        invpcid_address: cycles(),
        /// INVPCID 1.
        invpcid_single: cycles(),
        /// INVPCID 2 and 3.
        invpcid_all: cycles(),
        /// A fault that takes a new page of anonymous memory, whole: entry, the handler, zeroing, table work. For
        /// traces; the simulated kernel does these parts itself.
        anonymous_fault: cycles(),
        /// A fault that takes 2 MiB of new anonymous memory at once, whole. For traces.
        anonymous_huge_fault: cycles(),
        /// A call that takes pages away, without its flush and without the pages. For traces.
        give_back_call: cycles(),
        /// A page that such a call unmaps and frees, without its flush.
        give_back_page: cycles(),
        /// A page that MADV_FREE marks, to be taken when memory is short, without its flush. For traces.
        lazy_free_page: cycles(),
        /// The next store to such a page, which the processor marks as written again. For traces.
        lazy_free_store: cycles(),
    }
}

quantities! {
    /// What an access to a shared line costs.
    CacheLine {
        /// The line is in this CPU's cache.
        local_hit_cycles: cycles(),
        /// It comes from another cache of the socket.
        same_socket_cycles: cycles(),
        /// It comes from another socket.
        cross_socket_cycles: cycles(),
        /// What a locked operation adds.
        locked_op_cycles: cycles(),
        /// A full fence.
        full_fence_cycles: cycles(),
    } optional {
        /// A line that comes from another cache of the group; there if a socket has groups.
        same_group_cycles: cycles(),
    }
}

quantities! {
    /// Caches of a core, with lines of 64 bytes; first-level caches have 64 sets.
    Caches {
        /// Ways of the first level for code.
        l1i_ways: whole(1, 64),
        /// Ways of the first level for data.
        l1d_ways: whole(1, 64),
        /// Sets of the second level.
        l2_sets: whole(2, 65_536),
        /// Its ways.
        l2_ways: whole(1, 64),
        /// A line that the first level lacks and the second has.
        l2_hit_cycles: cycles(),
        /// A line that both lack.
        beyond_l2_cycles: cycles(),
    }
}

quantities! {
    /// What kernel code costs beyond the accesses and instructions that are simulated.
    Software {
        /// One instruction of the code that switches, flushes and answers.
        instruction_cycles: amount(0.0, 100.0),
        /// One access of the kernel to a page-table entry.
        pte_access_cycles: cycles(),
        /// PAUSE.
        pause_cycles: cycles(),
        /// How long a task runs while others of its CPU wait.
        time_slice_cycles: cycles(),
        /// What work of a program, its faults and calls, and memory that the kernel fills cost while the sibling thread
        /// of the core works, in percent of working alone.
        smt_busy_percent: amount(100.0, 400.0),
    }
}

quantities! {
    /// The local APIC's interrupt command.
    Apic {
        /// CPUs that kernels can interrupt by one write, if their APIC ids differ in their low bits alone: 1 with
        /// physical destinations, 8 with flat ones, 16 with the clusters of x2APIC,
        /// 128 by a hypercall of KVM.
        cpus_a_write: whole(1, 128),
        /// How long the command stays pending after a write, so that the next one waits; 0 with x2APIC.
        pending_cycles: cycles(),
    }
}

quantities! {
    /// INVLPGB and TLBSYNC: flushes that reach every CPU and interrupt none. A CPU that they reach is taken to lose no
    /// time, and two CPUs that use them at once not to wait for each other: nobody has published either.
    Broadcast {
        /// Pages that one INVLPGB takes at most.
        pages: whole(1, 65_536),
        /// INVLPGB, on the CPU that executes it.
        invlpgb_cycles: cycles(),
        /// TLBSYNC after it: until all CPUs have done what they were told.
        tlbsync_cycles: cycles(),
    }
}

/// What a host adds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Whether the host backs the guest with 4 KiB pages, so that INVLPG empties the TLB.
    pub fracturing: Switch,
    /// Further references of a walk per reference, on average.
    pub references_per_reference: Quantity,
    /// Cycles of one of those.
    pub reference_cycles: Quantity,
}

quantities! {
    /// A host that has as many CPUs as each of its guests. All guests are taken to be like this one: where this one has
    /// a CPU that wants to run, another has one as often as this one's CPUs do on average. A CPU that wakes up runs at
    /// once.
    Host {
        /// Guests, this one included.
        guests: whole(1, 64),
        /// The time in which each guest that wants to run gets its share of a CPU once.
        period_cycles: cycles(),
    }
}

/// On or off, as files write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Machine {
    /// Every number with its dotted name and limit, in the order of the file.
    pub(super) fn visit<'a>(&'a self, each: &mut dyn FnMut(String, &'a Quantity, Limit)) {
        self.system.visit("system.", each);
        self.tlb.visit(each);
        self.psc.visit("psc.", each);
        self.walk.visit("walk.", each);
        self.cycles.visit("cycles.", each);
        self.cache_line.visit("cache_line.", each);
        self.software.visit("software.", each);
        if let Some(caches) = &self.caches {
            caches.visit("caches.", each);
        }
        if let Some(apic) = &self.apic {
            apic.visit("apic.", each);
        }
        if let Some(broadcast) = &self.broadcast {
            broadcast.visit("broadcast.", each);
        }
        if let Some(guest) = &self.guest {
            each("guest.references_per_reference".into(), &guest.references_per_reference, amount(0.0, 35.0));
            each("guest.reference_cycles".into(), &guest.reference_cycles, amount(0.0, 10_000.0));
        }
        if let Some(host) = &self.host {
            host.visit("host.", each);
        }
    }
}

impl Tlb {
    fn visit<'a>(&'a self, each: &mut dyn FnMut(String, &'a Quantity, Limit)) {
        if let Some(tags) = &self.stlb_pcids {
            each("tlb.stlb_pcids".into(), tags, whole(1, 4096));
        }
        if let Some(tags) = &self.l1_keeps_pcids {
            each("tlb.l1_keeps_pcids".into(), tags, whole(0, 4095));
        }
        for (level, arrays) in [("l1", &self.l1), ("stlb", &self.stlb)] {
            for (at, array) in arrays.iter().enumerate() {
                each(format!("tlb.{level}[{at}].sets"), &array.sets, whole(1, 65_536));
                each(format!("tlb.{level}[{at}].ways"), &array.ways, whole(1, 255));
            }
        }
    }
}

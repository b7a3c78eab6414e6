//! From a survey to fields of a machine file: which field each measurement gives, and on what it rests.

use tlbkit_host::revocation::Call;
use tlbkit_host::{Sample, Survey};
use tlbkit_machine::{Machine, NumberKind};

use super::machine_file::{FieldNumber, FieldNumbers};

/// Everything that the survey says about `base`'s fields.
pub(super) fn numbers(survey: &Survey, base: &Machine) -> FieldNumbers {
    let mut derivation = Derivation { survey, base, numbers: FieldNumbers::new() };
    derivation.system();
    derivation.arrays();
    derivation.walks();
    derivation.instructions();
    derivation.revocation();
    derivation.memory();
    derivation.lines();
    derivation.numbers
}

struct Derivation<'a> {
    survey: &'a Survey,
    base: &'a Machine,
    numbers: FieldNumbers,
}

impl Derivation<'_> {
    /// Time, as cycles of the time-stamp counter. What scatters too much is a prior with its band.
    fn time(&mut self, field: &'static str, kind: NumberKind, nanoseconds: &Sample, how: &str) {
        let cycles = nanoseconds.times(self.survey.host.tsc_mhz / 1e3);
        let kind = if nanoseconds.is_noisy() { NumberKind::Prior } else { kind };
        let round = |value: f64| (value * 10.0).round() / 10.0;
        let number = FieldNumber {
            value: round(cycles.median),
            band: Some([round(cycles.low), round(cycles.high)]),
            kind,
            how: how.into(),
        };
        self.numbers.insert(field, number);
    }

    fn count(&mut self, field: &'static str, value: usize, how: &str) {
        let number = FieldNumber { value: value as f64, band: None, kind: NumberKind::Input, how: how.into() };
        self.numbers.insert(field, number);
    }

    fn system(&mut self) {
        let host = &self.survey.host;
        self.count("system.frequency_mhz", host.tsc_mhz.round() as usize, "the time-stamp counter's rate");
        self.count("system.cpus", host.cpus, "/proc/cpuinfo");
        self.count("system.sockets", host.sockets, "/proc/cpuinfo");
        self.count("system.smt", host.smt, "/proc/cpuinfo");
    }

    fn arrays(&mut self) {
        let translation = &self.survey.translation;
        if let Some(entries) = translation.l1_entries {
            self.count("tlb.l1[0].sets", 1, "fully associative; not resolved");
            self.count("tlb.l1[0].ways", entries, "the last size without a step in a chase");
        }
        if let Some(entries) = translation.stlb_entries {
            let (sets, ways) = shape(entries);
            let how = format!("{entries} entries, before the second step of a chase; the split is not resolved");
            self.count("tlb.stlb[0].sets", sets, &how);
            self.count("tlb.stlb[0].ways", ways, &how);
        }
        // Of all steps, this is the one that a busy host moves.
        let is_telling = self.survey.host.has_pcid && !self.survey.disturbance.is_too_much();
        if let Some(tags) = self.survey.tags().filter(|_| is_telling) {
            // Linux itself has six tags a CPU: a hardware that keeps more cannot show it.
            let band = Some([tags as f64, if tags < 6 { tags as f64 + 1.0 } else { 4096.0 }]);
            let how = "rings of processes; Linux gives out six tags".into();
            self.numbers
                .insert("tlb.stlb_pcids", FieldNumber { value: tags as f64, band, kind: NumberKind::Calibrated, how });
        }
    }

    fn walks(&mut self) {
        let translation = &self.survey.translation;
        let guest = self.base.guest.as_ref();
        let nested = guest.map_or(0.0, |guest| guest.references_per_reference.value * guest.reference_cycles.value);
        let nested = self.taken_over(nested);
        let how = "a walk in a chase, less the nested references of the machine that it is taken from";
        self.time("walk.leaf_hot_cycles", NumberKind::Calibrated, &translation.walk_warm.minus(&nested), how);
        self.time("walk.leaf_cold_cycles", NumberKind::Calibrated, &translation.walk_cold.minus(&nested), how);
        let (single, overlapped) = (translation.walk_warm.median, translation.walk_overlapped.median);
        if single > 0.0 {
            let value = (100.0 * overlapped / single).round().clamp(1.0, 100.0);
            let how = "a near walk where loads overlap, beside one in a chain".into();
            self.numbers
                .insert("walk.overlap_percent", FieldNumber { value, band: None, kind: NumberKind::Calibrated, how });
        }
        let how = "384 pages less as many lines";
        self.time("cycles.stlb_hit_dependent", NumberKind::Input, &translation.stlb_hit, how);
        self.time("cycles.stlb_hit_independent", NumberKind::Input, &translation.stlb_hit_overlapped, how);
    }

    /// What cycles of the base machine take here: the written file has their number as it is, and this clock.
    fn taken_over(&self, cycles: f64) -> Sample {
        let own = cycles * 1e3 / self.survey.host.tsc_mhz;
        Sample { low: own, median: own, high: own, repetitions: usize::MAX }
    }

    fn instructions(&mut self) {
        let primitives = &self.survey.primitives;
        self.time("cycles.syscall", NumberKind::Input, &primitives.syscall, "getppid");
        self.time("cycles.copy_page", NumberKind::Input, &primitives.copy_page, "between near caches");
        let how = "a fault that maps the page of zeros, with the handler";
        self.time("cycles.page_fault_entry_exit", NumberKind::Calibrated, &primitives.read_fault, how);
        let zero = primitives.write_fault.minus(&primitives.read_fault);
        let how = "a fault that takes a new page, less one that takes the page of zeros; with allocation";
        self.time("cycles.zero_page", NumberKind::Calibrated, &zero, how);
        self.time("software.pause_cycles", NumberKind::Input, &primitives.pause, "PAUSE in a loop");
        if let Some(row) = self.survey.rings.ping_pong() {
            let keep = self.taken_over(self.base.cycles.cr3_keep.as_ref().map_or(0.0, |cost| cost.value));
            let hop = row.idle.minus(&primitives.syscall.times(2.0)).minus(&keep);
            let how = "a hop between two processes by eventfd, less two system calls and a kept CR3";
            self.time("cycles.context_switch_base", NumberKind::Calibrated, &hop, how);
        }
    }

    fn revocation(&mut self) {
        if let Some(step) = &self.survey.revocation.ceiling {
            let cycles = |nanoseconds: f64| (nanoseconds * self.survey.host.tsc_mhz / 1e3).max(0.0).round();
            let value = cycles(step.slope_before - step.slope_after);
            let how = format!("mprotect: growth up to {} pages less growth beyond", step.last);
            let band = self.survey.revocation.page_by_page.map(|range| range.map(cycles));
            let band = band.map(|[low, high]| [low.min(value), high.max(value)]);
            let number = FieldNumber { value, band, kind: NumberKind::Calibrated, how };
            self.numbers.insert("cycles.invlpg", number);
        }
        let Some(remote) = self.survey.revocation.remote() else { return };
        let cycles = &self.base.cycles;
        let (send, deliver) = (cycles.ipi_send.value, cycles.ipi_deliver_same_socket.value);
        let share = |part: f64| remote.times(part / (send + deliver + cycles.interrupt_entry_exit.value));
        let how = "what a running thread elsewhere adds to the flush of one page, split as there";
        for (field, part) in [("cycles.ipi_send", send), ("cycles.ipi_deliver_same_socket", deliver)] {
            self.time(field, NumberKind::Calibrated, &share(part), how);
        }
    }

    /// Faults and calls whole, as programs meet them.
    fn memory(&mut self) {
        let primitives = &self.survey.primitives;
        let (many, lone) = (primitives.write_fault, primitives.lone_fault);
        let fault = Sample {
            low: many.low.min(lone.low),
            median: f64::midpoint(many.median, lone.median),
            high: many.high.max(lone.high),
            repetitions: many.repetitions,
        };
        let how = "a fault that takes a new page, whole: from 256 in a row to one alone";
        self.time("cycles.anonymous_fault", NumberKind::Calibrated, &fault, how);
        if let Some(huge) = &primitives.huge_fault {
            let how = "a fault that takes 2 MiB at once, whole, in memory that asked for it";
            self.time("cycles.anonymous_huge_fault", NumberKind::Calibrated, huge, how);
        }
        let how = "MADV_FREE, a page: from 512 at once to 8,192";
        self.time("cycles.lazy_free_page", NumberKind::Calibrated, &primitives.lazy_free_page, how);
        let how = "the next store after MADV_FREE less one more: from 512 pages to 8,192";
        self.time("cycles.lazy_free_store", NumberKind::Calibrated, &primitives.lazy_free_store, how);
        self.giving_back();
    }

    /// Calls that give pages back, and the pages.
    fn giving_back(&mut self) {
        let primitives = &self.survey.primitives;
        let revocation = &self.survey.revocation;
        let [one, unmap] = [Call::Madvise, Call::Munmap].map(|call| revocation.row(call, 1));
        let [page, unmapped] = [Call::Madvise, Call::Munmap].map(|call| revocation.per_page(call));
        let (Some(one), Some(unmap), Some(page), Some(unmapped)) = (one, unmap, page, unmapped) else { return };
        let page = Sample { low: page.low.min(unmapped.low), high: page.high.max(unmapped.high), ..page };
        let how = "MADV_DONTNEED and munmap of 512 pages less those of 64, a page";
        self.time("cycles.give_back_page", NumberKind::Calibrated, &page, how);
        let invlpg = self.numbers.get("cycles.invlpg").map_or(self.base.cycles.invlpg.value, |number| number.value);
        let flush = self.taken_over(invlpg);
        let call = (one.alone.median - page.median - flush.median).max(primitives.syscall.median);
        let call = Sample {
            low: primitives.syscall.low.min(call),
            median: call,
            high: unmap.alone.high.max(call),
            repetitions: one.alone.repetitions,
        };
        let how = "MADV_DONTNEED of a page less page and flush; from a call that does nothing to munmap whole";
        self.time("cycles.give_back_call", NumberKind::Calibrated, &call, how);
    }

    fn lines(&mut self) {
        let primitives = &self.survey.primitives;
        if let Some(transfer) = &primitives.line_transfer {
            self.time("cache_line.same_socket_cycles", NumberKind::Input, transfer, "two threads that write in turn");
        }
        self.time(
            "cache_line.locked_op_cycles",
            NumberKind::Input,
            &primitives.locked_op,
            "a locked addition in a loop",
        );
        self.time("cache_line.full_fence_cycles", NumberKind::Input, &primitives.full_fence, "a fence in a loop");
    }
}

/// Sets and ways of an array: sets must be a power of two, and ways are 16 at most where that is possible.
fn shape(entries: usize) -> (usize, usize) {
    let mut ways = entries >> entries.trailing_zeros();
    while ways * 2 <= 16 && entries.is_multiple_of(ways * 2) {
        ways *= 2;
    }
    (entries / ways, ways)
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn arrays_have_a_power_of_two_of_sets() {
        assert_eq!([512, 1536, 2048, 2560, 3072].map(shape), [(32, 16), (128, 12), (128, 16), (256, 10), (256, 12)]);
    }
}

//! Which CPUs share a core, a group of cores, a socket.
//!
//! CPUs are numbered socket by socket. Where a core has two threads, a socket's first half are the first threads of its
//! cores, and the second half the other threads in the same order. Cores of one group share their last-level cache.

use tlbkit_machine::System;

/// Where CPUs are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Topology {
    cpus: usize,
    cpus_per_socket: usize,
    threads_per_core: usize,
    /// Cores of a group, if a socket has groups.
    cores_per_group: Option<usize>,
}

impl Topology {
    /// That of `cpus` CPUs of a machine: fewer than it has are spread over all its sockets.
    pub(crate) fn new(system: &System, cpus: usize) -> Self {
        let sockets = system.sockets.count().min(cpus);
        let cores = system.cpus.count() / (system.sockets.count() * system.smt.count());
        Self {
            cpus,
            cpus_per_socket: cpus.div_ceil(sockets),
            threads_per_core: system.smt.count(),
            cores_per_group: system.groups.as_ref().map(|groups| cores / groups.count()),
        }
    }

    /// For tests: one thread a core, and no groups.
    #[cfg(test)]
    pub(crate) fn plain(cpus: usize, cpus_per_socket: usize) -> Self {
        Self { cpus, cpus_per_socket, threads_per_core: 1, cores_per_group: None }
    }

    /// For tests: the same with groups of so many cores.
    #[cfg(test)]
    pub(crate) fn in_groups_of(self, cores: usize) -> Self {
        Self { cores_per_group: Some(cores), ..self }
    }

    /// How many sockets have CPUs.
    pub(crate) fn sockets(&self) -> usize {
        self.cpus.div_ceil(self.cpus_per_socket)
    }

    /// Which socket the CPU is in, from 0.
    pub(crate) fn socket_index(&self, cpu: usize) -> usize {
        cpu / self.cpus_per_socket
    }

    /// The CPUs of the socket of `cpu`.
    pub(crate) fn socket_of(&self, cpu: usize) -> std::ops::Range<usize> {
        let first = self.socket_index(cpu) * self.cpus_per_socket;
        first..first + self.cpus_per_socket
    }

    /// True if both are in one group of cores, or in one socket without groups.
    pub(crate) fn same_group(&self, a: usize, b: usize) -> bool {
        self.socket_of(a).contains(&b) && self.group_of(a) == self.group_of(b)
    }

    /// The group of the CPU, counted in its socket.
    fn group_of(&self, cpu: usize) -> usize {
        self.cores_per_group.map_or(0, |cores| self.core_of(cpu) / cores)
    }

    /// The CPU's core, counted in its socket.
    fn core_of(&self, cpu: usize) -> usize {
        let place = cpu % self.cpus_per_socket;
        if self.sibling(cpu).is_some() { place % self.half() } else { place }
    }

    /// The other thread of the CPU's core, if the machine has two a core.
    pub(crate) fn sibling(&self, cpu: usize) -> Option<usize> {
        let half = self.half();
        if self.threads_per_core != 2 || half == 0 {
            return None;
        }
        let place = cpu % self.cpus_per_socket;
        // Of an odd number the last has a separate core.
        let other = (place < 2 * half).then(|| self.socket_of(cpu).start + (place + half) % (2 * half));
        other.filter(|&it| it < self.cpus)
    }

    fn half(&self) -> usize {
        self.cpus_per_socket / 2
    }

    /// The CPU that is the first thread of core `core`, socket by socket; from the number of cores on, the others.
    pub(crate) fn first_thread(&self, core: usize) -> usize {
        let is_second = |&cpu: &usize| self.sibling(cpu).is_some() && cpu % self.cpus_per_socket >= self.half();
        let first = (0..self.cpus).filter(|cpu| !is_second(cpu));
        let mut order = first.chain((0..self.cpus).filter(is_second));
        order.nth(core % self.cpus).expect("each CPU is in the order once")
    }

    /// The CPU's APIC id: threads of a core side by side, each socket from a power of two on.
    pub(crate) fn apic_id(&self, cpu: usize) -> usize {
        let (socket, place) = (cpu / self.cpus_per_socket, cpu % self.cpus_per_socket);
        let half = self.half();
        let in_socket = if self.sibling(cpu).is_some() { place % half * 2 + place / half } else { place };
        socket * self.cpus_per_socket.next_power_of_two() + in_socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of three cores with two threads each.
    const TWICE_THREE: Topology = Topology { cpus: 12, cpus_per_socket: 6, threads_per_core: 2, cores_per_group: None };

    #[test]
    fn cores_are_filled_socket_by_socket_before_their_other_threads() {
        let order: Vec<usize> = (0..13).map(|core| TWICE_THREE.first_thread(core)).collect();
        assert_eq!(order, [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11, 0]);
        let plain = Topology::plain(4, 2);
        assert_eq!((0..4).map(|core| plain.first_thread(core)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn threads_of_a_core_stand_side_by_side_in_the_apic() {
        assert_eq!((TWICE_THREE.sibling(1), TWICE_THREE.sibling(10)), (Some(4), Some(7)));
        assert_eq!([1, 4, 6, 9].map(|cpu| TWICE_THREE.apic_id(cpu)), [2, 3, 8, 9]);
        assert_eq!(Topology::plain(4, 2).sibling(1), None);
    }

    /// A run may have fewer CPUs than its machine.
    #[test]
    fn of_an_odd_number_of_cpus_the_last_has_a_core_of_its_own() {
        let five = Topology { cpus: 5, cpus_per_socket: 5, threads_per_core: 2, cores_per_group: None };
        let siblings: Vec<_> = (0..5).map(|cpu| five.sibling(cpu)).collect();
        assert_eq!(siblings, [Some(2), Some(3), Some(0), Some(1), None]);
        let mut ids: Vec<_> = (0..5).map(|cpu| five.apic_id(cpu)).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_group_has_both_threads_of_its_cores_and_nobody_of_another_socket() {
        // Groups of one core, and of two: the third core of a socket is alone.
        let alone = TWICE_THREE.in_groups_of(1);
        assert!(alone.same_group(0, 3) && !alone.same_group(0, 1) && !alone.same_group(0, 6));
        let pairs = TWICE_THREE.in_groups_of(2);
        assert!(pairs.same_group(0, 1) && pairs.same_group(0, 4) && !pairs.same_group(1, 2));
        assert!(pairs.same_group(2, 5) && !pairs.same_group(2, 8));
    }
}

//! What varies from run to run on a real machine, drawn from the run's seed. Each CPU has a separate stream, so that
//! what one CPU does moves no other's numbers, and two policies with one seed meet the same noise for as long as they
//! do the same.

use std::cell::Cell;

use tlbkit_arch::SplitMix64;
use tlbkit_arch::random::mix;
use tlbkit_machine::{Noise, NoiseModel};

use super::agenda::NEVER;

/// How much what varies, in cycles and parts of a million.
#[derive(Clone, Copy, Debug)]
struct Spreads {
    tick_period: u64,
    tick: u64,
    start: u64,
    delivery_ppm: u64,
    work_ppm: u64,
    irqs_off_ppm: u64,
    irqs_off: u64,
    balance_ppm: u64,
    shared_core_per_cpu: u64,
}

/// The random stream of one CPU, and its ticks.
#[derive(Debug)]
struct CpuNoise {
    stream: Cell<SplitMix64>,
    next_tick: Cell<u64>,
    /// Since when ticks have found its task sharing a core while another idled; [`NEVER`] if the last did not.
    crowded_since: Cell<u64>,
}

/// The noise of one machine; none where it is off.
pub(crate) struct NoiseStreams(Option<(Spreads, Vec<CpuNoise>)>);

impl NoiseStreams {
    /// The noise of `seed` on a machine of `cpus` CPUs with a clock of `frequency_mhz`.
    pub(super) fn new(noise: Noise, seed: u64, cpus: usize, frequency_mhz: f64) -> Self {
        if noise == Noise::Off {
            return Self(None);
        }
        let model = NoiseModel::builtin();
        let cycles = |ns: f64| (ns * frequency_mhz / 1e3).round() as u64;
        let ppm = |percent: f64| (percent * 1e4).round() as u64;
        let spreads = Spreads {
            tick_period: cycles(1e9 / model.tick_hz.value).max(1),
            tick: cycles(model.tick_ns.value),
            start: cycles(model.start_spread_ns.value),
            delivery_ppm: ppm(model.delivery_spread_percent.value),
            work_ppm: ppm(model.work_spread_percent.value),
            irqs_off_ppm: ppm(model.irqs_off_percent.value),
            irqs_off: cycles(model.irqs_off_ns.value),
            balance_ppm: ppm(100.0 * model.balance_hz.value / model.tick_hz.value),
            shared_core_per_cpu: cycles(1e6 * model.part_ms_per_cpu.value),
        };
        let of_cpu = |cpu: usize| {
            // Apart from the streams of the tasks, which begin with the same seed.
            let mut stream = SplitMix64::new(mix(!seed ^ mix(cpu as u64 + 1)));
            let next_tick = Cell::new(stream.below(spreads.tick_period));
            CpuNoise { stream: Cell::new(stream), next_tick, crowded_since: Cell::new(NEVER) }
        };
        Self(Some((spreads, (0..cpus).map(of_cpu).collect())))
    }

    /// The shortest delivery of an interrupt whose delivery takes `cycles` on average.
    pub(super) fn shortest_delivery(&self, cycles: u64) -> u64 {
        self.0.as_ref().map_or(cycles, |(spreads, _)| cycles - cycles * spreads.delivery_ppm / 1_000_000)
    }

    /// How long the delivery of an interrupt to `cpu` takes, which takes `cycles` on average.
    pub(super) fn delivery(&self, cpu: usize, cycles: u64) -> u64 {
        self.0.as_ref().map_or(cycles, |(spreads, cpus)| cpus[cpu].spread(cycles, spreads.delivery_ppm))
    }

    /// How long an interrupt waits that finds `cpu` in its kernel: for the rest of a stretch with interrupts off, if it
    /// falls into one. The stretches are exponentially distributed, so the rest of one has the same distribution.
    pub(super) fn irqs_off_rest(&self, cpu: usize) -> u64 {
        self.0.as_ref().map_or(0, |(spreads, cpus)| {
            if cpus[cpu].below(1_000_000) < spreads.irqs_off_ppm { cpus[cpu].exponential(spreads.irqs_off) } else { 0 }
        })
    }

    /// How long a computation on `cpu` takes, which takes `cycles` on average.
    pub(crate) fn work(&self, cpu: usize, cycles: u64) -> u64 {
        self.0.as_ref().map_or(cycles, |(spreads, cpus)| cpus[cpu].spread(cycles, spreads.work_ppm))
    }

    /// How much later a task comes to its first instruction on `cpu` than it could.
    pub(crate) fn start_delay(&self, cpu: usize) -> u64 {
        self.0.as_ref().map_or(0, |(spreads, cpus)| cpus[cpu].below(spreads.start + 1))
    }

    /// When the next tick of `cpu` comes.
    pub(crate) fn tick_due(&self, cpu: usize) -> u64 {
        self.0.as_ref().map_or(NEVER, |(_, cpus)| cpus[cpu].next_tick.get())
    }

    /// Takes the tick of `cpu` that is due, and returns the cycles of its handler. If several are due, one is taken.
    pub(crate) fn take_tick(&self, cpu: usize, now: u64) -> u64 {
        self.0.as_ref().map_or(0, |(spreads, cpus)| {
            cpus[cpu].forget_ticks(now, spreads.tick_period);
            spreads.tick
        })
    }

    /// Decides at a tick of `cpu` whether a balancer moves its task. Returns the CPU, one of `cpus`, from which on the
    /// balancer looks for an idle one.
    pub(crate) fn balance(&self, cpu: usize, cpus: usize) -> Option<usize> {
        let (spreads, streams) = self.0.as_ref()?;
        let is_moved = streams[cpu].below(1_000_000) < spreads.balance_ppm;
        is_moved.then(|| streams[cpu].below(cpus as u64) as usize)
    }

    /// Decides at a tick of `cpu` whether its task leaves a shared core for `idle_core`, a CPU whose core idles as a
    /// whole, if there is one. It does so when all ticks have found such a CPU for as long as a balancer takes to move
    /// a running task on a socket of `cpus` CPUs.
    pub(crate) fn leave_shared_core(
        &self,
        cpu: usize,
        now: u64,
        idle_core: Option<usize>,
        cpus: usize,
    ) -> Option<usize> {
        let (spreads, streams) = self.0.as_ref()?;
        let since = &streams[cpu].crowded_since;
        since.set(if idle_core.is_some() { since.get().min(now) } else { NEVER });
        idle_core.filter(|_| now - since.get() >= spreads.shared_core_per_cpu * cpus as u64)
    }

    /// `cpu` has idled until `now`: it took no ticks.
    pub(crate) fn forget_ticks(&self, cpu: usize, now: u64) {
        if let Some((spreads, cpus)) = &self.0 {
            cpus[cpu].forget_ticks(now, spreads.tick_period);
            cpus[cpu].crowded_since.set(NEVER);
        }
    }
}

impl CpuNoise {
    fn below(&self, limit: u64) -> u64 {
        let mut stream = self.stream.get();
        let number = stream.below(limit);
        self.stream.set(stream);
        number
    }

    /// `cycles`, up to `ppm` parts of a million more or less.
    fn spread(&self, cycles: u64, ppm: u64) -> u64 {
        let most = (u128::from(cycles) * u128::from(ppm) / 1_000_000) as u64;
        cycles - most + self.below(2 * most + 1)
    }

    /// A number that is exponentially distributed with this mean, by comparisons alone (von Neumann, 1951), so that it
    /// is the same on every host.
    fn exponential(&self, mean: u64) -> u64 {
        const ONE: u64 = 1 << 32;
        let mut whole = 0;
        loop {
            let first = self.below(ONE);
            let (mut last, mut falls) = (first, 0_u32);
            loop {
                let next = self.below(ONE);
                if next >= last {
                    break;
                }
                (last, falls) = (next, falls + 1);
            }
            if falls.is_multiple_of(2) {
                return ((u128::from(whole * ONE + first) * u128::from(mean)) >> 32) as u64;
            }
            whole += 1;
        }
    }

    /// The next tick comes after `now`, at the CPU's own phase.
    fn forget_ticks(&self, now: u64, period: u64) {
        let next = self.next_tick.get();
        if next <= now {
            self.next_tick.set(next + ((now - next) / period + 1) * period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(seed: u64) -> NoiseStreams {
        NoiseStreams::new(Noise::On, seed, 2, 2000.0)
    }

    #[test]
    fn spreads_keep_their_mean_and_their_bounds() {
        let noise = streams(1);
        let least = noise.shortest_delivery(1000);
        let times: Vec<_> = (0..10_000).map(|_| noise.delivery(1, 1000)).collect();
        assert!(times.iter().all(|time| (least..=2000 - least).contains(time)), "{least}");
        let mean = times.iter().sum::<u64>() as f64 / 1e4;
        assert!((mean - 1000.0).abs() < 5.0, "{mean}");
    }

    #[test]
    fn a_kernel_takes_most_interrupts_at_once_and_some_after_a_stretch() {
        let noise = streams(1);
        let windows: Vec<_> = (0..100_000).map(|_| noise.irqs_off_rest(1)).filter(|&window| window > 0).collect();
        assert!((windows.len() as f64 - 1e4).abs() < 400.0, "{} of 100,000", windows.len());
        // Of an exponential distribution 37 % lie above the mean, and 5 % above three times that.
        let mean = windows.iter().sum::<u64>() as f64 / windows.len() as f64;
        assert!((mean - 2000.0).abs() < 80.0, "{mean}");
        let beyond = |times: u64| windows.iter().filter(|&&window| window > times * 2000).count() as f64;
        let shares = [1, 3].map(|times| beyond(times) / windows.len() as f64);
        assert!((shares[0] - 0.368).abs() < 0.02 && (shares[1] - 0.0498).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn ticks_keep_their_phase_and_none_is_taken_twice() {
        let noise = streams(1);
        let (period, first) = (8_000_000, noise.tick_due(0));
        assert!(first < period && first != noise.tick_due(1));
        assert_eq!(noise.take_tick(0, first), 4000);
        assert_eq!(noise.tick_due(0), first + period);
        noise.forget_ticks(0, first + 5 * period + 1);
        assert_eq!(noise.tick_due(0), first + 6 * period);
    }

    #[test]
    fn a_balancer_moves_one_task_in_twenty_five_ticks_and_to_any_cpu() {
        let noise = streams(1);
        let mut starts = [0_u32; 4];
        (0..100_000).filter_map(|_| noise.balance(1, 4)).for_each(|start| starts[start] += 1);
        assert!(starts.iter().all(|&count| (900..1100).contains(&count)), "{starts:?}");
    }

    #[test]
    fn tasks_that_share_a_core_are_parted_when_another_has_idled_at_all_ticks_of_three_milliseconds_for_each_cpu() {
        let noise = streams(1);
        let ms = 2_000_000;
        assert_eq!([1, 6].map(|at| noise.leave_shared_core(0, at * ms, Some(3), 2)), [None; 2]);
        assert_eq!(noise.leave_shared_core(1, 7 * ms, Some(3), 2), None, "another CPU");
        assert_eq!(noise.leave_shared_core(0, 7 * ms, Some(3), 2), Some(3));
        assert_eq!(noise.leave_shared_core(0, 8 * ms, None, 2), None);
        assert_eq!(noise.leave_shared_core(0, 9 * ms, Some(3), 2), None, "no core idled in between");
        noise.forget_ticks(0, 12 * ms);
        assert_eq!(noise.leave_shared_core(0, 15 * ms, Some(3), 2), None, "the CPU itself idled in between");
        assert_eq!(noise.leave_shared_core(0, 21 * ms, Some(3), 2), Some(3));
    }

    #[test]
    fn a_seed_is_one_noise_and_none_is_none() {
        let times = |seed| {
            let noise = streams(seed);
            [(); 9].map(|()| noise.work(0, 1_000_000))
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
        let off = NoiseStreams::new(Noise::Off, 1, 2, 2000.0);
        assert_eq!((off.balance(0, 2), off.leave_shared_core(0, NEVER - 1, Some(1), 0)), (None, None));
        assert_eq!(
            (
                off.work(0, 7),
                off.delivery(1, 7),
                off.shortest_delivery(7),
                off.start_delay(0),
                off.tick_due(0),
                off.irqs_off_rest(0)
            ),
            (7, 7, 7, 0, NEVER, 0)
        );
    }
}

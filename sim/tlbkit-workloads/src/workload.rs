//! A benchmark with its parameters, and one process or thread of it.

use crate::os::{Os, Part};
use crate::parameters::{self, ParameterError, Parameters};
use crate::{
    Allocator, BuildSh, Compile, ContextSwitch, Ebizzy, FlushSizes, Isolated, LatCtx, Lookups, Madvise1, MapBench,
    Memcache, Munmap1, Netperf, PingPong, Sharing, TlbFlush, TlbFlushMemory,
};

/// One process or thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The benchmark.
    pub workload: Workload,
    /// What it does there.
    pub part: Part,
}

/// A benchmark and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Two spaces on one CPU wake each other.
    PingPong(PingPong),
    /// A ring of processes, each with an array to sum.
    LatCtx(LatCtx),
    /// Request and response between pairs of processes, each with a CPU that idles in between.
    Netperf(Netperf),
    /// The same, the servers being threads of one process.
    Memcache(Memcache),
    /// Pairs of threads of one process, each with a CPU that idles in between.
    ContextSwitch(ContextSwitch),
    /// Many short processes.
    BuildSh(BuildSh),
    /// Compilers that give memory back in the sizes of a kernel build.
    Compile(Compile),
    /// Those sizes by themselves.
    FlushSizes(FlushSizes),
    /// Threads that allocate, fill, search and free.
    Ebizzy(Allocator, Ebizzy),
    /// Threads that each give one page back at a time.
    TlbFlush(TlbFlushMemory, TlbFlush),
    /// Threads that map, touch and unmap, alone or for each other.
    MapBench(Sharing, MapBench),
    /// One thread gives one page back again and again, the others spin.
    Madvise1(Madvise1),
    /// One thread unmaps what all have written, and times that.
    Munmap1(Munmap1),
    /// Threads look up pages of a file that does not fit into memory.
    Reclaim(Lookups),
    /// CPUs that are not to be disturbed, beside others that flush kernel addresses.
    Isolated(Isolated),
}

impl Task {
    /// Runs the task to its end.
    pub fn run(self, os: &dyn Os) {
        match self.workload {
            Workload::PingPong(parameters) => parameters.run(self.part, os),
            Workload::LatCtx(parameters) => parameters.run(self.part, os),
            Workload::Netperf(parameters) => parameters.run(self.part, os),
            Workload::Memcache(parameters) => parameters.run(self.part, os),
            Workload::ContextSwitch(parameters) => parameters.run(self.part, os),
            Workload::BuildSh(parameters) => parameters.run(self.part, os),
            Workload::Compile(parameters) => parameters.run(self.part, os),
            Workload::FlushSizes(parameters) => parameters.run(os),
            Workload::Ebizzy(allocator, parameters) => parameters.run(allocator, self.part, os),
            Workload::TlbFlush(memory, parameters) => parameters.run(memory, self.part, os),
            Workload::MapBench(sharing, parameters) => parameters.run(sharing, self.part, os),
            Workload::Madvise1(parameters) => parameters.run(self.part, os),
            Workload::Munmap1(parameters) => parameters.run(self.part, os),
            Workload::Reclaim(parameters) => parameters.run(self.part, os),
            Workload::Isolated(parameters) => parameters.run(self.part, os),
        }
    }

    /// Another task of the same workload.
    #[must_use]
    pub const fn starts(self, part: Part) -> Self {
        Self { part, ..self }
    }
}

/// Every variant's parameters, borrowed as the workload is: the one list serves reading and writing.
macro_rules! parameters_of {
    ($workload:expr) => {
        match $workload {
            Workload::PingPong(parameters) => parameters,
            Workload::LatCtx(parameters) => parameters,
            Workload::Netperf(parameters) => parameters,
            Workload::Memcache(parameters) => parameters,
            Workload::ContextSwitch(parameters) => parameters,
            Workload::BuildSh(parameters) => parameters,
            Workload::Compile(parameters) => parameters,
            Workload::FlushSizes(parameters) => parameters,
            Workload::Ebizzy(_, parameters) => parameters,
            Workload::TlbFlush(_, parameters) => parameters,
            Workload::MapBench(_, parameters) => parameters,
            Workload::Madvise1(parameters) => parameters,
            Workload::Munmap1(parameters) => parameters,
            Workload::Reclaim(parameters) => parameters,
            Workload::Isolated(parameters) => parameters,
        }
    };
}

impl Workload {
    /// The task that starts all others.
    pub fn first_task(self) -> Task {
        Task { workload: self, part: Part::FIRST }
    }

    /// The parameters, to list and to read.
    pub fn parameters(&self) -> &dyn Parameters {
        parameters_of!(self)
    }

    /// Sets one parameter from `key=value`.
    ///
    /// # Errors
    ///
    /// One line that names the key, the value and the limit.
    pub fn set<'a>(&mut self, setting: &'a str) -> Result<(), ParameterError<'a>> {
        parameters::set(self.parameters_mut(), setting)
    }

    /// Whether it ends without being told that the run is over: it does after a number of rounds.
    pub fn ends_by_itself(&self) -> bool {
        self.parameters().get("rounds").is_none_or(|rounds| rounds > 0)
    }

    fn parameters_mut(&mut self) -> &mut dyn Parameters {
        parameters_of!(self)
    }
}

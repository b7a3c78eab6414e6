//! The set of CPUs that hold a line: one word while CPUs are few, more words only for a line that needs them.

/// Who holds a line. The owner, if there is one, is the only holder and may write; it is in no word.
#[derive(Debug, Default)]
pub(super) struct Holders {
    owner: Option<u32>,
    low: u64,
    high: Vec<u64>,
}

impl Holders {
    pub(super) fn owns(&self, cpu: u32) -> bool {
        self.owner == Some(cpu)
    }

    pub(super) fn holds(&self, cpu: u32) -> bool {
        self.owns(cpu) || self.word(cpu / 64) >> (cpu % 64) & 1 == 1
    }

    /// Adds a reader; the owner stays a reader.
    pub(super) fn share(&mut self, cpu: u32) {
        if let Some(owner) = self.owner.take() {
            self.set(owner);
        }
        self.set(cpu);
    }

    /// Everybody else loses the line.
    pub(super) fn own(&mut self, cpu: u32) {
        self.low = 0;
        self.high.clear();
        self.owner = Some(cpu);
    }

    /// True if a holder is on another socket than `cpu`.
    pub(super) fn any_beyond(&self, cpu: u32, cpus_per_socket: u32) -> bool {
        let first = cpu / cpus_per_socket * cpus_per_socket;
        let end = first + cpus_per_socket;
        if let Some(owner) = self.owner {
            return !(first..end).contains(&owner);
        }
        (0..=self.high.len() as u32).any(|at| self.word(at) & !window(at, first, end) != 0)
    }

    fn word(&self, at: u32) -> u64 {
        match at {
            0 => self.low,
            _ => self.high.get(at as usize - 1).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, cpu: u32) {
        let bit = 1 << (cpu % 64);
        let at = (cpu / 64) as usize;
        if at == 0 {
            self.low |= bit;
            return;
        }
        if self.high.len() < at {
            self.high.resize(at, 0);
        }
        self.high[at - 1] |= bit;
    }
}

/// Bits of word `at` for the CPUs `first .. end`.
fn window(at: u32, first: u32, end: u32) -> u64 {
    below(end.saturating_sub(at * 64)) & !below(first.saturating_sub(at * 64))
}

fn below(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

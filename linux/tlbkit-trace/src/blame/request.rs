//! Who was interrupted for whom: follows requests to flush from the sender's event to the ends of the handlers.

use rustc_hash::FxHashMap;

/// The request of one sender. A CPU sends one request at a time, and waits until it is answered.
#[derive(Clone, Copy)]
struct Request<T> {
    of: T,
    tid: i32,
    /// When the last event of this request happened, in nanoseconds.
    last_ns: u64,
    /// Up to when the sender's time is already counted, in nanoseconds. None if the sender is in a system call, since
    /// then all of its time is counted there.
    counted_ns: Option<u64>,
}

/// Where a thread is when it asks other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In a system call.
    InACall,
    /// In a page fault, or in something of which no event tells.
    OutsideOfCalls,
}

/// A function that runs for another CPU.
#[derive(Clone, Copy)]
struct Handler<T> {
    of: T,
    sender: u32,
    began_ns: u64,
}

/// Moves `last_ns` on to `now_ns`, unless that is earlier. Returns by how many nanoseconds it moved.
fn pass(last_ns: &mut u64, now_ns: u64) -> u64 {
    let passed_ns = now_ns.saturating_sub(*last_ns);
    *last_ns += passed_ns;
    passed_ns
}

/// A function that ran for another CPU has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answered<T> {
    pub(super) of: T,
    /// For how long it ran, in nanoseconds.
    pub(super) took_ns: u64,
    /// By how much longer the sender waited than was known before, in nanoseconds.
    pub(super) waited_ns: u64,
    /// How much of that was not counted as the sender's time before, in nanoseconds.
    pub(super) uncounted_ns: u64,
}

/// All requests that are under way. `T` is what the caller gives to a request to find it again.
pub(super) struct Requests<T> {
    senders: FxHashMap<u32, Request<T>>,
    /// By the address of the queued call: the request to which it belongs, and the CPU of its sender.
    queued: FxHashMap<u64, (T, u32)>,
    handlers: FxHashMap<u32, Handler<T>>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { senders: FxHashMap::default(), queued: FxHashMap::default(), handlers: FxHashMap::default() }
    }
}

/// The most queued calls that are kept. A CPU has one for each other CPU. If there are more, all are forgotten.
const MAX_QUEUED: usize = 1 << 18;

impl<T: Copy> Requests<T> {
    /// A thread begins to ask other CPUs.
    pub(super) fn send(&mut self, cpu: u32, tid: i32, of: T, now_ns: u64, place: Place) {
        let counted_ns = (place == Place::OutsideOfCalls).then_some(now_ns);
        self.senders.insert(cpu, Request { of, tid, last_ns: now_ns, counted_ns });
    }

    /// The thread's time is counted up to `now_ns`, although its request is still under way.
    pub(super) fn is_counted(&mut self, cpu: u32, tid: i32, now_ns: u64) {
        if let Some(request) = self.senders.get_mut(&cpu).filter(|request| request.tid == tid) {
            request.counted_ns = request.counted_ns.map(|before_ns| before_ns.max(now_ns));
        }
    }

    /// The CPU does something else now, so its request has ended.
    pub(super) fn is_over(&mut self, cpu: u32) {
        self.senders.remove(&cpu);
    }

    /// The thread queues a call with the address `csd` for another CPU.
    pub(super) fn queue(&mut self, cpu: u32, tid: i32, csd: u64) {
        let Some(request) = self.senders.get(&cpu).filter(|request| request.tid == tid) else { return };
        if self.queued.len() >= MAX_QUEUED {
            self.queued.clear();
        }
        self.queued.insert(csd, (request.of, cpu));
    }

    /// The queued call with the address `csd` begins on its CPU. Returns the request to which it belongs, if that is
    /// known.
    pub(super) fn begin(&mut self, cpu: u32, csd: u64, now_ns: u64) -> Option<T> {
        self.handlers.remove(&cpu);
        let (of, sender) = self.queued.remove(&csd)?;
        self.handlers.insert(cpu, Handler { of, sender, began_ns: now_ns });
        Some(of)
    }

    /// The request whose call runs on this CPU, if one does.
    pub(super) fn running(&self, cpu: u32) -> Option<T> {
        self.handlers.get(&cpu).map(|handler| handler.of)
    }

    /// The queued call that runs on this CPU ends. None if it belongs to no known request.
    pub(super) fn end(&mut self, cpu: u32, now_ns: u64) -> Option<Answered<T>> {
        let handler = self.handlers.remove(&cpu)?;
        let took_ns = now_ns.saturating_sub(handler.began_ns);
        let (mut waited_ns, mut uncounted_ns) = (0, 0);
        if let Some(request) = self.senders.get_mut(&handler.sender) {
            waited_ns = pass(&mut request.last_ns, now_ns);
            uncounted_ns = request.counted_ns.as_mut().map_or(0, |last_ns| pass(last_ns, now_ns));
        }
        Some(Answered { of: handler.of, took_ns, waited_ns, uncounted_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_for_the_last_of_its_handlers() {
        let mut requests = Requests::default();
        requests.send(0, 7, 'a', 100, Place::InACall);
        requests.queue(0, 7, 0x10);
        requests.queue(0, 7, 0x20);
        requests.queue(0, 7, 0x40);
        requests.queue(0, 8, 0x30);
        assert_eq!(requests.begin(1, 0x10, 120), Some('a'));
        assert_eq!(requests.begin(2, 0x20, 130), Some('a'));
        assert_eq!(requests.begin(3, 0x30, 130), None, "another thread's");
        assert_eq!(requests.begin(4, 0x40, 130), Some('a'));
        assert_eq!(requests.running(2), Some('a'));
        let answered = |took_ns, waited_ns| Some(Answered { of: 'a', took_ns, waited_ns, uncounted_ns: 0 });
        assert_eq!(requests.end(1, 140), answered(20, 40));
        assert_eq!(requests.end(2, 135), answered(5, 0));
        assert_eq!(requests.end(2, 136), None);
        assert_eq!(requests.end(4, 138), answered(8, 0), "one ended later");
        requests.is_over(0);
        requests.queue(0, 7, 0x10);
        assert_eq!(requests.begin(1, 0x10, 200), None, "it had done something else meanwhile");
    }

    #[test]
    fn a_fault_s_wait_is_time_that_its_flush_has_not_counted() {
        let mut requests = Requests::default();
        requests.send(0, 7, 'a', 100, Place::OutsideOfCalls);
        requests.queue(0, 7, 0x10);
        requests.queue(0, 7, 0x20);
        requests.queue(0, 7, 0x30);
        [(1, 0x10), (2, 0x20), (3, 0x30)].into_iter().for_each(|(cpu, csd)| _ = requests.begin(cpu, csd, 110));
        requests.is_counted(0, 8, 115);
        requests.is_counted(0, 7, 120);
        let answered = |took_ns, waited_ns, uncounted_ns| Some(Answered { of: 'a', took_ns, waited_ns, uncounted_ns });
        assert_eq!(requests.end(1, 118), answered(8, 18, 0), "before its own flush was over");
        assert_eq!(requests.end(2, 130), answered(20, 12, 10));
        assert_eq!(requests.end(3, 150), answered(40, 20, 20));
    }
}

//! Who was interrupted for whom: requests to flush, from the sender's event to the handlers' ends.

use rustc_hash::FxHashMap;

/// The request of one sender; a CPU sends one at a time, and waits for its end.
#[derive(Clone, Copy)]
struct Request<T> {
    of: T,
    tid: i32,
    /// The last that was heard of it.
    last_ns: u64,
}

/// A call that runs for somebody else.
#[derive(Clone, Copy)]
struct Handler<T> {
    of: T,
    sender: u32,
    began_ns: u64,
}

/// What came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answered<T> {
    pub(super) of: T,
    /// For how long the handler ran.
    pub(super) took_ns: u64,
    /// By how much longer the sender waited than was known before.
    pub(super) waited_ns: u64,
}

/// Requests that are under way; `T` says whose they are.
pub(super) struct Requests<T> {
    senders: FxHashMap<u32, Request<T>>,
    /// By the address of the request: whose, and the sender's CPU.
    queued: FxHashMap<u64, (T, u32)>,
    handlers: FxHashMap<u32, Handler<T>>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { senders: FxHashMap::default(), queued: FxHashMap::default(), handlers: FxHashMap::default() }
    }
}

/// A CPU has one request for each other; more than these are forgotten.
const MAX_QUEUED: usize = 1 << 18;

impl<T: Copy> Requests<T> {
    /// A thread begins to ask others.
    pub(super) fn send(&mut self, cpu: u32, tid: i32, of: T, now_ns: u64) {
        self.senders.insert(cpu, Request { of, tid, last_ns: now_ns });
    }

    /// It does something else by now.
    pub(super) fn is_over(&mut self, cpu: u32) {
        self.senders.remove(&cpu);
    }

    /// A call is queued for another CPU.
    pub(super) fn queue(&mut self, cpu: u32, tid: i32, csd: u64) {
        let Some(request) = self.senders.get(&cpu).filter(|request| request.tid == tid) else { return };
        if self.queued.len() >= MAX_QUEUED {
            self.queued.clear();
        }
        self.queued.insert(csd, (request.of, cpu));
    }

    /// A queued call begins on its CPU; whose it is.
    pub(super) fn begin(&mut self, cpu: u32, csd: u64, now_ns: u64) -> Option<T> {
        self.handlers.remove(&cpu);
        let (of, sender) = self.queued.remove(&csd)?;
        self.handlers.insert(cpu, Handler { of, sender, began_ns: now_ns });
        Some(of)
    }

    /// Whose call runs on this CPU.
    pub(super) fn running(&self, cpu: u32) -> Option<T> {
        self.handlers.get(&cpu).map(|handler| handler.of)
    }

    /// A queued call ends.
    pub(super) fn end(&mut self, cpu: u32, now_ns: u64) -> Option<Answered<T>> {
        let handler = self.handlers.remove(&cpu)?;
        let took_ns = now_ns.saturating_sub(handler.began_ns);
        let mut waited_ns = 0;
        if let Some(request) = self.senders.get_mut(&handler.sender) {
            waited_ns = now_ns.saturating_sub(request.last_ns);
            request.last_ns = request.last_ns.max(now_ns);
        }
        Some(Answered { of: handler.of, took_ns, waited_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_for_the_last_of_its_handlers() {
        let mut requests = Requests::default();
        requests.send(0, 7, 'a', 100);
        requests.queue(0, 7, 0x10);
        requests.queue(0, 7, 0x20);
        requests.queue(0, 7, 0x40);
        requests.queue(0, 8, 0x30);
        assert_eq!(requests.begin(1, 0x10, 120), Some('a'));
        assert_eq!(requests.begin(2, 0x20, 130), Some('a'));
        assert_eq!(requests.begin(3, 0x30, 130), None, "another thread's");
        assert_eq!(requests.begin(4, 0x40, 130), Some('a'));
        assert_eq!(requests.running(2), Some('a'));
        assert_eq!(requests.end(1, 140), Some(Answered { of: 'a', took_ns: 20, waited_ns: 40 }));
        assert_eq!(requests.end(2, 135), Some(Answered { of: 'a', took_ns: 5, waited_ns: 0 }));
        assert_eq!(requests.end(2, 136), None);
        assert_eq!(requests.end(4, 138), Some(Answered { of: 'a', took_ns: 8, waited_ns: 0 }), "one ended later");
        requests.is_over(0);
        requests.queue(0, 7, 0x10);
        assert_eq!(requests.begin(1, 0x10, 200), None, "it had done something else meanwhile");
    }
}

//! `perf.data` files made by hand, in either byte order: what no machine at hand records.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Little,
    Big,
}

const TLB_FORMAT: &str = "name: tlb_flush\nID: 188\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
    \tfield:int reason;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:unsigned long pages;\toffset:16;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";
/// Identifier, thread, time, CPU, raw fields.
const SAMPLE_TYPE: u64 = 1 << 16 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;
/// Identifier, instruction, thread, time, CPU, stack.
const CLOCK_SAMPLE_TYPE: u64 = 1 << 16 | 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 5;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const ATTR_BYTES: u64 = 64;
pub(crate) const ID: u64 = 5;
const CLOCK_ID: u64 = 6;

/// Writes numbers in one byte order.
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    order: Order,
}

impl Out {
    pub(crate) fn new(order: Order) -> Self {
        Self { bytes: Vec::new(), order }
    }

    fn put(&mut self, little: &[u8]) -> &mut Self {
        match self.order {
            Order::Little => self.bytes.extend(little),
            Order::Big => self.bytes.extend(little.iter().rev()),
        }
        self
    }

    pub(crate) fn u16(&mut self, n: u16) -> &mut Self {
        self.put(&n.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, n: u32) -> &mut Self {
        self.put(&n.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, n: u64) -> &mut Self {
        self.put(&n.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    pub(crate) fn record(&mut self, kind: u32, body: &[u8]) -> &mut Self {
        self.u32(kind).u16(0).u16(body.len() as u16 + 8).raw(body)
    }
}

/// One flush of `pages` pages for reason 3.
pub(crate) fn flush(out: &mut Out, time_ns: u64, pages: u64) {
    let mut raw = Out::new(out.order);
    raw.u16(188).raw(&[0; 6]).u32(3).u32(0).u64(pages).u32(0);
    let mut body = Out::new(out.order);
    body.u64(ID).u32(70).u32(71).u64(time_ns).u32(1).u32(0).u32(raw.bytes.len() as u32).raw(&raw.bytes);
    out.record(9, &body.bytes);
}

/// A thread's name.
pub(crate) fn comm(out: &mut Out, time_ns: u64, tid: u32, name: &[u8; 8]) {
    let mut body = Out::new(out.order);
    body.u32(70).u32(tid).raw(name).u32(70).u32(tid).u64(time_ns).u32(1).u32(0).u64(ID);
    out.record(3, &body.bytes);
}

/// So many events that the recorder lost.
pub(crate) fn lost(out: &mut Out, time_ns: u64, count: u64) {
    let mut body = Out::new(out.order);
    body.u64(ID).u64(count).u32(70).u32(71).u64(time_ns).u32(1).u32(0).u64(ID);
    out.record(2, &body.bytes);
}

/// So many that it had lost in all, as it counts them at its end: without a time.
pub(crate) fn lost_in_all(out: &mut Out, count: u64) {
    let mut body = Out::new(out.order);
    body.u64(count).u32(0).u32(0).u64(0).u32(0).u32(0).u64(ID);
    out.record(13, &body.bytes);
}

pub(crate) fn finished_round(out: &mut Out) {
    out.record(68, &[]);
}

pub(crate) fn tracing_data(order: Order) -> Vec<u8> {
    let mut out = Out::new(order);
    out.raw(b"\x17\x08\x44tracing0.6\0").raw(&[u8::from(order == Order::Big), 8]).u32(4096);
    out.raw(b"header_page\0").u64(3).raw(b"abc").raw(b"header_event\0").u64(0).u32(0);
    out.u32(1).raw(b"tlb\0").u32(1).u64(TLB_FORMAT.len() as u64).raw(TLB_FORMAT.as_bytes());
    out.bytes
}

fn attr(order: Order) -> Vec<u8> {
    attr_of(order, (2, 188), SAMPLE_TYPE)
}

fn attr_of(order: Order, (kind, number): (u32, u64), sample_type: u64) -> Vec<u8> {
    let flags = if order == Order::Big { SAMPLE_ID_ALL.reverse_bits() } else { SAMPLE_ID_ALL };
    let mut out = Out::new(order);
    out.u32(kind).u32(ATTR_BYTES as u32).u64(number).u64(1).u64(sample_type).u64(4).u64(flags).u64(0).u64(0);
    out.bytes
}

/// The clock by which the CPU's time is sampled, as a pipe tells of an event.
pub(crate) fn clock(out: &mut Out) {
    let mut body = Out::new(out.order);
    body.raw(&attr_of(out.order, (1, 0), CLOCK_SAMPLE_TYPE)).u64(CLOCK_ID);
    out.record(64, &body.bytes);
}

/// A sample of it at `ip`, with this stack.
pub(crate) fn sample(out: &mut Out, time_ns: u64, ip: u64, stack: &[u64]) {
    let mut body = Out::new(out.order);
    body.u64(CLOCK_ID).u64(ip).u32(70).u32(71).u64(time_ns).u32(1).u32(0).u64(stack.len() as u64);
    stack.iter().for_each(|&address| _ = body.u64(address));
    out.record(9, &body.bytes);
}

fn magic(order: Order) -> &'static [u8; 8] {
    if order == Order::Big { b"2ELIFREP" } else { b"PERFILE2" }
}

/// A file around `records`.
pub(crate) fn file(order: Order, records: &[u8]) -> Vec<u8> {
    const HEAD: u64 = 104;
    let ids_at = HEAD + ATTR_BYTES + 16;
    let data_at = ids_at + 8;
    let tracing_data = tracing_data(order);
    let index_at = data_at + records.len() as u64;
    let mut out = Out::new(order);
    out.raw(magic(order)).u64(HEAD).u64(ATTR_BYTES + 16).u64(HEAD).u64(ATTR_BYTES + 16);
    out.u64(data_at).u64(records.len() as u64).u64(0).u64(0).u64(1 << 1).u64(0).u64(0).u64(0);
    out.raw(&attr(order)).u64(ids_at).u64(8).u64(ID).raw(records);
    out.u64(index_at + 16).u64(tracing_data.len() as u64).raw(&tracing_data);
    out.bytes
}

/// A pipe with `records`.
pub(crate) fn pipe(order: Order, records: &[u8]) -> Vec<u8> {
    let mut out = Out::new(order);
    let mut attr_and_id = Out::new(order);
    attr_and_id.raw(&attr(order)).u64(ID);
    out.raw(magic(order)).u64(16).record(64, &attr_and_id.bytes);
    let tracing_data = tracing_data(order);
    let mut size = Out::new(order);
    size.u32(tracing_data.len() as u32);
    out.record(66, &size.bytes).raw(&tracing_data);
    let padding = tracing_data.len().next_multiple_of(8) - tracing_data.len();
    out.raw(&vec![0; padding]).raw(records);
    out.bytes
}

/// Three rounds, out of order within what rounds allow.
pub(crate) fn records(order: Order) -> Vec<u8> {
    let mut out = Out::new(order);
    comm(&mut out, 1, 71, b"worker\0\0");
    flush(&mut out, 30, 3);
    flush(&mut out, 10, 1);
    finished_round(&mut out);
    flush(&mut out, 20, 2);
    lost(&mut out, 40, 7);
    finished_round(&mut out);
    flush(&mut out, 50, u64::MAX);
    finished_round(&mut out);
    out.bytes
}

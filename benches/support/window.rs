//! A synthetic window in the format that [`kernspan::replay`] reads. One thread makes a launch every 2 µs, with a span
//! around 8 of them and a step of 1000. On two streams 64 different kernels alternate, a quarter of which have names of
//! 300 bytes.

use prost::Message;
use std::collections::BTreeMap;

/// The fields of the message of `replay` that are used here.
#[derive(Clone, Message)]
pub(super) struct Window {
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(string, tag = "4")]
    host: String,
    #[prost(uint32, tag = "5")]
    pid: u32,
    #[prost(string, tag = "6")]
    process: String,
    #[prost(message, repeated, tag = "8")]
    devices: Vec<Device>,
    #[prost(message, repeated, tag = "9")]
    callsites: Vec<Callsite>,
    #[prost(message, repeated, tag = "10")]
    tracks: Vec<Track>,
    #[prost(message, repeated, tag = "11")]
    steps: Vec<Step>,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<Span>,
    #[prost(message, repeated, tag = "13")]
    calls: Vec<Call>,
    #[prost(btree_map = "uint64, string", tag = "16")]
    names: BTreeMap<u64, String>,
    #[prost(bytes = "vec", tag = "17")]
    records: Vec<u8>,
    /// The records under a tag that `replay` ignores, to measure the time of reading the rest.
    #[prost(bytes = "vec", tag = "99")]
    unread: Vec<u8>,
}

#[derive(Clone, Message)]
struct Device {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint32, repeated, tag = "5")]
    numbers: Vec<u32>,
}

#[derive(Clone, Message)]
struct Callsite {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    target: String,
}

#[derive(Clone, Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    thread: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, Copy, Message)]
struct When {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint64, tag = "2")]
    nanos: u64,
}

#[derive(Clone, Message)]
struct Step {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(message, required, tag = "2")]
    when: When,
}

#[derive(Clone, Message)]
struct Span {
    #[prost(uint32, tag = "1")]
    callsite: u32,
    #[prost(message, required, tag = "2")]
    when: When,
    #[prost(uint32, optional, tag = "3")]
    parent: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    step: Option<u32>,
    #[prost(uint64, tag = "5")]
    self_nanos: u64,
}

#[derive(Clone, Message)]
struct Call {
    #[prost(message, required, tag = "1")]
    when: When,
    #[prost(uint32, tag = "3")]
    function: u32,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint32, tag = "5")]
    correlation: u32,
    #[prost(message, required, tag = "7")]
    owner: Owner,
}

#[derive(Clone, Copy, Message)]
struct Owner {
    #[prost(uint32, optional, tag = "1")]
    span: Option<u32>,
}

/// Nanoseconds from one launch to the next.
const PERIOD: u64 = 2_000;
const IN_SPAN: u32 = 8;
const IN_STEP: u32 = 1_000;
const NAMES: u32 = 64;
const SPANS: [&str; 4] = ["train_step", "attention", "mlp", "optimizer"];

impl Window {
    /// Returns the same window with records that `replay` ignores.
    #[allow(dead_code, reason = "only one of the programs that use this file needs it")]
    pub(super) fn unread(self) -> Self {
        Self { unread: self.records, records: Vec::new(), ..self }
    }

    /// Makes a window with this many kernels.
    pub(super) fn of(kernels: u32) -> Self {
        let start = 1_790_000_000_123_456_789;
        let mut window = Self {
            start,
            end: start + (u64::from(kernels) + 10) * PERIOD,
            host: "bench".to_owned(),
            pid: 4_194_000,
            process: "replay".to_owned(),
            devices: vec![Device {
                name: "NVIDIA H200".to_owned(),
                numbers: vec![9, 0, 132, 32, 1024, 2048, 32, 65536, 65536, 49152, 232_448, 233_472, 1024],
                ..Device::default()
            }],
            tracks: vec![Track { thread: 4_194_001, name: "main".to_owned() }],
            names: (0..NAMES).map(|name| (address(name), name_of(name))).collect(),
            ..Self::default()
        };
        window.callsites = SPANS.map(|name| Callsite { name: name.to_owned(), target: "bench".to_owned() }).into();
        let mut train_step = 0;
        for kernel in 0..kernels {
            let at = u64::from(kernel) * PERIOD;
            if kernel.is_multiple_of(IN_STEP) {
                let when = When { start: at, nanos: u64::from(IN_STEP) * PERIOD };
                train_step = window.spans.len() as u32;
                window.steps.push(Step { number: (kernel / IN_STEP).into(), when });
                window.add_span(0, when, None);
            }
            if kernel.is_multiple_of(IN_SPAN) {
                let when = When { start: at + 50, nanos: u64::from(IN_SPAN) * PERIOD - 100 };
                window.add_span(1 + kernel / IN_SPAN % 3, when, Some(train_step));
            }
            window.calls.push(Call {
                when: When { start: at + 137, nanos: 1_234 + at % 97 },
                function: 307,
                name: "cuLaunchKernel".to_owned(),
                correlation: 1_000 + kernel,
                owner: Owner { span: Some(window.spans.len() as u32 - 1) },
            });
            window.records.extend_from_slice(&(RECORD as u32).to_le_bytes());
            window.records.extend_from_slice(&record(kernel, start + at));
        }
        window
    }

    fn add_span(&mut self, callsite: u32, when: When, parent: Option<u32>) {
        let step = Some(self.steps.len() as u32 - 1);
        self.spans.push(Span { callsite, when, parent, step, self_nanos: when.nanos / 2 });
    }
}

fn address(name: u32) -> u64 {
    0x7f00_0000_0000 + u64::from(name) * 512
}

/// Returns the name of a kernel; one in four is a long template name.
fn name_of(name: u32) -> String {
    match name % 4 {
        0 => format!("_Z14gemm_kernel_{name:02}I{}EvPKfPf", "Li128E".repeat(45)),
        _ => format!("elementwise_kernel_{name:02}"),
    }
}

const RECORD: usize = 160;

/// Returns a kernel's record, with the leading fields of `CUpti_ActivityKernel`.
fn record(kernel: u32, launched: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut put = |offset: usize, bytes: &[u8]| record[offset..offset + bytes.len()].copy_from_slice(bytes);
    let start = launched + 5_000 + u64::from(kernel % 89);
    let end = start + 1_100 + u64::from(kernel % 613);
    put(0, &10_u32.to_ne_bytes());
    put(6, &74_u16.to_ne_bytes());
    put(16, &start.to_ne_bytes());
    put(24, &end.to_ne_bytes());
    for (index, number) in
        [0, 1, 7 + kernel % 2 * 6, 8 + kernel % NAMES % 3, 1, 6, 128, 1, 1, 0, 20_480].into_iter().enumerate()
    {
        put(40 + 4 * index, &number.to_ne_bytes());
    }
    put(92, &(1_000 + kernel).to_ne_bytes());
    put(104, &address(kernel % NAMES).to_ne_bytes());
    record
}

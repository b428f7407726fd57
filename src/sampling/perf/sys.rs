//! `perf_event_open`, the ring that an event writes to, and mapped files.

#![allow(unsafe_code, reason = "the kernel offers no other way, and rustix does not wrap it")]

use memmap2::Mmap;
use std::{
    fs::File,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

/// The registers that stacks are unwound from, as bits of `perf_regs.h`, in the order in which the kernel writes them:
/// the frame pointer, the stack pointer, the instruction pointer.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// The registers that stacks are unwound from, as bits of `perf_regs.h`, in the order in which the kernel writes them:
/// the frame pointer, the link register, the stack pointer, the program counter.
#[cfg(target_arch = "aarch64")]
const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// The number of registers in a sample.
pub(super) const REGISTER_COUNT: usize = REGISTERS.count_ones() as usize;

/// Values of `linux/perf_event.h`.
mod abi {
    pub(super) const TYPE_SOFTWARE: u32 = 1;
    pub(super) const COUNT_SW_TASK_CLOCK: u64 = 1;
    pub(super) const COUNT_SW_CONTEXT_SWITCHES: u64 = 3;
    pub(super) const COUNT_SW_DUMMY: u64 = 9;
    pub(super) const SAMPLE_TID: u64 = 1 << 1;
    pub(super) const SAMPLE_TIME: u64 = 1 << 2;
    pub(super) const SAMPLE_PERIOD: u64 = 1 << 8;
    pub(super) const SAMPLE_REGS_USER: u64 = 1 << 12;
    pub(super) const SAMPLE_STACK_USER: u64 = 1 << 13;
    pub(super) const DISABLED: u64 = 1;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const FREQ: u64 = 1 << 10;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const USE_CLOCKID: u64 = 1 << 25;
    pub(super) const CONTEXT_SWITCH: u64 = 1 << 26;
    pub(super) const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    /// `_IO('$', 0)` and `_IO('$', 1)`.
    pub(super) const IOC_ENABLE: u64 = 0x2400;
    pub(super) const IOC_DISABLE: u64 = 0x2401;
    /// The offsets of `data_head` and `data_tail` in `perf_event_mmap_page`.
    pub(super) const DATA_HEAD: usize = 1024;
    pub(super) const DATA_TAIL: usize = 1032;
}

/// `perf_event_attr` as of Linux 4.1, which is the first with `clockid`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period_or_freq: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
}

/// The kind of records that an event writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reports {
    /// The stack of a thread, so many times per second on a CPU.
    Running { hertz: u32, stack_bytes: u32 },
    /// The stack of a thread whenever it leaves a CPU, and when it leaves and returns. It needs privileges.
    Waiting { stack_bytes: u32 },
    /// When a thread leaves a CPU and returns.
    Switches,
}

impl Reports {
    fn attributes(self) -> Attributes {
        let stack = abi::SAMPLE_REGS_USER | abi::SAMPLE_STACK_USER;
        let (config, sample_period_or_freq, sampled, stack_bytes, flags) = match self {
            Self::Running { hertz, stack_bytes } => {
                let flags = abi::FREQ | abi::EXCLUDE_KERNEL;
                (abi::COUNT_SW_TASK_CLOCK, u64::from(hertz), stack | abi::SAMPLE_PERIOD, stack_bytes, flags)
            }
            Self::Waiting { stack_bytes } => {
                (abi::COUNT_SW_CONTEXT_SWITCHES, 1, stack | abi::SAMPLE_PERIOD, stack_bytes, abi::CONTEXT_SWITCH)
            }
            Self::Switches => {
                (abi::COUNT_SW_DUMMY, 1, abi::SAMPLE_PERIOD, 0, abi::CONTEXT_SWITCH | abi::EXCLUDE_KERNEL)
            }
        };
        Attributes {
            kind: abi::TYPE_SOFTWARE,
            size: mem::size_of::<Attributes>() as u32,
            config,
            sample_period_or_freq,
            sample_type: abi::SAMPLE_TID | abi::SAMPLE_TIME | sampled,
            flags: abi::DISABLED | abi::EXCLUDE_HV | abi::SAMPLE_ID_ALL | abi::USE_CLOCKID | flags,
            sample_regs_user: if stack_bytes > 0 { REGISTERS } else { 0 },
            sample_stack_user: stack_bytes,
            // Not adjusted by NTP, so that its rate and that of the cycle counter are in a constant proportion.
            clockid: libc::CLOCK_MONOTONIC_RAW,
            ..Attributes::default()
        }
    }
}

/// An event of one thread, and the ring that the kernel writes its records to.
#[derive(Debug)]
pub(super) struct Event {
    descriptor: OwnedFd,
    ring: NonNull<u8>,
    /// The bytes of the ring's records, a power of two.
    data_bytes: usize,
    page: usize,
}

// SAFETY: the mapping belongs to the event alone, and may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Opens an event, not yet enabled, with a ring of so many bytes, or of less where the system limits the memory
    /// that may be locked, but of no fewer than `least`.
    #[doc(alias = "perf_event_open")]
    pub(super) fn open(thread: u32, reports: Reports, bytes: usize, least: usize) -> io::Result<Self> {
        let attributes = reports.attributes();
        let (any_cpu, no_group) = (-1_i32, -1_i32);
        let thread = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
        // SAFETY: the kernel reads `size` bytes of the attributes, which live until it returns, and writes nothing.
        let opened = unsafe {
            let (call, attributes) = (libc::SYS_perf_event_open, ptr::from_ref(&attributes));
            libc::syscall(call, attributes, thread, any_cpu, no_group, abi::FLAG_FD_CLOEXEC)
        };
        let descriptor = i32::try_from(opened).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned it, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let page = rustix::param::page_size();
        let mut data_bytes = bytes.next_power_of_two().max(page);
        loop {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let (length, file) = (page + data_bytes, descriptor.as_raw_fd());
            // SAFETY: it is a new mapping, at an address of the kernel's choice.
            let ring = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file, 0) };
            if ring != libc::MAP_FAILED {
                let ring = NonNull::new(ring.cast()).ok_or_else(|| io::Error::other("mapped at the null address"))?;
                return Ok(Self { descriptor, ring, data_bytes, page });
            }
            if data_bytes / 2 < least.max(page) {
                // The kernel says that it is not permitted, which would be the same as if the event was refused.
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            data_bytes /= 2;
        }
    }

    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    pub(super) fn enable(&self) {
        self.control(abi::IOC_ENABLE);
    }

    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    pub(super) fn disable(&self) {
        self.control(abi::IOC_DISABLE);
    }

    fn control(&self, request: u64) {
        // SAFETY: these requests take no pointer. They fail only if the descriptor is not an event.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request as libc::Ioctl, 0) };
    }

    /// One of the two positions in the ring, which only ever increase.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as the event lives, has an aligned `u64` there, and both the kernel
        // and this process access that as a whole.
        unsafe { AtomicU64::from_ptr(self.ring.as_ptr().add(offset).cast()) }
    }

    /// Passes on the bytes of each record that the kernel has written since the last time, and gives their room back.
    /// They are read in place, as unwinding reads little of a stack. Only a record that continues at the start of
    /// the ring is copied, to `buffer`.
    pub(super) fn read(&self, buffer: &mut Vec<u8>, record: impl FnMut(&[u8])) {
        // The kernel writes the head after the records that end there, and reads the tail before it writes more.
        let head = self.position(abi::DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(abi::DATA_TAIL).load(Ordering::Relaxed);
        let length = usize::try_from(head.wrapping_sub(tail)).unwrap_or(0).min(self.data_bytes);
        let start = tail as usize & (self.data_bytes - 1);
        let first = length.min(self.data_bytes - start);
        // SAFETY: both parts are inside the mapping, which lives as long as the event, and the kernel does not write
        // between tail and head.
        let (rest, wrapped) = unsafe {
            let data = self.ring.as_ptr().add(self.page);
            (slice::from_raw_parts(data.add(start), first), slice::from_raw_parts(data, length - first))
        };
        each_record(rest, wrapped, buffer, record);
        self.position(abi::DATA_TAIL).store(head, Ordering::Release);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any longer.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.page + self.data_bytes) };
    }
}

/// Passes on each record of a ring, which continues with `wrapped` after `rest`. It ends at bytes that are no record.
fn each_record<'a>(mut rest: &'a [u8], mut wrapped: &'a [u8], buffer: &mut Vec<u8>, mut record: impl FnMut(&[u8])) {
    // Records are multiples of eight bytes, and so is the ring: a header never wraps.
    while let Some(size) = record_bytes(rest) {
        let (taken, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        if taken.len() == size {
            record(taken);
        } else {
            let Some((continued, after)) = wrapped.split_at_checked(size - taken.len()) else { break };
            buffer.clear();
            buffer.extend_from_slice(taken);
            buffer.extend_from_slice(continued);
            record(buffer);
            wrapped = after;
        }
        if rest.is_empty() {
            rest = mem::take(&mut wrapped);
        }
    }
}

/// Returns the size of the record that begins here; none if there is no whole header, or one that cannot be.
pub(super) fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let size = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    Some(usize::from(size)).filter(|size| *size >= 8)
}

/// Maps a file into memory.
pub(super) fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file is one that the program is running from, which linkers replace rather than write to; and it is
    // mapped already, so that whoever truncates it ends the program anyway.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
mod tests {
    use super::each_record;
    use proptest::prelude::*;

    fn read(rest: &[u8], wrapped: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        each_record(rest, wrapped, &mut Vec::new(), |record| found.push(record.to_vec()));
        found
    }

    proptest! {
        /// Whole records, wherever the ring ends among them.
        #[test]
        fn records_are_read_wherever_the_ring_wraps(
            words in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..6), 0..12),
            wrap in any::<prop::sample::Index>(),
        ) {
            let record = |words: &Vec<u64>| {
                let header = 9_u64 | (8 + 8 * words.len() as u64) << 48;
                [header].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()
            };
            let records: Vec<_> = words.iter().map(record).collect();
            let bytes = records.concat();
            let (rest, wrapped) = bytes.split_at(8 * wrap.index(bytes.len() / 8 + 1));
            // All records are in the first part, or it ends the ring.
            let (rest, wrapped) = if rest.is_empty() { (wrapped, rest) } else { (rest, wrapped) };
            prop_assert_eq!(read(rest, wrapped), records);
        }

        /// Bytes that no kernel writes, with sizes that are too small, too large, or odd.
        #[test]
        fn any_bytes_are_read_to_an_end(
            rest in prop::collection::vec(prop_oneof![4 => 0_u8..24, 1 => any::<u8>()], 0..600),
            wrapped in prop::collection::vec(prop_oneof![4 => 0_u8..24, 1 => any::<u8>()], 0..600),
        ) {
            let found = read(&rest, &wrapped);
            prop_assert!(found.iter().map(Vec::len).sum::<usize>() <= rest.len() + wrapped.len());
            prop_assert!(found.iter().all(|record| record.len() >= 8));
        }
    }
}

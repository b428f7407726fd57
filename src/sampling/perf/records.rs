//! The records that the kernel writes to an event's ring, decoded from bytes.

use super::sys::{REGISTER_COUNT, record_bytes};

/// A moment of `CLOCK_MONOTONIC_RAW`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawNanos(pub(super) u64);

/// A record of an event that was opened as [`Reports`](super::sys::Reports) says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PerfRecord<'a> {
    /// The stack of a thread.
    Sample { at: RawNanos, period: u64, registers: Registers, stack: &'a [u8] },
    /// The thread left a CPU: it waits, or, if preempted, could go on.
    Left { at: RawNanos, is_preempted: bool },
    /// The thread returned to a CPU.
    Returned { at: RawNanos },
    /// Records that did not fit into the ring.
    Lost(u64),
}

/// The registers of a thread, in the order of the kernel. They are zeros if it was not in user space.
pub(super) type Registers = [u64; REGISTER_COUNT];

const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const LEAVES: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`, as of Linux 4.17.
const PREEMPTED: u16 = 1 << 14;

impl<'a> PerfRecord<'a> {
    /// Decodes a record; none if it is incomplete, or of another kind.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.get(..record_bytes(bytes)?)?;
        let kind = u32::from_ne_bytes(bytes[..4].try_into().ok()?);
        let misc = u16::from_ne_bytes(bytes[4..6].try_into().ok()?);
        record(kind, misc, Fields(&bytes[8..]))
    }
}

fn record(kind: u32, misc: u16, mut body: Fields<'_>) -> Option<PerfRecord<'_>> {
    match kind {
        LOST => {
            let _event = body.word()?;
            Some(PerfRecord::Lost(body.word()?))
        }
        SWITCH => {
            let _thread = body.word()?;
            let at = RawNanos(body.word()?);
            Some(match misc & LEAVES {
                0 => PerfRecord::Returned { at },
                _ => PerfRecord::Left { at, is_preempted: misc & PREEMPTED != 0 },
            })
        }
        SAMPLE => {
            let _thread = body.word()?;
            let (at, period) = (RawNanos(body.word()?), body.word()?);
            let mut registers = Registers::default();
            let abi = body.word()?;
            if abi != 0 {
                for register in &mut registers {
                    *register = body.word()?;
                }
            }
            let room = usize::try_from(body.word()?).ok()?;
            let stack = body.take(room)?;
            // A stack of no bytes has no length.
            let copied = if room > 0 { usize::try_from(body.word()?).ok()? } else { 0 };
            Some(PerfRecord::Sample { at, period, registers, stack: stack.get(..copied)? })
        }
        _ => None,
    }
}

/// The bytes that have not been decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAVES, LOST, PREEMPTED, PerfRecord, RawNanos, Registers, SAMPLE, SWITCH};
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = 8 + 8 * words.len() as u16;
        let header = kind.to_ne_bytes().into_iter().chain(misc.to_ne_bytes()).chain(size.to_ne_bytes());
        header.chain(words.iter().flat_map(|word| word.to_ne_bytes())).collect()
    }

    #[test]
    fn records_are_decoded_and_others_skipped() {
        let registers: Registers = std::array::from_fn(|index| 100 + index as u64);
        let mut sample = vec![7, 11, 13, 2];
        sample.extend(registers);
        // Room for two words, of which one was copied.
        sample.extend([16, 0x0807_0605_0403_0201, 9, 8]);
        let records = [
            record(3, 0, &[1, 2, 3]),
            record(SAMPLE, 2, &sample),
            record(SWITCH, LEAVES, &[7, 20]),
            record(SWITCH, 0, &[7, 30]),
            record(SWITCH, LEAVES | PREEMPTED, &[7, 30]),
            record(LOST, 0, &[1, 5, 7, 31]),
            // In the kernel, without a stack.
            record(SAMPLE, 1, &[7, 40, 13, 0, 0]),
            record(SAMPLE, 2, &sample)[..30].to_vec(),
        ];
        let expected = [
            PerfRecord::Sample {
                at: RawNanos(11),
                period: 13,
                registers,
                stack: &0x0807_0605_0403_0201_u64.to_ne_bytes(),
            },
            PerfRecord::Left { at: RawNanos(20), is_preempted: false },
            PerfRecord::Returned { at: RawNanos(30) },
            PerfRecord::Left { at: RawNanos(30), is_preempted: true },
            PerfRecord::Lost(5),
            PerfRecord::Sample { at: RawNanos(40), period: 13, registers: Registers::default(), stack: &[] },
        ];
        assert_eq!(records.iter().filter_map(|bytes| PerfRecord::decode(bytes)).collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            PerfRecord::decode(&bytes);
        }

        /// Bytes that get past the header.
        #[test]
        fn any_words_are_decoded_or_refused(
            kind in prop::sample::select(vec![LOST, SAMPLE, SWITCH, 1]),
            misc in any::<u16>(),
            words in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..64], 0..40),
        ) {
            if let Some(PerfRecord::Sample { stack, .. }) = PerfRecord::decode(&record(kind, misc, &words)) {
                prop_assert!(stack.len() <= 8 * words.len());
            }
        }
    }
}

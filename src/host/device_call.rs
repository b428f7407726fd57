//! Calls of a device's API, in the lanes beside the spans. Whoever watches the API tells of them here.

use super::{
    Callsite, Host, Origin,
    lane::{Lane, Resolve, Sources},
    record::Record,
};
use crate::{clock::Ticks, trace::MemoryChange};
use std::sync::atomic::Ordering;

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCall {
    pub(crate) start: Ticks,
    length: u32,
    /// What the device's records of what came of it have, too.
    pub(crate) correlation: u32,
    pub(crate) function: u16,
    pub(crate) result: u16,
    pub(crate) api: u8,
}

impl DeviceCall {
    /// Ticks that its length is counted in: some nanoseconds, so that a call may take twenty seconds.
    const UNIT: u64 = 16;

    pub(crate) fn end(&self) -> Ticks {
        Ticks(self.start.0 + u64::from(self.length) * Self::UNIT)
    }
}

/// What a call did to a device's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCall {
    pub(crate) at: Ticks,
    pub(crate) address: u64,
    /// The bytes, and above them the context and the flags.
    packed: u64,
}

/// What [`MemoryCall`] packs into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFacts {
    /// 0 for memory that was freed.
    pub(crate) bytes: u64,
    pub(crate) context: u16,
    pub(crate) change: MemoryChange,
    pub(crate) pooled: bool,
}

impl MemoryCall {
    const FREE: u64 = 1 << 63;
    const POOLED: u64 = 1 << 62;
    const CONTEXT: u64 = (1 << 14) - 1;
    const BYTES: u64 = (1 << 48) - 1;

    pub(crate) fn new(at: Ticks, address: u64, facts: MemoryFacts) -> Self {
        let MemoryFacts { bytes, context, change, pooled } = facts;
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(change == MemoryChange::Free, Self::FREE) | flag(pooled, Self::POOLED);
        let context = (u64::from(context) & Self::CONTEXT) << Self::BYTES.count_ones();
        Self { at, address, packed: flags | context | bytes.min(Self::BYTES) }
    }

    pub(crate) fn facts(&self) -> MemoryFacts {
        let free = self.packed & Self::FREE != 0;
        MemoryFacts {
            bytes: self.packed & Self::BYTES,
            context: (self.packed >> Self::BYTES.count_ones() & Self::CONTEXT) as u16,
            change: if free { MemoryChange::Free } else { MemoryChange::Allocate },
            pooled: self.packed & Self::POOLED != 0,
        }
    }
}

impl Host {
    /// A thread enters a call. Returns when, if that is to be recorded; then the thread has joined the window, to which the call
    /// belongs even if it returns after the window has closed.
    #[inline]
    pub(crate) fn enter_call(&self) -> Option<Ticks> {
        let control = self.control();
        if !control.is_recording() {
            return None;
        }
        let mut joined = false;
        self.with_lane_or_count(control, |lane| joined = lane.join_window(control, &self.sources()));
        joined.then(|| self.clock.now())
    }

    /// A thread leaves a call that [`enter_call`](Self::enter_call) returned a moment for.
    #[inline]
    pub(crate) fn exit_call(&self, start: Ticks, correlation: u32, api: u8, function: u32, result: u32) {
        let units = self.clock.now().0.saturating_sub(start.0) / DeviceCall::UNIT;
        self.write_call(Record::Call(DeviceCall {
            start,
            length: u32::try_from(units).unwrap_or(u32::MAX),
            correlation,
            function: u16::try_from(function).unwrap_or(u16::MAX),
            result: u16::try_from(result).unwrap_or(u16::MAX),
            api,
        }));
    }

    /// As [`exit_call`](Self::exit_call), for one that changed memory.
    #[inline]
    pub(crate) fn write_memory(&self, call: MemoryCall) {
        self.write_call(Record::Memory(call));
    }

    /// From now on, the thread's calls are made on behalf of another, or again on its own.
    #[inline]
    pub(super) fn adopt(&self, origin: Option<Origin>) {
        let control = self.control();
        if !control.is_off() {
            self.with_lane_or_count(control, |lane| lane.adopt(control, origin, &self.sources()));
        }
    }

    #[inline]
    fn write_call(&self, record: Record) {
        if !self.with_lane(|lane: &mut Lane| lane.write_or_count(record)) {
            self.unreachable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a lane needs to write about spans, where there is no subscriber at hand.
    fn sources(&self) -> Sources<'_, impl Resolve + '_> {
        let callsite = |id| -> Option<Callsite> { self.resolve(id) };
        Sources { clock: &self.clock, live: &self.live, collected: &self.collected, control: &self.control, callsite }
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryCall, MemoryFacts};
    use crate::{clock::Ticks, trace::MemoryChange};

    #[test]
    fn what_is_packed_is_unpacked() {
        for change in [MemoryChange::Allocate, MemoryChange::Free] {
            for (bytes, context, pooled) in [(0, 1, false), (4096, 3, true), ((1 << 48) - 1, (1 << 14) - 1, true)] {
                let facts = MemoryFacts { bytes, context, change, pooled };
                assert_eq!(MemoryCall::new(Ticks(7), 0x7f00, facts).facts(), facts);
            }
        }
    }
}

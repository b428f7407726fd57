//! Records of the thread's CPU time at the enters and exits of spans.
//!
//! A reading that does not fit is dropped and counted. Its span is kept, without CPU time.

use super::{Lane, Resolve, Sources};
use crate::{
    host::Control,
    recording::{Record, RegistryId},
};

impl Lane {
    /// Writes the thread's CPU time at the enter of the span that was written last. Where it cannot be read, `nanos` is
    /// `None`, and nothing is written.
    pub(in super::super) fn note_cpu_start(&mut self, nanos: Option<u64>) {
        if let Some(nanos) = nanos {
            self.write_cpu(Record::CpuStart { nanos });
        }
    }

    /// Writes the thread's CPU time at the exit of a span, which comes next, if the span is recorded.
    pub(in super::super) fn note_cpu_end(
        &mut self,
        control: Control,
        id: RegistryId,
        nanos: Option<u64>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        let Some(nanos) = nanos else { return };
        if self.follow(control, sources) && self.stack.is_recorded(id) {
            self.write_cpu(Record::CpuEnd { nanos, id });
        }
    }

    fn write_cpu(&mut self, record: Record) {
        if self.has_room(1) {
            self.write(record);
        } else {
            self.count_drop();
        }
    }
}

//! The kinds of activity that can be recorded.

/// A kind of activity that can be recorded: see [`ProfilerBuilder::activities`](crate::ProfilerBuilder::activities).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// Spans and events on the host. Without them, GPU activity cannot be attributed.
    Host,
    /// Kernels, the calls that launch and load them, and the calls in which the host waits for the GPU or allocates
    /// without a pool.
    Kernels,
    /// Memory copies and fills, and the calls that cause them.
    Copies,
    /// Allocations and frees of GPU memory: PyTorch's `profile_memory`. Each costs about 0.3 µs.
    Memory,
    /// Waits of the host and of streams, as seen by the GPU. Frameworks that order their streams with events make many.
    Sync,
    /// All calls to CUDA's driver and runtime APIs, not only those above. There are many: sixteen for each of Candle's
    /// kernels.
    ApiCalls,
    /// Allocations and frees on the heap, by span: PyTorch's `profile_memory` for the CPU. It needs
    /// [`Allocator`](crate::Allocator) as the program's global allocator.
    Heap,
    /// Call stacks of all threads, sampled while they run: see [`samples`](crate::ProfilerBuilder::samples).
    Samples,
    /// Hardware counters of NVIDIA GPUs, such as the use of their tensor cores and memory: see
    /// [`counters`](crate::ProfilerBuilder::counters).
    Counters,
    /// The vital signs of the process, the machine and its GPUs, in recorded steps and all others: see
    /// [`vitals`](crate::ProfilerBuilder::vitals).
    Vitals,
}

/// A set of activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activities(u16);

impl Activities {
    /// The activities that are recorded by default.
    pub(crate) const DEFAULT: [Activity; 3] = [Activity::Host, Activity::Kernels, Activity::Copies];

    /// Whether the set contains this activity.
    pub(crate) fn has(self, activity: Activity) -> bool {
        self.0 & 1 << activity as u8 != 0
    }

    /// Returns the activities in the set.
    pub(crate) fn iter(self) -> impl Iterator<Item = Activity> {
        const ALL: [Activity; 10] = [
            Activity::Host,
            Activity::Kernels,
            Activity::Copies,
            Activity::Memory,
            Activity::Sync,
            Activity::ApiCalls,
            Activity::Heap,
            Activity::Samples,
            Activity::Counters,
            Activity::Vitals,
        ];
        ALL.into_iter().filter(move |&activity| self.has(activity))
    }

    /// Whether any GPU activity is requested.
    pub(crate) fn any_gpu(self) -> bool {
        let host = [Activity::Host, Activity::Heap, Activity::Samples, Activity::Vitals];
        self.iter().any(|activity| !host.contains(&activity))
    }
}

impl FromIterator<Activity> for Activities {
    fn from_iter<I: IntoIterator<Item = Activity>>(activities: I) -> Self {
        Self(activities.into_iter().fold(0, |bits, activity| bits | 1 << activity as u8))
    }
}

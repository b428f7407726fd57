//! The stats that XProf knows.

macro_rules! stats {
    ($($stat:ident: $name:literal,)*) => {
        /// A stat that XProf knows by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Stat {
            $($stat,)*
        }

        impl Stat {
            /// The names of all stats, in the order of the variants.
            pub(super) const NAMES: &[&str] = &[$($name,)*];
        }
    };
}

stats! {
    CorrelationId: "correlation_id",
    KernelDetails: "kernel_details",
    TfOp: "tf_op",
    HloOp: "hlo_op",
    HloModule: "hlo_module",
    ProgramId: "program_id",
    GroupId: "group_id",
    Flops: "flops",
    BytesAccessed: "bytes_accessed",
    Shape: "shape",
    MemcpyDetails: "memcpy_details",
    MemsetDetails: "memset_details",
    Root: "_r",
    StepNum: "step_num",
    StageId: "_ipl_stage_id",
    StageName: "_ipl_stage_name",
    StageCategory: "_ipl_stage_cat",
    AllocatorName: "allocator_name",
    BytesAllocated: "bytes_allocated",
    BytesAvailable: "bytes_available",
    PeakBytesInUse: "peak_bytes_in_use",
    RequestedBytes: "requested_bytes",
    AllocationBytes: "allocation_bytes",
    Address: "addr",
    RegionType: "region_type",
    ClockRate: "clock_rate",
    CoreCount: "core_count",
    MemoryBandwidth: "memory_bandwidth",
    MemorySize: "memory_size",
    ComputeCapMajor: "compute_cap_major",
    ComputeCapMinor: "compute_cap_minor",
    DeviceVendor: "device_vendor",
    DeviceName: "gpu_device_name",
    PeakTeraflops: "peak_teraflops_per_second",
    ProfileStart: "profile_start_time",
    ProfileStop: "profile_stop_time",
    CudaGraph: "graph",
    CudaGraphNode: "graph node",
}

impl Stat {
    /// Returns the number of the stat's name, which is the same in every plane.
    pub(super) fn id(self) -> u64 {
        self as u64 + 1
    }
}

/// What XProf knows stats as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stat {
    CorrelationId,
    KernelDetails,
    TfOp,
    HloOp,
    HloModule,
    ProgramId,
    GroupId,
    Flops,
    BytesAccessed,
    Shape,
    MemcpyDetails,
    MemsetDetails,
    Root,
    StepNum,
    StageId,
    StageName,
    StageCategory,
    AllocatorName,
    BytesAllocated,
    BytesAvailable,
    PeakBytesInUse,
    RequestedBytes,
    AllocationBytes,
    Address,
    RegionType,
    ClockRate,
    CoreCount,
    MemoryBandwidth,
    MemorySize,
    ComputeCapMajor,
    ComputeCapMinor,
    DeviceVendor,
    DeviceName,
    PeakTeraflops,
    ProfileStart,
    ProfileStop,
    CudaGraph,
    CudaGraphNode,
}

impl Stat {
    /// In the order of the variants.
    pub(super) const NAMES: [&str; 38] = [
        "correlation_id",
        "kernel_details",
        "tf_op",
        "hlo_op",
        "hlo_module",
        "program_id",
        "group_id",
        "flops",
        "bytes_accessed",
        "shape",
        "memcpy_details",
        "memset_details",
        "_r",
        "step_num",
        "_ipl_stage_id",
        "_ipl_stage_name",
        "_ipl_stage_cat",
        "allocator_name",
        "bytes_allocated",
        "bytes_available",
        "peak_bytes_in_use",
        "requested_bytes",
        "allocation_bytes",
        "addr",
        "region_type",
        "clock_rate",
        "core_count",
        "memory_bandwidth",
        "memory_size",
        "compute_cap_major",
        "compute_cap_minor",
        "device_vendor",
        "gpu_device_name",
        "peak_teraflops_per_second",
        "profile_start_time",
        "profile_stop_time",
        "graph",
        "graph node",
    ];

    /// The number of its name in every plane.
    pub(super) fn id(self) -> u64 {
        self as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn names_are_in_the_order_of_the_variants() {
        let name = |stat: Stat| Stat::NAMES[stat.id() as usize - 1];
        assert_eq!(name(Stat::CorrelationId), "correlation_id");
        assert_eq!(name(Stat::Root), "_r");
        assert_eq!(name(Stat::Address), "addr");
        assert_eq!(name(Stat::ProfileStop), "profile_stop_time");
        assert_eq!(name(Stat::CudaGraphNode), "graph node");
    }
}

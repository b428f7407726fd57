//! Messages of Perfetto's trace format about GPUs and their kernels, with the fields that are set here.

use prost::{Enumeration, Message};

#[derive(Message)]
pub(super) struct InternedGraphicsContext {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(int32, optional, tag = "2")]
    pub(super) pid: Option<i32>,
    #[prost(enumeration = "Api", optional, tag = "3")]
    pub(super) api: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Api {
    Undefined = 0,
    Cuda = 4,
}

/// `InternedGpuRenderStageSpecification`: the name of a queue or of a stage.
#[derive(Message)]
pub(super) struct InternedGpuSpecification {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(enumeration = "StageCategory", optional, tag = "4")]
    pub(super) category: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum StageCategory {
    Other = 0,
    Compute = 2,
}

#[derive(Message)]
pub(super) struct InternedComputeKernel {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) demangled_name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) arch: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) args: Vec<ComputeArg>,
}

/// `ExtraComputeArg`. One of the values is set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ComputeArg {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) uint_value: Option<u64>,
    #[prost(double, optional, tag = "5")]
    pub(super) double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub(super) string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GpuRenderStageEvent {
    #[prost(uint64, optional, tag = "1")]
    pub(super) event_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) duration: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) context: Option<u64>,
    #[prost(int32, optional, tag = "11")]
    pub(super) gpu_id: Option<i32>,
    #[prost(uint64, optional, tag = "13")]
    pub(super) hw_queue_iid: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub(super) stage_iid: Option<u64>,
    #[prost(uint64, optional, tag = "19")]
    pub(super) kernel_iid: Option<u64>,
    #[prost(message, optional, tag = "21")]
    pub(super) launch: Option<ComputeKernelLaunch>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ComputeKernelLaunch {
    #[prost(message, optional, tag = "1")]
    pub(super) grid_size: Option<Dim3>,
    #[prost(message, optional, tag = "2")]
    pub(super) workgroup_size: Option<Dim3>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Dim3 {
    #[prost(uint32, optional, tag = "1")]
    pub(super) x: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) y: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) z: Option<u32>,
}

#[derive(Message)]
pub(super) struct GpuInfo {
    #[prost(message, repeated, tag = "1")]
    pub(super) gpus: Vec<GpuDescription>,
}

/// `GpuInfo.Gpu`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GpuDescription {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) vendor: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) model: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) architecture: Option<String>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(super) uuid: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "6")]
    pub(super) extra_info: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, optional, tag = "1")]
    pub(super) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) value: Option<String>,
}

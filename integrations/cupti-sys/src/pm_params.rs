//! The parameter structs of CUPTI's profiler and PM sampling functions.
//!
//! Each begins with its size, by which a release knows the fields that the caller has. NVIDIA counts the size up to the
//! end of the last field, without padding.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

/// The C name of a struct, the names, offsets and types of its fields, and its size.
#[allow(unreachable_pub, reason = "tests see it as a type of `Cupti::PARAMS`")]
pub type ParamsLayout = (&'static str, &'static [(&'static str, usize, &'static str)], usize);

macro_rules! params {
    ($($name:ident, $c_name:literal, $size:literal {
        $($offset:literal $field:ident $(= $c_field:literal)?: $type:ty = $default:expr,)*
    })*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub(crate) struct $name {
                pub(crate) struct_size: usize,
                pub(crate) private: *mut c_void,
                $(pub(crate) $field: $type,)*
            }

            $(const _: () = assert!(::std::mem::offset_of!($name, $field) == $offset);)*
            const _: () = assert!($size <= size_of::<$name>() && size_of::<$name>() < $size + 8);

            impl Default for $name {
                fn default() -> Self {
                    Self { struct_size: $size, private: ptr::null_mut(), $($field: $default,)* }
                }
            }
        )*

        /// The layouts of all structs, for checks against NVIDIA's headers.
        pub(crate) const LAYOUTS: &[ParamsLayout] =
            &[$(($c_name, &[$((params!(@name $field $($c_field)?), $offset, stringify!($type))),*], $size)),*];
    };
    (@name $field:ident $c_field:literal) => { $c_field };
    (@name $field:ident) => { stringify!($field) };
}

params! {
    ProfilerInitialize, "CUpti_Profiler_Initialize_Params", 16 {}

    ProfilerDeInitialize, "CUpti_Profiler_DeInitialize_Params", 16 {}

    GetChipName, "CUpti_Device_GetChipName_Params", 32 {
        16 device = "deviceIndex": usize = 0,
        24 chip_name = "pChipName": *const c_char = ptr::null(),
    }

    DeviceSupported, "CUpti_Profiler_DeviceSupported_Params", 52 {
        16 device = "cuDevice": i32 = 0,
        20 supported = "isSupported": u32 = 0,
        24 architecture = "architecture": u32 = 0,
        28 sli = "sli": u32 = 0,
        32 vgpu = "vGpu": u32 = 0,
        36 confidential = "confidentialCompute": u32 = 0,
        40 mining = "cmp": u32 = 0,
        44 wsl = "wsl": u32 = 0,
        48 api = "api": u32 = 0,
    }

    CounterAvailability, "CUpti_PmSampling_GetCounterAvailability_Params", 40 {
        16 device = "deviceIndex": usize = 0,
        24 image_size = "counterAvailabilityImageSize": usize = 0,
        32 image = "pCounterAvailabilityImage": *mut u8 = ptr::null_mut(),
    }

    HostInitialize, "CUpti_Profiler_Host_Initialize_Params", 48 {
        16 profiler_type = "profilerType": u32 = 0,
        24 chip_name = "pChipName": *const c_char = ptr::null(),
        32 availability = "pCounterAvailabilityImage": *const u8 = ptr::null(),
        40 host = "pHostObject": *mut c_void = ptr::null_mut(),
    }

    HostDeinitialize, "CUpti_Profiler_Host_Deinitialize_Params", 24 {
        16 host = "pHostObject": *mut c_void = ptr::null_mut(),
    }

    ConfigAddMetrics, "CUpti_Profiler_Host_ConfigAddMetrics_Params", 40 {
        16 host = "pHostObject": *mut c_void = ptr::null_mut(),
        24 metrics = "ppMetricNames": *const *const c_char = ptr::null(),
        32 metric_count = "numMetrics": usize = 0,
    }

    GetConfigImageSize, "CUpti_Profiler_Host_GetConfigImageSize_Params", 32 {
        16 host = "pHostObject": *mut c_void = ptr::null_mut(),
        24 size = "configImageSize": usize = 0,
    }

    GetConfigImage, "CUpti_Profiler_Host_GetConfigImage_Params", 40 {
        16 host = "pHostObject": *mut c_void = ptr::null_mut(),
        24 size = "configImageSize": usize = 0,
        32 image = "pConfigImage": *mut u8 = ptr::null_mut(),
    }

    GetNumOfPasses, "CUpti_Profiler_Host_GetNumOfPasses_Params", 40 {
        16 size = "configImageSize": usize = 0,
        24 image = "pConfigImage": *mut u8 = ptr::null_mut(),
        32 passes = "numOfPasses": usize = 0,
    }

    EvaluateToGpuValues, "CUpti_Profiler_Host_EvaluateToGpuValues_Params", 72 {
        16 host = "pHostObject": *mut c_void = ptr::null_mut(),
        24 image = "pCounterDataImage": *const u8 = ptr::null(),
        32 image_size = "counterDataImageSize": usize = 0,
        40 range = "rangeIndex": usize = 0,
        48 metrics = "ppMetricNames": *const *const c_char = ptr::null(),
        56 metric_count = "numMetrics": usize = 0,
        64 values = "pMetricValues": *mut f64 = ptr::null_mut(),
    }

    Enable, "CUpti_PmSampling_Enable_Params", 32 {
        16 device = "deviceIndex": usize = 0,
        24 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
    }

    Disable, "CUpti_PmSampling_Disable_Params", 24 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
    }

    Start, "CUpti_PmSampling_Start_Params", 24 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
    }

    Stop, "CUpti_PmSampling_Stop_Params", 24 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
    }

    SetConfig, "CUpti_PmSampling_SetConfig_Params", 64 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
        24 size = "configSize": usize = 0,
        32 config = "pConfig": *const u8 = ptr::null(),
        40 buffer_size = "hardwareBufferSize": usize = 0,
        48 interval = "samplingInterval": u64 = 0,
        56 trigger = "triggerMode": u32 = 0,
        60 append = "hwBufferAppendMode": u32 = 0,
    }

    DecodeData, "CUpti_PmSampling_DecodeData_Params", 45 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
        24 image = "pCounterDataImage": *mut u8 = ptr::null_mut(),
        32 image_size = "counterDataImageSize": usize = 0,
        40 stop_reason = "decodeStopReason": u32 = 0,
        44 overflow = "overflow": u8 = 0,
    }

    GetCounterDataSize, "CUpti_PmSampling_GetCounterDataSize_Params", 56 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
        24 metrics = "pMetricNames": *const *const c_char = ptr::null(),
        32 metric_count = "numMetrics": usize = 0,
        40 samples = "maxSamples": u32 = 0,
        48 size = "counterDataSize": usize = 0,
    }

    CounterDataImageInitialize, "CUpti_PmSampling_CounterDataImage_Initialize_Params", 40 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
        24 size = "counterDataSize": usize = 0,
        32 image = "pCounterData": *mut u8 = ptr::null_mut(),
    }

    GetCounterDataInfo, "CUpti_PmSampling_GetCounterDataInfo_Params", 56 {
        16 image = "pCounterDataImage": *const u8 = ptr::null(),
        24 image_size = "counterDataImageSize": usize = 0,
        32 total = "numTotalSamples": usize = 0,
        40 populated = "numPopulatedSamples": usize = 0,
        48 completed = "numCompletedSamples": usize = 0,
    }

    GetSampleInfo, "CUpti_PmSampling_CounterData_GetSampleInfo_Params", 64 {
        16 object = "pPmSamplingObject": *mut c_void = ptr::null_mut(),
        24 image = "pCounterDataImage": *const u8 = ptr::null(),
        32 image_size = "counterDataImageSize": usize = 0,
        40 sample = "sampleIndex": usize = 0,
        48 start = "startTimestamp": u64 = 0,
        56 end = "endTimestamp": u64 = 0,
    }
}

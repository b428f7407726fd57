use crate::{
    callback::{BufferCompleted, BufferRequested, Callback},
    pm_params as pm,
};
use libloading::os::unix::Library;
use std::ffi::{c_char, c_void};

macro_rules! functions {
    ($($field:ident = $name:literal: ($($argument:ty),*);)*) => {
        /// Pointers to CUPTI's functions; `None` for one that the loaded release does not have.
        pub(crate) struct Functions {
            $(pub(crate) $field: Option<unsafe extern "C" fn($($argument),*) -> u32>,)*
        }

        impl Functions {
            /// C names and parameter types, for checks against real headers and libraries.
            pub(crate) const SIGNATURES: &'static [(&'static str, &'static [&'static str])] =
                &[$(($name, &[$(stringify!($argument)),*])),*];

            /// Looks up every function by its C name.
            pub(crate) fn of(library: &Library) -> Self {
                // SAFETY: the types are those of NVIDIA's header, and the same in all releases from 12.0 to 13.4.
                Self { $($field: unsafe { library.get(concat!($name, "\0").as_bytes()) }.ok().map(|symbol| *symbol),)* }
            }
        }
    };
}

functions! {
    get_version = "cuptiGetVersion": (*mut u32);
    get_timestamp = "cuptiGetTimestamp": (*mut u64);
    get_result_string = "cuptiGetResultString": (u32, *mut *const c_char);
    get_callback_name = "cuptiGetCallbackName": (u32, u32, *mut *const c_char);
    get_device_id = "cuptiGetDeviceId": (*mut c_void, *mut u32);
    set_thread_id_type = "cuptiSetThreadIdType": (u32);
    subscribe = "cuptiSubscribe": (*mut *mut c_void, Callback, *mut c_void);
    unsubscribe = "cuptiUnsubscribe": (*mut c_void);
    enable_callback = "cuptiEnableCallback": (u32, *mut c_void, u32, u32);
    enable_domain = "cuptiEnableDomain": (u32, *mut c_void, u32);
    activity_register_callbacks = "cuptiActivityRegisterCallbacks": (BufferRequested, BufferCompleted);
    activity_enable = "cuptiActivityEnable": (u32);
    activity_disable = "cuptiActivityDisable": (u32);
    activity_enable_driver_api = "cuptiActivityEnableDriverApi": (u32, u8);
    activity_enable_runtime_api = "cuptiActivityEnableRuntimeApi": (u32, u8);
    activity_enable_latency_timestamps = "cuptiActivityEnableLatencyTimestamps": (u8);
    activity_set_attribute = "cuptiActivitySetAttribute": (u32, *mut usize, *mut c_void);
    activity_flush_all = "cuptiActivityFlushAll": (u32);
    activity_get_next_record = "cuptiActivityGetNextRecord": (*mut u8, usize, *mut *mut u8);
    activity_get_num_dropped_records = "cuptiActivityGetNumDroppedRecords": (*mut c_void, u32, *mut usize);
    finalize = "cuptiFinalize": ();
    profiler_initialize = "cuptiProfilerInitialize": (*mut pm::ProfilerInitialize);
    profiler_deinitialize = "cuptiProfilerDeInitialize": (*mut pm::ProfilerDeInitialize);
    profiler_device_supported = "cuptiProfilerDeviceSupported": (*mut pm::DeviceSupported);
    device_get_chip_name = "cuptiDeviceGetChipName": (*mut pm::GetChipName);
    host_initialize = "cuptiProfilerHostInitialize": (*mut pm::HostInitialize);
    host_deinitialize = "cuptiProfilerHostDeinitialize": (*mut pm::HostDeinitialize);
    host_config_add_metrics = "cuptiProfilerHostConfigAddMetrics": (*mut pm::ConfigAddMetrics);
    host_get_config_image_size = "cuptiProfilerHostGetConfigImageSize": (*mut pm::GetConfigImageSize);
    host_get_config_image = "cuptiProfilerHostGetConfigImage": (*mut pm::GetConfigImage);
    host_get_num_of_passes = "cuptiProfilerHostGetNumOfPasses": (*mut pm::GetNumOfPasses);
    host_evaluate = "cuptiProfilerHostEvaluateToGpuValues": (*mut pm::EvaluateToGpuValues);
    pm_get_counter_availability = "cuptiPmSamplingGetCounterAvailability": (*mut pm::CounterAvailability);
    pm_enable = "cuptiPmSamplingEnable": (*mut pm::Enable);
    pm_disable = "cuptiPmSamplingDisable": (*mut pm::Disable);
    pm_start = "cuptiPmSamplingStart": (*mut pm::Start);
    pm_stop = "cuptiPmSamplingStop": (*mut pm::Stop);
    pm_set_config = "cuptiPmSamplingSetConfig": (*mut pm::SetConfig);
    pm_decode_data = "cuptiPmSamplingDecodeData": (*mut pm::DecodeData);
    pm_get_counter_data_size = "cuptiPmSamplingGetCounterDataSize": (*mut pm::GetCounterDataSize);
    pm_image_initialize = "cuptiPmSamplingCounterDataImageInitialize": (*mut pm::CounterDataImageInitialize);
    pm_get_counter_data_info = "cuptiPmSamplingGetCounterDataInfo": (*mut pm::GetCounterDataInfo);
    pm_get_sample_info = "cuptiPmSamplingCounterDataGetSampleInfo": (*mut pm::GetSampleInfo);
}

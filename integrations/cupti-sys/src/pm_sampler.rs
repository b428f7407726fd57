//! Sampling the hardware counters of a device at a fixed interval.

use crate::{
    constants::result,
    error::Error,
    pm_config::{HostObject, PmConfig, pointers},
    pm_params as pm,
};
use std::{
    ffi::{CString, c_void},
    sync::Arc,
};

/// Samples the metrics of a [`PmConfig`] on its device, while [started](Self::start). A device can have one sampler, in
/// all processes.
#[derive(Debug)]
pub struct PmSampler {
    host: Arc<HostObject>,
    object: *mut c_void,
    metrics: Vec<CString>,
    /// Takes decoded samples, and is then overwritten with the empty one.
    image: Vec<u8>,
    empty: Vec<u8>,
}

// SAFETY: CUPTI accepts the object from any thread.
unsafe impl Send for PmSampler {}

/// The result of [`PmSampler::decode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decoded {
    /// The number of samples.
    pub samples: usize,
    /// Whether the image was full, so that further samples that were pending are lost.
    pub is_full: bool,
    /// Whether the hardware's buffer has overflowed. Everything in it is lost, and the sampler cannot be used further.
    pub has_overflowed: bool,
}

impl PmSampler {
    /// Sets up the device's counters, which takes 70 ms or more. Samples are `interval` nanoseconds apart, the
    /// hardware writes them to a buffer of so many bytes, and `samples` of them can be decoded at once.
    ///
    /// # Errors
    ///
    /// If a call fails; with the code [`HARDWARE_BUSY`](result::HARDWARE_BUSY) if another process samples the device,
    /// and [`INSUFFICIENT_PRIVILEGES`](result::INSUFFICIENT_PRIVILEGES) if only the administrator may.
    #[doc(alias = "cuptiPmSamplingEnable")]
    #[doc(alias = "cuptiPmSamplingSetConfig")]
    pub fn new(config: &PmConfig, interval: u64, buffer_size: usize, samples: u32) -> Result<Self, Error> {
        const TIME_INTERVAL: u32 = 1;
        const KEEP_OLDEST: u32 = 0;
        let cupti = config.host.cupti;
        let mut params = pm::Enable { device: config.device as usize, ..Default::default() };
        // SAFETY: the struct is NVIDIA's.
        cupti.call("cuptiPmSamplingEnable", cupti.functions.pm_enable, |f| unsafe { f(&mut params) })?;
        let object = params.object;
        let (host, metrics) = (Arc::clone(&config.host), config.metrics.clone());
        // From here on, an error disables it again.
        let mut sampler = Self { host, object, metrics, image: Vec::new(), empty: Vec::new() };
        let mut params = pm::SetConfig {
            object,
            size: config.image.len(),
            config: config.image.as_ptr(),
            buffer_size,
            interval,
            trigger: TIME_INTERVAL,
            append: KEEP_OLDEST,
            ..Default::default()
        };
        // SAFETY: the image lives until the call is over.
        cupti.call("cuptiPmSamplingSetConfig", cupti.functions.pm_set_config, |f| unsafe { f(&mut params) })?;

        let names = pointers(&sampler.metrics);
        let (metrics, metric_count) = (names.as_ptr(), names.len());
        let mut params = pm::GetCounterDataSize { object, metrics, metric_count, samples, ..Default::default() };
        let function = cupti.functions.pm_get_counter_data_size;
        // SAFETY: the names live until the call is over.
        cupti.call("cuptiPmSamplingGetCounterDataSize", function, |f| unsafe { f(&mut params) })?;
        sampler.empty = vec![0; params.size];
        let (size, image) = (sampler.empty.len(), sampler.empty.as_mut_ptr());
        let mut params = pm::CounterDataImageInitialize { object, size, image, ..Default::default() };
        let function = cupti.functions.pm_image_initialize;
        // SAFETY: the image has the size that CUPTI asked for.
        cupti.call("cuptiPmSamplingCounterDataImageInitialize", function, |f| unsafe { f(&mut params) })?;
        sampler.image.clone_from(&sampler.empty);
        Ok(sampler)
    }

    /// Starts sampling, within a millisecond.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiPmSamplingStart")]
    pub fn start(&mut self) -> Result<(), Error> {
        let mut params = pm::Start { object: self.object, ..Default::default() };
        let cupti = self.host.cupti;
        // SAFETY: the object was made by `cuptiPmSamplingEnable`.
        cupti.call("cuptiPmSamplingStart", cupti.functions.pm_start, |f| unsafe { f(&mut params) })
    }

    /// Stops sampling. Samples so far can still be [decoded](Self::decode).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiPmSamplingStop")]
    pub fn stop(&mut self) -> Result<(), Error> {
        let mut params = pm::Stop { object: self.object, ..Default::default() };
        let cupti = self.host.cupti;
        // SAFETY: the object was made by `cuptiPmSamplingEnable`.
        cupti.call("cuptiPmSamplingStop", cupti.functions.pm_stop, |f| unsafe { f(&mut params) })
    }

    /// Decodes the pending samples, and passes each to `take`: its start and end in nanoseconds, by the clock of all
    /// records, and the values in the order of the metrics. It takes about 60 µs a sample with six metrics.
    ///
    /// # Errors
    ///
    /// If a call fails, other than by an overflow.
    #[doc(alias = "cuptiPmSamplingDecodeData")]
    pub fn decode(&mut self, mut take: impl FnMut(u64, u64, &[f64])) -> Result<Decoded, Error> {
        const IMAGE_FULL: u32 = 1;
        let (cupti, object, image_size) = (self.host.cupti, self.object, self.image.len());
        let mut params = pm::DecodeData { object, image: self.image.as_mut_ptr(), image_size, ..Default::default() };
        // SAFETY: the image was initialised for this object.
        let decoded =
            cupti.call("cuptiPmSamplingDecodeData", cupti.functions.pm_decode_data, |f| unsafe { f(&mut params) });
        let has_overflowed =
            params.overflow != 0 || decoded.as_ref().err().and_then(Error::code) == Some(result::OUT_OF_MEMORY);
        if !has_overflowed {
            decoded?;
        }
        let image = self.image.as_ptr();
        let mut info = pm::GetCounterDataInfo { image, image_size, ..Default::default() };
        let function = cupti.functions.pm_get_counter_data_info;
        // SAFETY: it reads the image.
        cupti.call("cuptiPmSamplingGetCounterDataInfo", function, |f| unsafe { f(&mut info) })?;
        let names = pointers(&self.metrics);
        let mut values = vec![0.0; names.len()];
        for sample in 0..info.completed {
            let mut times = pm::GetSampleInfo { object, image, image_size, sample, ..Default::default() };
            let function = cupti.functions.pm_get_sample_info;
            // SAFETY: it reads the image.
            cupti.call("cuptiPmSamplingCounterDataGetSampleInfo", function, |f| unsafe { f(&mut times) })?;
            let mut params = pm::EvaluateToGpuValues {
                host: self.host.object,
                image,
                image_size,
                range: sample,
                metrics: names.as_ptr(),
                metric_count: names.len(),
                values: values.as_mut_ptr(),
                ..Default::default()
            };
            let function = cupti.functions.host_evaluate;
            // SAFETY: there is a value for each metric.
            cupti.call("cuptiProfilerHostEvaluateToGpuValues", function, |f| unsafe { f(&mut params) })?;
            take(times.start, times.end, &values);
        }
        if info.populated > 0 {
            self.image.copy_from_slice(&self.empty);
        }
        Ok(Decoded { samples: info.completed, is_full: params.stop_reason == IMAGE_FULL, has_overflowed })
    }
}

impl Drop for PmSampler {
    fn drop(&mut self) {
        let mut params = pm::Disable { object: self.object, ..Default::default() };
        let cupti = self.host.cupti;
        // SAFETY: the object was made by `cuptiPmSamplingEnable`, and nobody else has it. An error changes nothing.
        let _ = cupti.call("cuptiPmSamplingDisable", cupti.functions.pm_disable, |f| unsafe { f(&mut params) });
    }
}

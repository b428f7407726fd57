use crate::coverage::{AttachError, Coverage};
#[cfg(feature = "cubecl")]
use crate::origin_forwarder::OriginForwarder;
use burn::tensor::Device;
use kernspan::Profiler;
#[cfg(feature = "cubecl")]
use kernspan::framework::Watch;

/// A guard that attributes a device's work to spans until it is dropped; made by [`attach`].
///
/// ```
/// use burn::tensor::Device;
/// # let (layer, profiler) = kernspan::Profiler::builder().build()?;
/// # drop(layer);
/// let attached = kernspan_burn::attach(&profiler, &Device::flex())?;
/// assert!(!attached.coverage().kernels);
/// println!("{}", attached.coverage());
/// # drop(attached);
/// # profiler.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "work is attributed to spans only until this is dropped"]
#[derive(Debug)]
pub struct Attached {
    coverage: Coverage,
    /// Dropped before the forwarder that it reports to ends.
    #[cfg(feature = "cubecl")]
    watch: Option<Watch>,
    #[cfg(feature = "cubecl")]
    forwarder: Option<std::sync::Arc<OriginForwarder>>,
}

impl Attached {
    /// Returns which activity of the device can be recorded in addition to spans.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }
}

/// Attaches a profiler to a device: until the returned guard is dropped, the work that Burn does for this device on its
/// own threads belongs to the spans that requested it. Call it before other threads use the device.
///
/// Training does not wait for the device, except at the beginning and the end of a window. There the thread that ends
/// the step waits until the device has done that thread's work, so that the work is in the right window. Work that
/// other threads have requested before a window opens is [`Attribution::Before`](kernspan::trace::Attribution::Before),
/// and work that is still queued when the window closes is not in it.
///
/// If operations of several spans are fused into one kernel, the kernel belongs to the span of the first operation;
/// [`Work::spans`](kernspan::trace::Work::spans) returns all of them. Launches of Burn's autotuning are in spans
/// `autotune` on the device's thread, and belong to no other span. Work on another stream than the thread's own
/// (`Stream::enter`) belongs to the span that was entered on that stream last.
///
/// A copy of at most 1024 bytes to the device can be attributed to the wrong span of the same thread: if it is
/// requested at the very moment at which a kernel of an earlier span is launched, it is taken for an argument of that
/// kernel.
///
/// Burn has room for one observer of launches, which is this crate's while a window is open. If another library takes
/// its place in the meantime, kernels are unattributed.
///
/// Devices without threads of their own, such as the CPU, need no attribution; [`Attached::coverage`] returns what is
/// recorded.
///
/// # Errors
///
/// If another library observes Burn's launches, a profiler is already attached to the device, the device does not work,
/// or its work cannot be attributed: see [`AttachError`].
pub fn attach(profiler: &Profiler, device: &Device) -> Result<Attached, AttachError> {
    let device = device.clone().without_autodiff();
    #[cfg(feature = "cubecl")]
    if let Some(forwarder) = OriginForwarder::new(profiler, &device)? {
        let forwarder = std::sync::Arc::new(forwarder);
        let watch = profiler.hand_over().watch(std::sync::Arc::clone(&forwarder) as _);
        return Ok(Attached { coverage: forwarder.coverage(), watch: Some(watch), forwarder: Some(forwarder) });
    }
    #[cfg(not(feature = "cubecl"))]
    if format!("{:?}", device.as_dispatch()).starts_with("Cube") {
        let _ = profiler;
        return Err(AttachError::MissingFeature("cubecl"));
    }
    Ok(Attached {
        coverage: Coverage { operations: false, kernels: false },
        #[cfg(feature = "cubecl")]
        watch: None,
        #[cfg(feature = "cubecl")]
        forwarder: None,
    })
}

#[cfg(feature = "cubecl")]
impl Drop for Attached {
    fn drop(&mut self) {
        self.watch = None;
        if let Some(forwarder) = &self.forwarder {
            forwarder.end();
        }
    }
}

//! A profiler and a device.

#[cfg(feature = "cubecl")]
use crate::follower::Follower;
use burn::tensor::Device;
use kernspan::Profiler;
#[cfg(feature = "cubecl")]
use kernspan::framework::Watch;
use std::fmt;

/// Attributes what a device does for as long as it lives: made by [`attach`].
///
/// ```
/// use burn::tensor::Device;
/// # let (layer, profiler) = kernspan::Profiler::builder().build()?;
/// # drop(layer);
/// let attached = kernspan_burn::attach(&profiler, &Device::flex())?;
/// assert!(!attached.sight().kernels);
/// println!("{}", attached.sight());
/// # drop(attached);
/// # profiler.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "work is attributed only while it lives"]
#[derive(Debug)]
pub struct Attached {
    sight: Sight,
    /// Before what it tells.
    #[cfg(feature = "cubecl")]
    watch: Option<Watch>,
    #[cfg(feature = "cubecl")]
    follower: Option<std::sync::Arc<Follower>>,
}

impl Attached {
    /// What can be seen of the device besides the spans around what it is asked for.
    pub fn sight(&self) -> Sight {
        self.sight
    }
}

/// What can be seen of a device besides the spans around what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sight {
    /// Operations, with shapes and FLOPs: fusion tells of them.
    pub operations: bool,
    /// Kernels, copies and memory: CUPTI tells of them.
    pub kernels: bool,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.operations, self.kernels) {
            (true, true) => "spans, operations and GPU activity are recorded",
            (true, false) => "spans and operations are recorded; GPU activity is only seen on CUDA devices",
            (false, true) => {
                "spans and GPU activity are recorded; operations are only seen with Burn's feature `fusion`"
            }
            (false, false) => {
                "spans are recorded; operations are only seen on devices with fusion, GPU activity on CUDA devices"
            }
        })
    }
}

/// Why a device cannot be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Somebody else observes Burn's launches, and there is room for one observer.
    Observed,
    /// The device is attached to already.
    Attached,
    /// All threads share one stream, by Burn's `StreamPolicy::Single`, so that it cannot be told whose work is whose.
    OneStream,
    /// For this device, a feature of this crate is needed that is off.
    Feature(&'static str),
    /// The device does not work.
    Device(String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed => f.write_str("somebody else observes Burn's launches, and there is room for one observer"),
            Self::Attached => f.write_str("the device is attached to already"),
            Self::OneStream => {
                f.write_str("all threads share one of Burn's streams: it cannot be told whose work is whose")
            }
            Self::Feature(feature) => write!(f, "for this device, turn on the feature `{feature}` of kernspan-burn"),
            Self::Device(why) => write!(f, "the device does not work: {why}"),
        }
    }
}

impl std::error::Error for AttachError {}

/// From now on, what Burn does on threads of its own for this device belongs to the spans that asked for it, while the returned value
/// lives. Attach before other threads use the device.
///
/// Nothing waits for the device, but at a window's edges: there the thread that ends the step waits until the device has done what that thread
/// asked for, so that it is on its own side of the edge. Work of other threads that is on its way when a window opens is
/// [`Attribution::Before`](kernspan::trace::Attribution::Before), and what is on its way when one closes is not in it.
///
/// A kernel that operations of several spans were fused into belongs to the span of the first of them;
/// [`Work::spans`](kernspan::trace::Work::spans) has them all. Launches that Burn makes to find out which kernel is quickest are in spans `autotune` of the
/// device's thread, and belong to nobody else. What a thread does on another stream than its own (`Stream::enter`) is in the span that was entered
/// there, not in one that was entered before.
///
/// A copy of at most 1024 bytes to the device may be taken for what a kernel needs to know, and be in that kernel's span, if a thread asks for it in the
/// very moment in which a kernel of an earlier span of that thread is launched.
///
/// Burn has room for one observer of launches. While a window is open it is this crate's; who takes the place meanwhile leaves kernels unattributed.
///
/// On devices that have no threads of their own, as the CPU's are, there is nothing to do: [`Attached::sight`] says what is seen.
///
/// # Errors
///
/// If somebody else observes Burn's launches, the device is attached to already or does not work, or it cannot be known whose work is whose.
pub fn attach(profiler: &Profiler, device: &Device) -> Result<Attached, AttachError> {
    let device = device.clone().without_autodiff();
    #[cfg(feature = "cubecl")]
    if let Some(device) = Follower::of(profiler, &device)? {
        let follower = std::sync::Arc::new(device);
        let watch = profiler.hand_over().watch(std::sync::Arc::clone(&follower) as _);
        return Ok(Attached { sight: follower.sight(), watch: Some(watch), follower: Some(follower) });
    }
    #[cfg(not(feature = "cubecl"))]
    if format!("{:?}", device.as_dispatch()).starts_with("Cube") {
        let _ = profiler;
        return Err(AttachError::Feature("cubecl"));
    }
    Ok(Attached {
        sight: Sight { operations: false, kernels: false },
        #[cfg(feature = "cubecl")]
        watch: None,
        #[cfg(feature = "cubecl")]
        follower: None,
    })
}

#[cfg(feature = "cubecl")]
impl Drop for Attached {
    fn drop(&mut self) {
        self.watch = None;
        if let Some(follower) = &self.follower {
            follower.end();
        }
    }
}

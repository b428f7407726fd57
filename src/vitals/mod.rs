//! Vital signs: CPU, memory, disks, networks, temperatures, GPUs and energy over the whole run, recorded or not.
//!
//! A background thread reads them once a second, and ten times a second while a window is open. The report has
//! averages, peaks and the time above thresholds of the whole run, traces have their window as counters, and exporters
//! of steps have each reading in the first step that ends after it. The program's threads do nothing for it.
//!
//! [`analysis`](crate::analysis) has the values: [`VitalSigns`](crate::analysis::VitalSigns) at one moment,
//! [`RunVitals`](crate::analysis::RunVitals) over the run. `docs/vitals.md` says what is read, and from where.

#[cfg(not(all(feature = "vitals", target_os = "linux")))]
mod absent;
mod energy;
mod history;
#[cfg(all(feature = "vitals", target_os = "linux"))]
mod linux;
mod settings;
mod thread;
mod threshold;

#[cfg(not(all(feature = "vitals", target_os = "linux")))]
use self::absent::Sources;
#[cfg(all(feature = "vitals", target_os = "linux"))]
use self::linux::Sources;
pub(crate) use self::{history::VitalsHistory, thread::VitalsThread};
pub use self::{
    settings::Vitals,
    threshold::{Crossing, Threshold},
};

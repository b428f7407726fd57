//! The GPU part of a report: what it knows of the GPUs, and how busy they were in each step.

use super::{kernels::KernelTimes, memory_peaks::HighestPeaks, step_times::StepTimes, units};
use crate::{
    analysis::{Analysis, GpuUsage, SortedMap, StepGpu},
    trace::{Attributions, Device, DeviceId, Gpu},
};
use std::{fmt, time::Duration};

/// The GPU part of a report, over all windows.
#[derive(Debug, Default)]
pub(super) struct GpuSummary {
    /// Whether GPUs were recorded, in the last window that was to record them.
    pub(super) state: Gpu,
    pub(super) devices: Vec<Device>,
    pub(super) kernels: KernelTimes,
    /// Why GPUs have no MFU.
    pub(super) no_mfu: SortedMap<DeviceId, String>,
    pub(super) attributions: Attributions,
    pub(super) memory: HighestPeaks,
}

/// The usage of each GPU in each recorded step: how long it was busy, and what it waited for.
///
/// Steps that are cut by the edge of a window are left out, and so are GPUs that did nothing in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GpuSteps {
    steps: Vec<StepGpu>,
    devices: Vec<DeviceUsage>,
    no_mfu: SortedMap<DeviceId, String>,
}

/// The usage of a GPU over all recorded steps that are no [outliers](crate::analysis::StepTime#outliers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceUsage {
    /// The GPU.
    pub device: DeviceId,
    /// The number of steps.
    pub steps: u64,
    /// The sum of the usage in these steps.
    pub usage: GpuUsage,
}

impl GpuSummary {
    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        if *trace.gpu() != Gpu::NotAsked {
            self.state = trace.gpu().clone();
        }
        if !trace.devices().is_empty() {
            self.devices = trace.devices().to_vec();
        }
        self.kernels.add(trace);
        if let Some(reason) = window.no_mfu() {
            for step in window.gpu_steps() {
                self.no_mfu.or_insert_with(step.device, || reason.to_owned());
            }
        }
        self.attributions += trace.attributions();
        self.memory.add(trace);
    }
}

impl fmt::Display for GpuSummary {
    /// Writes a line for each fact that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributions { direct, handed_off, before, unattributed } = self.attributions;
        if self.attributions.total() > 0 {
            write!(f, "{} kernels and copies: {direct} direct", self.attributions.total())?;
            write!(f, ", {handed_off} handed off, {unattributed} unattributed")?;
            if before > 0 {
                write!(f, ", {before} asked for before a window opened")?;
            }
            writeln!(f)?;
        }
        self.memory.iter().try_for_each(|peak| writeln!(f, "{peak}"))?;
        match &self.state {
            Gpu::Available(library) if library.warning.is_none() => Ok(()),
            Gpu::NotAsked => Ok(()),
            state => writeln!(f, "{state}"),
        }
    }
}

impl GpuSteps {
    /// Returns the usage in these steps.
    pub(super) fn of(steps: &StepTimes, no_mfu: &SortedMap<DeviceId, String>) -> Self {
        let mut devices: SortedMap<DeviceId, DeviceUsage> = SortedMap::default();
        for step in steps.regular().into_iter().flat_map(|step| &step.gpus) {
            let device = step.device;
            let new = || DeviceUsage { device, steps: 0, usage: GpuUsage::zero() };
            let sum = devices.or_insert_with(device, new);
            sum.steps += 1;
            sum.usage.add(&step.usage);
        }
        let mut no_mfu = no_mfu.clone();
        for gpu in devices.values().filter(|gpu| gpu.usage.states_too_much()) {
            no_mfu.or_insert_with(gpu.device, || "more FLOPs stated than the GPU can do".to_owned());
        }
        let steps = steps.steps().iter().flat_map(|step| step.gpus.iter().copied()).collect();
        Self { steps, devices: devices.into_values().collect(), no_mfu }
    }

    /// Returns the usage in each step that is [kept](super::StepTimes::steps), in the order of the steps and then of
    /// the GPUs.
    pub fn steps(&self) -> &[StepGpu] {
        &self.steps
    }

    /// Returns the usage of each GPU over all steps that are no [outliers](crate::analysis::StepTime#outliers), in the
    /// order of their numbers.
    pub fn devices(&self) -> &[DeviceUsage] {
        &self.devices
    }

    /// Returns the reason why a GPU has no [MFU](GpuUsage::mfu), such as `peak of NVIDIA H200 for u32 not known`;
    /// `None` if it has one, or if no floating-point operations are known.
    pub fn no_mfu(&self, device: DeviceId) -> Option<&str> {
        self.no_mfu.get(&device).map(String::as_str)
    }

    /// Returns whether no GPU did anything in a window with a whole step.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

impl fmt::Display for DeviceUsage {
    /// Writes a line such as `GPU 0 busy 63.2 % of the steps (idle 1.10 ms a step in 14.0 gaps, 800 µs of it waiting
    /// for the host), copies 2.1 %, launch delay 8.10 µs: host-bound; 1.23 TFLOP/s, MFU 1.84 % of the steps, 6.10 %
    /// while busy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = &self.usage;
        let steps = self.steps.max(1) as f64;
        let a_step = |time: Duration| units::time(time.div_f64(steps));
        write!(f, "GPU {} busy {} of the steps", self.device, units::percent(usage.busy_percent()))?;
        write!(f, " (idle {} a step in {:.1} gaps", a_step(usage.idle), usage.gaps as f64 / steps)?;
        write!(f, ", {} of it waiting for the host", a_step(usage.waiting))?;
        if !usage.parts.input.is_zero() {
            write!(f, ", {} of that for data", a_step(usage.parts.input))?;
        }
        write!(f, ")")?;
        write!(f, ", copies {}", units::percent(usage.copying_percent()))?;
        usage.mean_delay().iter().try_for_each(|&delay| write!(f, ", launch delay {}", units::time(delay)))?;
        write!(f, ": {}", usage.verdict)?;
        if let Some(rate) = usage.flops_per_second() {
            write!(f, "; {}", units::flop_rate(rate))?;
        }
        if let Some((mfu, busy)) = usage.mfu().zip(usage.busy_mfu()) {
            write!(f, ", MFU {} of the steps, {} while busy", units::percent(mfu), units::percent(busy))?;
        }
        Ok(())
    }
}

impl fmt::Display for GpuSteps {
    /// Writes a line for each GPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.devices.iter().try_for_each(|device| {
            write!(f, "{device}")?;
            self.no_mfu(device.device).iter().try_for_each(|why| write!(f, "; {why}: no MFU"))?;
            writeln!(f)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::GpuSteps;
    use crate::{
        Report,
        analysis::Verdict,
        trace::{
            CallsiteId, DeviceId, Trace, TrackId,
            sample::{at, gpu_trace, memory_trace, set_flops},
        },
    };
    use std::time::Duration;

    fn steps_of(trace: &Trace) -> GpuSteps {
        Report::of([trace]).gpu_steps()
    }

    fn micros(times: [Duration; 5]) -> [u128; 5] {
        times.map(|time| time.as_micros())
    }

    #[test]
    fn a_step_has_what_its_calls_copied_and_the_most_memory_in_use() {
        let mut trace = gpu_trace();
        // At 0, 1 and so on µs, in the first step; the second one has what was left, and allocates at 150 µs.
        let records = [(1, Some(50), 50, None), (2, Some(70), 120, None), (2, None, 50, None), (3, Some(5), 55, None)];
        trace.allocations = memory_trace(&records).allocations;
        trace.allocations[3].at = at(150);
        let seen = |trace: &Trace| -> Vec<_> {
            steps_of(trace).steps().iter().map(|step| (step.usage.copied, step.peak_memory)).collect()
        };
        assert_eq!(seen(&trace), [(4000, Some(120)), (4000, Some(55))]);
        trace.allocations.truncate(3);
        assert_eq!(seen(&trace)[1], (4000, Some(50)), "nothing changed in it");
        trace.allocations.iter_mut().for_each(|allocation| allocation.at = at(150));
        assert_eq!(seen(&trace), [(4000, None), (4000, Some(120))], "not known before the first");
    }

    #[test]
    fn a_step_is_busy_while_anything_runs() {
        let steps = steps_of(&gpu_trace());
        let [first, second] = steps.steps() else { panic!("{steps:?}") };
        assert_eq!((first.step, second.step, first.device), (5, 6, DeviceId::new(0)));

        // Busy 5–9, 20–40 and 50–80, and always waiting for the host in between.
        let usage = first.usage;
        let times = [usage.duration, usage.busy, usage.idle, usage.waiting, usage.copying];
        assert_eq!(micros(times), [100, 54, 46, 46, 4]);
        assert_eq!((usage.gaps, usage.longest_gap, usage.kernels), (4, Duration::from_micros(20), 3));
        assert_eq!(usage.verdict, Verdict::HostBound);

        // And 195–205, by an unattributed kernel, of which the last half is in no step.
        let usage = second.usage;
        let times = [usage.duration, usage.busy, usage.idle, usage.waiting, usage.copying];
        assert_eq!(micros(times), [100, 59, 41, 41, 4]);
        assert_eq!((usage.gaps, usage.longest_gap, usage.kernels), (4, Duration::from_micros(15), 3));
        assert_eq!(usage.verdict, Verdict::HostBound);
    }

    #[test]
    fn delays_are_from_the_call_to_the_work() {
        let mut trace = gpu_trace();
        for (was, call) in [(2, 4), (17, 18), (47, 30)] {
            let moved = trace.api_calls.iter_mut().find(|call| call.start == at(was)).unwrap();
            (moved.start, moved.end) = (at(call), at(call + 1));
        }
        let steps = steps_of(&trace);
        let first = steps.steps()[0];
        // 1, 2, 3, 8 and 20 µs: both nodes of the graph are of one call.
        assert_eq!((first.usage.launches, first.usage.mean_delay()), (5, Some(Duration::from_nanos(6800))));
        assert_eq!(first.median_delay, Some(Duration::from_micros(3)));
        assert_eq!(first.usage.longest_delay, Duration::from_micros(20));
        // The call for the kernel at 50 had returned before the gap at 40 began.
        assert_eq!(first.usage.waiting, Duration::from_micros(36));
    }

    #[test]
    fn each_device_is_looked_at_by_itself() {
        let mut trace = gpu_trace();
        trace.streams[1].device = DeviceId::new(1);
        trace.streams[2].device = DeviceId::new(1);
        let steps = steps_of(&trace);
        let order: Vec<_> = steps.steps().iter().map(|step| (step.step, step.device.as_u32())).collect();
        assert_eq!(order, [(5, 0), (5, 1), (6, 0), (6, 1)]);
        // 60–70 and 65–75 on the second, nothing of which ran alone on the first.
        let [first, second] = steps.devices() else { panic!("{steps:?}") };
        assert_eq!((first.steps, first.usage.busy.as_micros(), first.usage.kernels), (2, 113, 4));
        assert_eq!((second.steps, second.usage.busy.as_micros(), second.usage.kernels), (2, 30, 2));
        assert_eq!((second.usage.gaps, second.usage.longest_gap.as_micros()), (4, 60));
    }

    #[test]
    fn utilisation_is_by_the_time_of_the_step_and_of_the_busy_gpu() {
        let mut trace = gpu_trace();
        // 5 µs at the peak in the first step, 10 in the second.
        set_flops(&mut trace, 1, 335_000_000, "f32");
        set_flops(&mut trace, 5, 9_895_000_000, "bf16");
        let steps = steps_of(&trace);
        let [first, second] = [0, 1].map(|step| steps.steps()[step].usage);
        assert_eq!((first.flops, first.ideal), (Some(335_000_000), Some(Duration::from_micros(5))));
        assert_eq!((second.flops, second.ideal), (Some(9_895_000_000), Some(Duration::from_micros(10))));
        let percent = |mfu: Option<f64>| format!("{:.3}", mfu.unwrap());
        // Each step takes 100 µs, in which the GPU was busy for 54 and 59.
        assert_eq!([first, second].map(|usage| percent(usage.mfu())), ["5.000", "10.000"]);
        assert_eq!([first, second].map(|usage| percent(usage.busy_mfu())), ["9.259", "16.949"]);
        let all = steps.devices()[0].usage;
        assert_eq!((percent(all.mfu()), percent(all.busy_mfu())), ("7.500".to_owned(), "13.274".to_owned()));
        assert_eq!(all.flops_per_second().map(f64::round), Some(51.15e12));
        let line = steps.to_string();
        let end = ": host-bound; 51.1 TFLOP/s, MFU 7.5 % of the steps, 13.3 % while busy\n";
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn a_line_says_why_there_is_no_utilisation() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 1, 335_000_000, "f32");
        trace.devices[0].name = "NVIDIA Foo".to_owned();
        let line = steps_of(&trace).to_string();
        let end = ": host-bound; 1.68 TFLOP/s; peak of NVIDIA Foo for f32 not known: no MFU\n";
        assert!(line.ends_with(end), "{line}");
        // It is not known which of two did what.
        trace.streams[1].device = DeviceId::new(1);
        let steps = steps_of(&trace);
        assert_eq!(steps.devices().iter().map(|device| device.usage.flops).collect::<Vec<_>>(), [None, None]);
        assert!(!steps.to_string().contains("FLOP"), "{steps}");
    }

    #[test]
    fn steps_that_are_cut_are_left_out() {
        let mut trace = gpu_trace();
        trace.steps[0].cut.start = true;
        let steps = steps_of(&trace);
        assert_eq!(steps.steps().iter().map(|step| step.step).collect::<Vec<_>>(), [6]);
        trace.steps[1].cut.end = true;
        assert!(steps_of(&trace).is_empty());
        assert!(steps_of(&Trace::default()).is_empty());
    }

    #[test]
    fn a_gpu_that_waits_for_data_is_input_bound() {
        // Idle from 0 to 5, 9 to 20, 40 to 50 and 80 to 100 µs of the first step, and in the second to 95, before a
        // kernel of which it is not known when it was asked for.
        let mut trace = gpu_trace();
        trace.callsites[2].name = "data".into();
        trace.spans.iter_mut().for_each(|span| span.callsite = CallsiteId::new(0));
        for (step, first) in [(0, 1), (100, 4)] {
            let [load, inner] = [(75, 100), (80, 90)].map(|(start, end)| (at(step + start), at(step + end)));
            // One inside of the other counts once.
            for (span, (start, end)) in [(first, load), (first + 1, inner)] {
                let span = &mut trace.spans[span];
                (span.callsite, span.start, span.end) = (CallsiteId::new(2), start, end);
            }
        }
        let steps = steps_of(&trace);
        assert_eq!(steps.steps()[0].usage.parts.input.as_micros(), 20);
        assert_eq!(steps.steps()[0].usage.verdict, Verdict::HostBound);
        trace.spans[1].start = at(10);
        let usage = steps_of(&trace).steps()[0].usage;
        assert_eq!((usage.parts.input.as_micros(), usage.verdict), (40, Verdict::InputBound));
        let line = steps_of(&trace).to_string();
        assert!(line.contains(" waiting for the host, 27.5 µs of that for data)"), "{line}");
        // Data that another thread loads is loaded in advance.
        trace.spans.iter_mut().for_each(|span| span.track = TrackId::new(1));
        assert!(steps_of(&trace).steps()[0].usage.parts.input.is_zero());
    }

    #[test]
    fn a_line_sums_it_up() {
        assert_eq!(
            steps_of(&gpu_trace()).to_string(),
            "GPU 0 busy 56.5 % of the steps (idle 43.5 µs a step in 4.0 gaps, 43.5 µs of it waiting for the host), \
             copies 4.0 %, launch delay 4.00 µs: host-bound\n"
        );
    }
}

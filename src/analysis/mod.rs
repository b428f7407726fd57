//! Figures computed from one recorded window.
//!
//! [`Analysis`] is a window with everything that can be asked about it, each computed once, when it is first asked for:
//!
//! | method | question |
//! |---|---|
//! | [`findings`](Analysis::findings) | What makes steps slow, and what would a change save? |
//! | [`step_time`](Analysis::step_time) | How long does a step take? |
//! | [`step_breakdown`](Analysis::step_breakdown) | Where did the time of each step go? |
//! | [`gpu_steps`](Analysis::gpu_steps) | How busy was each GPU in each step, and what did it wait for? |
//! | [`critical_path`](Analysis::critical_path) | What did the window wait for, one thing after the other? |
//! | [`counter_uses`](Analysis::counter_uses) | How busy were the GPU's SMs, tensor cores and memory in each span? |
//! | [`sampled_lines`](Analysis::sampled_lines) | Which lines did each span's own time go to? |
//! | [`sampled_functions`](Analysis::sampled_functions) | Which functions are the hottest over all spans? |
//! | [`modes`](Analysis::modes) | What did training, validation and inference take? |
//! | [`span_costs`](Analysis::span_costs) | What did each span cost, and how near is that to the GPU's limits? |
//!
//! Exporters and [`on_trace`](crate::ProfilerBuilder::on_trace) are given the analysis of each window as soon as it is
//! recorded. For tables over all windows of a run, see [`report`](crate::report).
//!
//! ```
//! use kernspan::{Profiler, analysis::Verdict};
//!
//! let (layer, profiler) = Profiler::builder()
//!     .on_trace(|window| {
//!         for step in window.gpu_steps() {
//!             if step.usage.verdict == Verdict::InputBound {
//!                 eprintln!("step {}: the GPU waited {:?} for data", step.step, step.usage.parts.input);
//!             }
//!         }
//!     })
//!     .build()?;
//! # drop(layer);
//! # profiler.finish()?;
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! [`stream_idle`] tells why streams were idle, [`queue_lengths`] how far the host was ahead, [`launches`] what each
//! launch cost the host, and [`kept_memory`] which spans allocate memory that outlives their step. [`MemoryTimeline`]
//! tells what a GPU's memory was used for: activations, gradients and so on, over time and at the peak.

mod advice;
#[allow(clippy::module_inception, reason = "the module is named after its type")]
mod analysis;
mod clock_offsets;
mod collective_calls;
mod collective_table;
mod collectives;
mod counter_use;
mod critical_path;
mod finding;
mod findings;
mod flops;
mod frame_origin;
mod gpu_steps;
mod gpu_usage;
mod heap_lines;
mod imbalance;
mod intervals;
mod kept_memory;
mod kinds;
mod lateness;
mod launches;
mod machine;
mod memory_category;
mod memory_growth;
mod memory_series;
mod memory_snapshot;
mod memory_timeline;
mod modes;
mod open_question;
mod phase;
mod pipeline;
mod quantile;
mod rank_comparison;
mod rank_profile;
mod rank_simulation;
mod rank_waits;
mod request_gpu;
mod run_energy;
mod run_vitals;
mod sampled_stacks;
mod sampled_time;
mod simulation;
mod slow_links;
mod slow_rank;
mod sorted;
mod span_calls;
mod span_costs;
mod step_breakdown;
mod step_parts;
mod step_sweep;
mod step_time;
mod streams;
mod vital_signs;

pub use self::{
    analysis::Analysis,
    clock_offsets::{ClockOffset, ClockOffsets},
    collective_calls::{CollectiveCall, CollectiveFlow, CollectiveOperation, collective_calls, is_collective},
    collective_table::{CollectiveGroup, collective_groups},
    counter_use::{CounterBound, CounterSubject, CounterUse, CounterValue},
    critical_path::{PathKind, PathPart},
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    gpu_usage::{GpuUsage, StepGpu, Verdict},
    heap_lines::{HeapLine, heap_lines},
    imbalance::{UnevenWork, WorkBalance},
    kept_memory::{KeptMemory, kept_memory, kept_pages},
    lateness::{LateHost, LateWhen, late_hosts},
    launches::{Launch, launches},
    memory_category::MemoryCategory,
    memory_growth::MemoryGrowth,
    memory_series::{MemoryPoint, MemoryPool, MemorySeries, MemorySource},
    memory_snapshot::{HeldAllocation, MemoryFrame, MemoryHolder, MemorySnapshot, SnapshotGpu, SnapshotReason},
    memory_timeline::{MemoryBlock, MemoryLifetimes, MemoryTimeline, MemoryUse},
    modes::{Mode, ModeUse},
    pipeline::{PipelineCulprit, PipelineKind, PipelineOperation, PipelineWhatIf},
    rank_comparison::RankComparison,
    rank_profile::{RankProfile, gpu_waits},
    rank_waits::{LateCause, LateRank, RankWait, RankWaits},
    request_gpu::RequestGpuTime,
    run_energy::{Carbon, EnergyMethod, EnergyUse, RunEnergy},
    run_vitals::{RunVitals, TimeAbove, VitalSummary},
    sampled_stacks::{SampledFunction, SampledLine},
    sampled_time::{SampledTime, SamplingTotals},
    slow_links::{LinkComparison, SlowLink},
    span_costs::{Roofline, SpanCost},
    step_breakdown::StepBreakdown,
    step_parts::{StepPart, StepParts},
    step_time::{StepInterval, StepTime},
    streams::{QueueLength, StreamIdle, queue_lengths, stream_idle},
    vital_signs::{
        ContainerVitals, GpuVitals, MachineVitals, ProcessVitals, VitalSign, VitalSigns, VitalSubject, VitalUnit,
    },
};
pub(crate) use self::{
    flops::{Flops, SpanFlops},
    gpu_usage::percent_of,
    heap_lines::sort as sort_heap_lines,
    intervals::{Interval, Intervals},
    kinds::{CallKind, WorkKind},
    memory_series::{FollowedMemory, FollowedRun},
    open_question::{OpenQuestion, QuestionKind},
    quantile::{at_rank, quantile, rank},
    run_energy::KILOWATT_HOUR,
    sampled_stacks::SampledStacks,
    slow_rank::slow_ranks,
    sorted::SortedMap,
    span_calls::SpanCalls,
    span_costs::{CostNode, cost_nodes},
    vital_signs::signs_of,
};

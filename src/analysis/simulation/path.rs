//! The critical path of a window: from its end back, always to what was waited for last.

use super::{
    Simulation,
    host::WaitsOn,
    tasks::{Reason, Task},
};
use crate::trace::Timestamp;

/// A part of the critical path.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Segment {
    pub(in crate::analysis) start: Timestamp,
    pub(in crate::analysis) end: Timestamp,
    pub(in crate::analysis) kind: SegmentKind,
}

/// The kinds of segments, with the item or task that each is of.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) enum SegmentKind {
    /// The host computes or calls.
    Item(usize),
    /// The host gets to know that work has ended.
    Return(usize),
    /// Work is on its way from the host to the GPU.
    Launch(usize),
    /// The GPU was busy with work from before the window.
    Earlier(usize),
    /// The GPU works.
    Task(usize),
    /// The GPU begins the next work.
    Gap(usize),
}

/// A place on the path, reached from its end.
#[derive(Clone, Copy)]
enum PathPlace {
    /// In an item, or at its end.
    Item(usize),
    /// At the end of a task.
    Task(usize),
    /// At the start of a task.
    TaskStart(usize),
}

impl Simulation<'_> {
    /// Returns the critical path from the beginning of the first step to the end of the last, on the host or on the
    /// GPU, whichever is later. Segments follow each other, each from the end of the one before it.
    pub(in crate::analysis) fn critical_path(&self) -> Vec<Segment> {
        let first = self.items[self.measured.start].start;
        let last_item = self.measured.end - 1;
        let tasks = self.tasks.iter().enumerate().filter(|(_, task)| task.measured);
        let last_task = tasks.max_by_key(|(_, task)| task.end);
        let (mut place, mut until) = match last_task {
            Some((task, times)) if times.end > self.items[last_item].end => (PathPlace::Task(task), times.end),
            _ => (PathPlace::Item(last_item), self.items[last_item].end),
        };
        let mut path: Vec<Segment> = Vec::new();
        // Each item and task is left once; more is a circle, by times that contradict each other.
        for _ in 0..2 * (self.items.len() + self.tasks.len()) {
            if until <= first {
                break;
            }
            let Some((kind, start, next)) = self.back(place) else { break };
            let start = start.clamp(first, until);
            if start < until {
                path.push(Segment { start, end: until, kind });
            }
            (place, until) = (next, start);
        }
        path.reverse();
        path
    }

    /// Returns the segment that ends at a place, its start, and the place before it.
    fn back(&self, place: PathPlace) -> Option<(SegmentKind, Timestamp, PathPlace)> {
        match place {
            PathPlace::Item(index) => {
                let item = &self.items[index];
                let waited = item.wait.map(|wait| match wait.on {
                    WaitsOn::TaskStart(task) => (self.tasks[task].start, PathPlace::TaskStart(task)),
                    WaitsOn::TaskEnd(task) => (self.tasks[task].end, PathPlace::Task(task)),
                    WaitsOn::Item(other) => (self.items[other].end, PathPlace::Item(other)),
                });
                if let Some((at, next)) = waited {
                    return Some((SegmentKind::Return(index), at, next));
                }
                Some((SegmentKind::Item(index), item.start, self.before(index)?))
            }
            PathPlace::Task(index) => {
                Some((SegmentKind::Task(index), self.tasks[index].start, PathPlace::TaskStart(index)))
            }
            PathPlace::TaskStart(index) => self.back_from_start(index, &self.tasks[index]),
        }
    }

    fn back_from_start(&self, index: usize, task: &Task) -> Option<(SegmentKind, Timestamp, PathPlace)> {
        let after = |previous: usize| (SegmentKind::Gap(index), self.tasks[previous].end, PathPlace::Task(previous));
        match task.reason {
            Reason::Dependency => task.dependency.map(|previous| after(previous.task)),
            Reason::Previous => task.previous.map(|previous| after(previous.task)),
            Reason::Call => {
                let item = task.item?;
                let kind = if task.waited_before.is_some() { SegmentKind::Earlier } else { SegmentKind::Launch };
                Some((kind(index), self.items[item].start, self.before(item)?))
            }
        }
    }

    /// The end of the item before this one on its thread.
    fn before(&self, item: usize) -> Option<PathPlace> {
        let before = item.checked_sub(1)?;
        (self.items[before].thread == self.items[item].thread).then_some(PathPlace::Item(before))
    }
}

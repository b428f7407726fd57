//! The thread that samples: it opens events for all threads of the process, and reads them while a window is open.

use super::{
    clocks::SampleClock,
    refusal::{FILES, PRIVILEGE, Refusals, explain, explain_limit, has_ended, is_limit},
    stacks::{PREEMPTED, RawSample, SampledStacks, StackTable},
    thread_events::{Stack, ThreadEvents, ThreadIs, WaitEvents, is_ours, name_of},
    unwind::StackUnwinder,
};
use crate::{
    budget::Budget,
    clock::{Clock, Ticks},
    sampling::{Samples, WindowStacks},
    thread::{ThreadInfo, spawn},
    trace::ThreadId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::process::{Resource, getrlimit};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

/// The way to the sampling thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    commands: Sender<SampleCommand>,
}

/// A message from the session.
#[derive(Debug)]
enum SampleCommand {
    /// A window opens soon.
    Prepare,
    /// No window opens after all.
    Release,
    Open(Ticks),
    /// The window closes. `followed`: another opens at the same moment.
    Close {
        at: Ticks,
        followed: bool,
        reply: Sender<SampledStacks>,
    },
}

impl Sampler {
    pub(crate) fn start(settings: Samples, clock: &Clock, budget: &Arc<Budget>) -> io::Result<Self> {
        let (commands, receiver) = channel();
        let (clock, budget) = (clock.clone(), Arc::clone(budget));
        spawn("kernspan-samples", move || Capture::new(settings, &clock, budget).run(&receiver))?;
        Ok(Self { commands })
    }

    /// Opens the events of all threads, which takes some hundred microseconds for each, so that sampling begins at once
    /// when the window opens.
    pub(crate) fn prepare(&self) {
        self.send(SampleCommand::Prepare);
    }

    /// Undoes [`prepare`](Self::prepare).
    pub(crate) fn release(&self) {
        self.send(SampleCommand::Release);
    }

    /// Begins to sample.
    pub(crate) fn open(&self, at: Ticks) {
        self.send(SampleCommand::Open(at));
    }

    /// Ends sampling for this window. `followed`: another opens at the same moment.
    pub(crate) fn close(&self, at: Ticks, followed: bool) -> WindowStacks {
        let (reply, stacks) = channel();
        self.send(SampleCommand::Close { at, followed, reply });
        WindowStacks::Pending(stacks)
    }

    fn send(&self, command: SampleCommand) {
        // The thread is gone only if it panicked, which shows as a window without a reply.
        let _ = self.commands.send(command);
    }
}

/// The state of the sampling thread.
struct Capture {
    settings: Samples,
    clock: SampleClock,
    budget: Arc<Budget>,
    unwinder: StackUnwinder,
    threads: Vec<ThreadEvents>,
    /// The number of the process's threads when they were last looked for, and when that was.
    thread_count: Option<u64>,
    looked: Option<Instant>,
    /// Threads without events: our own, and those that could not be opened.
    others: FxHashSet<u32>,
    waits: WaitEvents,
    /// The most threads that have events, so that the program does not run out of descriptors.
    most_threads: usize,
    stacks: StackTable,
    /// The names of the threads that the samples are of.
    names: FxHashMap<u32, String>,
    refusals: Refusals,
    is_open: bool,
    buffer: Vec<u8>,
    frames: Vec<u64>,
}

impl Capture {
    /// The number of samples of a thread between two readings.
    const BETWEEN: u32 = 4;
    /// The least and the most time between two readings. At each, threads are counted.
    const EVERY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(10));
    /// The time after which new threads are looked for though their number is the same.
    const LOOK_EVERY: Duration = Duration::from_millis(100);

    fn new(settings: Samples, clock: &Clock, budget: Arc<Budget>) -> Self {
        let waits = if settings.waits { WaitEvents::Stacks } else { WaitEvents::None };
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4;
        let each = if settings.waits { 2 } else { 1 };
        Self {
            settings,
            clock: SampleClock::new(clock),
            budget,
            unwinder: StackUnwinder::new(),
            threads: Vec::new(),
            thread_count: None,
            looked: None,
            others: FxHashSet::default(),
            waits,
            most_threads: usize::try_from(descriptors / each).unwrap_or(usize::MAX),
            stacks: StackTable::default(),
            names: FxHashMap::default(),
            refusals: Refusals::default(),
            is_open: false,
            buffer: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// The time between two readings of the rings.
    fn every(&self) -> Duration {
        let (least, most) = Self::EVERY;
        (Duration::from_secs(1) * Self::BETWEEN / self.settings.hertz).clamp(least, most)
    }

    /// Runs until the session is gone. It wakes only while a window is open.
    fn run(mut self, commands: &Receiver<SampleCommand>) {
        let mut next = Instant::now();
        loop {
            let command = if self.is_open {
                match commands.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(command) => command,
                    Err(RecvTimeoutError::Timeout) => {
                        self.read();
                        if self.may_have_new_threads() {
                            self.look_for_threads();
                        }
                        next = Instant::now() + self.every();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match commands.recv() {
                    Ok(command) => command,
                    Err(_) => return,
                }
            };
            match command {
                SampleCommand::Prepare => self.look_for_threads(),
                SampleCommand::Release => self.release(),
                SampleCommand::Open(at) => {
                    self.open(at);
                    next = Instant::now() + self.every();
                }
                SampleCommand::Close { at, followed, reply } => {
                    // Nobody wants the stacks if the exports have ended.
                    let _ = reply.send(self.close(at, followed));
                }
            }
        }
    }

    fn open(&mut self, at: Ticks) {
        // Already, if this window follows another.
        if !self.is_open {
            self.clock.update();
            let now = self.clock.nanos(at);
            self.threads.iter_mut().for_each(|thread| thread.enable(now));
            self.is_open = true;
            self.look_for_threads();
            self.unwinder.read_modules();
        }
        self.stacks.open(at);
    }

    fn close(&mut self, at: Ticks, followed: bool) -> SampledStacks {
        if !followed {
            self.threads.iter().for_each(ThreadEvents::disable);
        }
        self.read();
        self.clock.update();
        let close = self.clock.nanos(at);
        let mut threads = std::mem::take(&mut self.threads);
        for thread in &mut threads {
            let id = thread.thread;
            thread.cut_wait(close, |stack| self.sampled(id, &stack));
            thread.name_again();
            self.names.insert(id, thread.name.clone());
        }
        self.threads = threads;
        let mut closed = self.stacks.close(at);
        // One of our own threads that had no name yet when its event was opened.
        let is_program = |thread: &ThreadId| self.names.get(&raw(*thread)).is_none_or(|name| !is_ours(name));
        closed.samples.retain(|sample| is_program(&sample.thread));
        closed.hertz = self.settings.hertz;
        closed.problem = self.refusals.problem();
        let info = |(&thread, name): (&u32, &String)| ThreadInfo { id: id(thread), name: name.clone() };
        closed.threads = self.names.iter().map(info).collect();
        // Threads that have ended must not add up over a run of windows.
        self.names.clear();
        if !followed {
            self.release();
        }
        closed
    }

    /// Closes all events, so that nothing is left of sampling until the next window.
    fn release(&mut self) {
        self.is_open = false;
        self.threads.clear();
        self.others.clear();
        self.names.clear();
        self.refusals = Refusals::default();
        self.buffer = Vec::new();
    }

    /// Reads all rings.
    fn read(&mut self) {
        self.clock.update();
        let (mut threads, mut buffer) = (std::mem::take(&mut self.threads), std::mem::take(&mut self.buffer));
        for thread in &mut threads {
            let id = thread.thread;
            let lost = thread.read(&mut buffer, |stack| self.sampled(id, &stack));
            self.stacks.lost += lost;
        }
        (self.threads, self.buffer) = (threads, buffer);
    }

    /// Unwinds and keeps a stack.
    fn sampled(&mut self, thread: u32, stack: &Stack<'_>) {
        let complete = if stack.thread_is == ThreadIs::Preempted {
            self.frames.clear();
            self.frames.push(PREEMPTED);
            true
        } else {
            let mut unwind =
                |unwinder: &mut StackUnwinder| unwinder.unwind(stack.registers, stack.bytes, &mut self.frames);
            unwind(&mut self.unwinder) || (self.unwinder.read_unknown() && unwind(&mut self.unwinder))
        };
        let sample = RawSample {
            at: self.clock.ticks(stack.at),
            nanos: stack.nanos,
            thread: id(thread),
            stack: None,
            waiting: stack.thread_is != ThreadIs::Running,
            truncated: !complete && !self.frames.is_empty(),
        };
        self.stacks.add(sample, &self.frames, &self.unwinder, &self.budget);
    }

    /// Whether threads must be looked for: their number has changed, or one may have taken the place of another. To
    /// count them takes a microsecond, to look for them fifty.
    fn may_have_new_threads(&mut self) -> bool {
        let (count, looked) = (thread_count(), self.looked);
        self.thread_count != count || looked.is_none_or(|looked| looked.elapsed() >= Self::LOOK_EVERY)
    }

    /// Opens events for threads that are new, and closes those of threads that have ended.
    fn look_for_threads(&mut self) {
        if self.refusals.all.is_some() {
            return;
        }
        (self.thread_count, self.looked) = (thread_count(), Some(Instant::now()));
        let Ok(found) = fs::read_dir(THREADS) else { return };
        let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
        let found: FxHashSet<_> = found.filter_map(number).collect();
        self.others.retain(|thread| found.contains(thread));
        let (names, others) = (&mut self.names, &mut self.others);
        // They were read just now, and what they wrote since is little.
        self.threads.retain_mut(|thread| {
            let runs = found.contains(&thread.thread);
            if runs {
                thread.name_again();
            }
            if runs && is_ours(&thread.name) {
                others.insert(thread.thread);
            } else if runs {
                return true;
            }
            names.insert(thread.thread, std::mem::take(&mut thread.name));
            false
        });
        let known: FxHashSet<_> = self.threads.iter().map(|thread| thread.thread).collect();
        for thread in
            found.difference(&known).filter(|thread| !self.others.contains(thread)).copied().collect::<Vec<_>>()
        {
            self.open_thread(thread);
        }
    }

    fn open_thread(&mut self, thread: u32) {
        let Some(name) = name_of(thread) else { return };
        if is_ours(&name) {
            self.others.insert(thread);
            return;
        }
        if self.threads.len() >= self.most_threads {
            return self.refuse(thread, FILES.to_owned());
        }
        let between = (self.settings.hertz as f64 * self.every().as_secs_f64()).ceil() as usize;
        let open = |waits| ThreadEvents::open(thread, name.clone(), self.settings, between, waits);
        let mut opened = open(self.waits);
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            // Perhaps only the event that has stacks of waits is refused.
            let weaker =
                [WaitEvents::TimesOnly, WaitEvents::None].into_iter().filter(|_| self.waits != WaitEvents::None);
            for waits in weaker {
                if let Ok(events) = open(waits) {
                    self.waits = waits;
                    self.refusals.waits = Some(PRIVILEGE.to_owned());
                    opened = Ok(events);
                    break;
                }
            }
        }
        match opened {
            Ok(mut events) => {
                if self.is_open {
                    self.clock.update();
                    events.enable(self.clock.now());
                }
                self.threads.push(events);
            }
            Err(error) if has_ended(&error) => {}
            Err(error) if is_limit(&error) => {
                // The program may need the descriptors that were left.
                if error.raw_os_error() != Some(libc::ENOMEM) {
                    self.most_threads = self.threads.len().saturating_sub(4);
                    let given_back = self.threads.split_off(self.most_threads);
                    given_back.into_iter().for_each(|events| self.refuse(events.thread, FILES.to_owned()));
                }
                self.refuse(thread, explain_limit(&error));
            }
            Err(error) => self.refusals.all = Some(explain(&error)),
        }
    }

    /// Notes that a thread is not sampled.
    fn refuse(&mut self, thread: u32, why: String) {
        self.others.insert(thread);
        let before = self.refusals.threads.as_ref().map_or(0, |(threads, _)| *threads);
        self.refusals.threads = Some((before + 1, why));
    }
}

/// The folder of the process's threads.
const THREADS: &str = "/proc/self/task";

/// The number of the process's threads, and a constant: each is a link to their folder.
fn thread_count() -> Option<u64> {
    Some(fs::metadata(THREADS).ok()?.nlink())
}

fn id(thread: u32) -> ThreadId {
    ThreadId::new(u64::from(thread))
}

fn raw(thread: ThreadId) -> u32 {
    u32::try_from(thread.as_u64()).unwrap_or(u32::MAX)
}

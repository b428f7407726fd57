//! The thread that listens for those who ask the run, and for the signal.

use super::{
    Control, RecordRequest, Requested,
    live::LiveRun,
    protocol::{Hello, PROTOCOL, Reply, RunFacts},
    requests::{AskedRun, Connection},
    sockets::{Socket, is_allowed, peer},
};
use crate::{failure::panic_message, host::Host, thread::spawn, trace::Metadata};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::getuid,
};
use signal_hook::{SigId, consts::SIGUSR2, flag, low_level};
use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Settings for [`ProfilerBuilder::listen`](crate::ProfilerBuilder::listen): how a running program can be asked.
///
/// ```
/// use kernspan::{Profiler, Schedule, control::Listen};
///
/// let (layer, profiler) = Profiler::builder()
///     .schedule(Schedule::manual())
///     .listen(Listen::default())
///     .build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to `ProfilerBuilder::listen`"]
pub struct Listen {
    signal_steps: Option<u64>,
    signal_folder: Option<PathBuf>,
}

impl Listen {
    /// The default of [`signal_steps`](Self::signal_steps).
    pub const SIGNAL_STEPS: u64 = 10;

    /// Sets how many steps `SIGUSR2` records. By default, [`Self::SIGNAL_STEPS`]. A program without steps is recorded
    /// for five seconds.
    pub fn signal_steps(mut self, steps: u64) -> Self {
        self.signal_steps = Some(steps);
        self
    }

    /// Sets the folder for windows that `SIGUSR2` records. By default, they go to the exporters of the profiler, or, if
    /// there are none, to the folder `kernspan-PROGRAM-PID` in the current one.
    pub fn signal_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.signal_folder = Some(folder.into());
        self
    }

    /// Leaves `SIGUSR2` alone. By default, it records a window, unless the program has a handler for it when the
    /// profiler is built.
    pub fn without_signal(mut self) -> Self {
        self.signal_steps = None;
        self
    }

    /// Whether the signal records a window.
    pub(crate) fn wants_signal(&self) -> bool {
        self.signal_steps.is_some()
    }

    /// Has the signal write its windows into a folder, as nothing exports them otherwise.
    pub(crate) fn without_exporters(mut self, metadata: &Metadata) -> Self {
        let name = format!("kernspan-{}-{}", metadata.process, metadata.pid);
        self.signal_folder.get_or_insert_with(|| std::env::current_dir().unwrap_or_default().join(name));
        self
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self { signal_steps: Some(Self::SIGNAL_STEPS), signal_folder: None }
    }
}

/// The parts that a listener is started with.
pub(crate) struct ListenerParts {
    pub(crate) control: Control,
    pub(crate) host: Arc<Host>,
    pub(crate) metadata: Arc<Metadata>,
    /// The name that the launcher gave to the run.
    pub(crate) run: Option<String>,
    pub(crate) live: Arc<LiveRun>,
    pub(crate) settings: Listen,
    /// Whether the signal has its default action, so that it may be handled.
    pub(crate) signal_is_free: bool,
}

/// The listening thread, as the end of the run sees it. Dropping it leaves the thread alone, as a fork must.
#[derive(Debug)]
pub(crate) struct Listener {
    shared: Arc<Shared>,
    wake: UnixStream,
}

/// The run, and those who ask it.
#[derive(Debug)]
struct Shared {
    run: AskedRun,
    clients: Mutex<Clients>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Clients {
    /// The connections, by which threads that wait for a request are woken.
    connected: Vec<(u64, UnixStream)>,
    next: u64,
    /// Whether the listening thread is done.
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this holds, for a certain time at most.
    fn wait_until(&self, at_most: Duration, holds: impl Fn(&Clients) -> bool) {
        drop(self.changed.wait_timeout_while(self.lock(), at_most, |clients| !holds(clients)));
    }
}

impl Listener {
    /// The most clients at a time. Each has a thread, which takes some 20 KiB.
    pub(super) const CLIENTS: usize = 32;
    /// How long the end of the run waits for clients to be told about it.
    const FAREWELL: Duration = Duration::from_secs(1);

    /// Listens, in a thread of its own.
    pub(crate) fn start(parts: ListenerParts) -> io::Result<Self> {
        let ListenerParts { control, host, metadata, run, live, settings, signal_is_free } = parts;
        let socket = Socket::bind(metadata.rank)?;
        let facts = RunFacts { metadata, run };
        let run = AskedRun { control, host, facts, live, ended: Mutex::new(false), changed: Condvar::new() };
        let shared = Arc::new(Shared { run, clients: Mutex::default(), changed: Condvar::new() });
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let signal = settings
            .signal_steps
            .filter(|_| signal_is_free)
            .map(|steps| SignalRequest::register(steps, settings.signal_folder, &wake));
        let signal = signal.transpose()?;
        let listening = ListeningThread { shared: Arc::clone(&shared), socket, woken, signal };
        spawn("kernspan-control", move || listening.run())?;
        Ok(Self { shared, wake })
    }

    /// Ends the thread, and waits until the socket is removed and clients have been told, if they listen.
    pub(crate) fn close(self) {
        self.shared.run.end();
        if (&self.wake).write_all(&[0]).is_ok() {
            self.shared.wait_until(Self::FAREWELL * 2, |clients| clients.closed);
        }
    }
}

/// The state of the listening thread.
struct ListeningThread {
    shared: Arc<Shared>,
    socket: Socket,
    woken: UnixStream,
    signal: Option<SignalRequest>,
}

impl ListeningThread {
    /// How long to wait after a client could not be accepted, as when there are too many open files.
    const RETRY: Duration = Duration::from_millis(200);

    fn run(mut self) {
        while !self.shared.run.wait_for_end(Duration::ZERO) {
            let mut fds = [PollFd::new(&self.socket.listener, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            let polled = poll(&mut fds, None);
            let [has_client, is_woken] = fds.map(|fd| !fd.revents().is_empty());
            match polled {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    self.shared.run.wait_for_end(Self::RETRY);
                    continue;
                }
            }
            if is_woken {
                if self.drain() {
                    break;
                }
                self.signal.iter_mut().for_each(|signal| signal.look(&self.shared.run.control));
            }
            if has_client {
                self.accept();
            }
        }
        self.socket.remove();
        if let Some(signal) = &self.signal {
            signal.unregister();
        }
        // Threads that wait for a request end. The others end when they have told their clients.
        for (_, stream) in &self.shared.lock().connected {
            let _ = stream.shutdown(Shutdown::Read);
        }
        self.shared.wait_until(Listener::FAREWELL, |clients| clients.connected.is_empty());
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }

    /// Reads what has woken the thread. Returns whether the other end is gone, as when the profiler could not be built.
    fn drain(&self) -> bool {
        loop {
            match (&self.woken).read(&mut [0; 64]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn accept(&self) {
        match self.socket.listener.accept() {
            // It may have hung up already.
            Ok((stream, _)) => drop(self.connect(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The client still waits, so that `poll` would return at once.
            Err(_) => drop(self.shared.run.wait_for_end(Self::RETRY)),
        }
    }

    /// Serves a client in a thread of its own, or says why not.
    fn connect(&self, stream: UnixStream) -> io::Result<()> {
        // Some systems pass this on from the listener.
        stream.set_nonblocking(false)?;
        let uid = getuid().as_raw();
        let refused = match peer(&stream)? {
            Some(peer) if !is_allowed(peer, uid) => {
                Some(format!("the program belongs to user {uid}, and user {peer} may not ask it"))
            }
            _ if self.shared.lock().connected.len() >= Listener::CLIENTS => {
                Some(format!("{} clients are connected already: try again later", Listener::CLIENTS))
            }
            _ => None,
        };
        let mut connection = Connection::new(stream.try_clone()?);
        if let Some(message) = refused {
            return connection.send(&Reply::Error { message });
        }
        let number = {
            let mut clients = self.shared.lock();
            clients.next += 1;
            let number = clients.next;
            clients.connected.push((number, stream));
            number
        };
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            let connected = Connected { shared: &shared, number };
            let served = catch_unwind(AssertUnwindSafe(|| connected.serve(&mut connection)));
            if let Err(panic) = served {
                // A bug of ours must not cost the program more than a client.
                let _ = connection.send(&Reply::Error { message: format!("panicked: {}", panic_message(&*panic)) });
            }
        };
        let spawned = spawn("kernspan-client", serve);
        if spawned.is_err() {
            self.shared.lock().connected.retain(|(known, _)| *known != number);
        }
        spawned.map(|_| ())
    }
}

/// A client that is being served. Dropping it makes room for another.
struct Connected<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Connected<'_> {
    fn serve(&self, connection: &mut Connection) {
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.shared.run.facts.metadata.pid,
        };
        // An error means that the client is gone.
        let _ = connection.send(&Reply::Hello(hello)).and_then(|()| connection.serve(&self.shared.run));
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.shared.lock().connected.retain(|(number, _)| *number != self.number);
        self.shared.changed.notify_all();
    }
}

/// The signal that asks for a window.
struct SignalRequest {
    steps: u64,
    folder: Option<PathBuf>,
    /// Set by the handler. The byte that wakes the thread may come from a fork, which has its own flag.
    caught: Arc<AtomicBool>,
    actions: [SigId; 2],
    /// The last request by signal.
    requested: Option<Requested>,
}

/// Whether this library handles the signal, so that it may have further actions.
static HANDLED: AtomicBool = AtomicBool::new(false);

impl SignalRequest {
    /// The time that a program without steps is recorded for.
    const DURATION: Duration = Duration::from_secs(5);

    fn register(steps: u64, folder: Option<PathBuf>, wake: &UnixStream) -> io::Result<Self> {
        let caught = Arc::new(AtomicBool::new(false));
        // Actions run in this order.
        let set = flag::register(SIGUSR2, Arc::clone(&caught))?;
        let woken = low_level::pipe::register(SIGUSR2, wake.try_clone()?)?;
        HANDLED.store(true, Ordering::Relaxed);
        Ok(Self { steps, folder, caught, actions: [set, woken], requested: None })
    }

    /// Asks for a window if the signal has come, unless one that it asked for is still being recorded.
    fn look(&mut self, control: &Control) {
        let is_busy = self.requested.as_ref().is_some_and(|requested| !requested.progress().is_over());
        if !self.caught.swap(false, Ordering::SeqCst) || is_busy {
            return;
        }
        let request = match control.status().has_steps {
            true => RecordRequest::steps(self.steps),
            false => RecordRequest::duration(Self::DURATION),
        };
        let request = match &self.folder {
            Some(folder) => request.into_dir(folder),
            None => request,
        };
        let requested = control.record(request);
        self.requested = Some(requested.clone());
        let tell = move || {
            // `eprintln!` would panic if standard error is closed.
            let _ = match requested.wait() {
                Ok(recorded) => {
                    let files: Vec<_> = recorded.files.iter().map(|file| file.display().to_string()).collect();
                    writeln!(io::stderr(), "kernspan: recorded {} steps: {}", recorded.steps, files.join(" "))
                }
                Err(problem) => writeln!(io::stderr(), "kernspan: SIGUSR2 recorded nothing: {problem}"),
            };
        };
        // Without the thread, the window is recorded all the same.
        let _ = spawn("kernspan-signal", tell);
    }

    fn unregister(&self) {
        for action in self.actions {
            low_level::unregister(action);
        }
    }
}

/// Whether the signal may be handled, if it has its default action or not.
pub(crate) fn is_free(has_default_action: bool) -> bool {
    has_default_action || HANDLED.load(Ordering::Relaxed)
}

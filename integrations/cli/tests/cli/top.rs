//! Tests of `top --pid` in a real terminal.

use super::live::Training;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    num::NonZero,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// A terminal in which the program runs, until this is dropped.
struct Screen {
    terminal: File,
    parser: Arc<Mutex<vt100::Parser>>,
    program: Child,
}

impl Screen {
    fn open(training: &Training, (columns, rows): (u16, u16)) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = File::options().read(true).write(true).open(path).unwrap();
        let stdio = || Stdio::from(OwnedFd::from(side.try_clone().unwrap()));
        tcsetwinsize(&side, size(columns, rows)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernspan"));
        command.args(["top", "--pid", &training.pid()]).env("XDG_RUNTIME_DIR", training.folder.path());
        command.env("TERM", "xterm-256color").current_dir(training.folder.path());
        let program = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(non_zero(rows), non_zero(columns), 0)));
        let mut terminal = File::from(terminal);
        let (written, mut output) = (Arc::clone(&parser), terminal.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                written.lock().unwrap().process(&bytes[..read]);
            }
        });
        terminal.flush().unwrap();
        Self { terminal, parser, program }
    }

    fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    fn shows(&self, text: &str) {
        let until = Instant::now() + Duration::from_secs(300);
        while !self.text().contains(text) {
            assert!(Instant::now() < until, "no `{text}` on the screen:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, key: &str) {
        self.terminal.write_all(key.as_bytes()).unwrap();
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.parser.lock().unwrap().screen_mut().set_size(non_zero(rows), non_zero(columns));
        tcsetwinsize(&self.terminal, size(columns, rows)).unwrap();
        // The program has no controlling terminal, which would send it.
        kill_process(Pid::from_child(&self.program), Signal::WINCH).unwrap();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn non_zero(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn a_running_program_is_watched_and_recorded() {
    let training = Training::start(1);
    let mut screen = Screen::open(&training, (80, 24));
    screen.shows("steps/s, median");
    screen.shows("train_step");
    screen.shows("r record  o page  ? help  q quit");
    screen.press("?");
    screen.shows("show or hide this help");
    screen.press("?r");
    screen.shows("recorded steps ");
    screen.shows("Findings of the window");
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names = std::fs::read_dir(training.folder.path()).unwrap().flatten().map(name);
    let folder = names.find(|name| name.starts_with("kernspan-") && name.ends_with(&training.pid())).unwrap();
    assert_eq!(std::fs::read_dir(training.folder.path().join(folder)).unwrap().count(), 3);
    screen.resize(140, 40);
    screen.shows(&format!("{}─", "─".repeat(100)));
    screen.press("q");
    let ended = screen.program.wait().unwrap();
    assert!(ended.success(), "{ended}");
    let until = Instant::now() + Duration::from_secs(60);
    while screen.parser.lock().unwrap().screen().alternate_screen() {
        assert!(Instant::now() < until, "the terminal is not as it was");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_viewer_that_dies_or_hangs_changes_nothing() {
    let training = Training::start(1);
    let step = || training.json(&["status", "--json", "--pid", &training.pid()])["step"].as_u64().unwrap();
    let [mut killed, stopped] = [(); 2].map(|()| Screen::open(&training, (80, 24)));
    killed.shows("train_step");
    stopped.shows("train_step");
    killed.program.kill().unwrap();
    kill_process(Pid::from_child(&stopped.program), Signal::STOP).unwrap();
    let before = step();
    let until = Instant::now() + Duration::from_secs(300);
    while step() < before + 500 {
        assert!(Instant::now() < until, "the training hangs");
    }
    kill_process(Pid::from_child(&stopped.program), Signal::CONT).unwrap();
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let training = Training::start(1);
    let run = training.run(&["top", "--pid", &training.pid()]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("kernspan status --pid"), "{}", run.err);
    let none = training.run(&["top", "--pid", "999999999"]);
    assert_ne!(none.code, 0);
}

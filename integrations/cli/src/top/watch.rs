//! Watches a running program in the terminal until a key is pressed.

use super::{
    gpus,
    screen::{self, Styles},
    view::{View, shown},
};
use crate::fault::Fault;
use kernspan::control::{
    Client,
    protocol::{Live, Record, RecordProgress, RecordedWindow, WATCH_EVERY},
};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

/// The number of steps that `r` records.
const STEPS: u64 = 10;
/// How long to wait for a key before the screen is drawn again.
const PATIENCE: Duration = Duration::from_millis(100);

/// News from the other threads.
enum News {
    Live(Box<Live>),
    /// The program cannot be watched any more.
    Ended(String),
    Gpus(Vec<gpus::GpuReading>),
    Progress(RecordProgress),
    Answer(Result<RecordedWindow, String>),
}

/// Watches the process with this id.
pub(super) fn watch(pid: u32) -> Result<(), Fault> {
    if !io::stdout().is_terminal() {
        return Err(Fault::Usage(
            "`kernspan top --pid` needs a terminal; `kernspan status --pid` prints the state once".to_owned(),
        ));
    }
    // Errors are printed before the screen changes.
    let client = Client::of_process(pid).map_err(|error| Fault::Failed(error.to_string()))?;
    let (news, received) = mpsc::channel();
    let of_run = news.clone();
    thread::spawn(move || follow(client, &of_run));
    let of_gpus = news.clone();
    thread::spawn(move || {
        let Some(mut read) = gpus::reader() else { return };
        while of_gpus.send(News::Gpus(read())).is_ok() {
            thread::sleep(gpus::EVERY);
        }
    });
    let styles = Styles::from_env();
    let mut view = View::default();
    // It restores the terminal if this panics, too.
    let mut terminal = ratatui::try_init()?;
    let watched = loop {
        for news in received.try_iter() {
            match news {
                News::Live(live) => view.take(*live),
                News::Ended(reason) => view.ended = Some(reason),
                News::Gpus(gpus) => view.gpus = gpus,
                News::Progress(progress) => view.progress(progress),
                News::Answer(answer) => view.answered(answer),
            }
        }
        if let Err(error) = terminal.draw(|frame| screen::draw(frame, &view, styles)) {
            break Err(error);
        }
        match pressed() {
            Ok(None) => {}
            Ok(Some(Key::Quit)) => break Ok(()),
            Ok(Some(Key::Help)) => view.shows_help = !view.shows_help,
            Ok(Some(Key::Page)) if view.page.is_some() => {
                view.message = view.page.as_deref().map(shown);
            }
            Ok(Some(Key::Record | Key::Page)) => record(pid, &mut view, &news),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    Ok(watched?)
}

/// Sends the states of the run until it ends.
fn follow(client: Client, news: &Sender<News>) {
    let watching = client.watch(WATCH_EVERY).and_then(|states| {
        for live in states {
            if news.send(News::Live(Box::new(live?))).is_err() {
                break;
            }
        }
        Ok(())
    });
    let reason = watching.err().map_or_else(|| "the program has ended".to_owned(), |error| error.to_string());
    let _ = news.send(News::Ended(reason));
}

/// Asks for a window, on a thread and a connection of its own.
fn record(pid: u32, view: &mut View, news: &Sender<News>) {
    if view.asking {
        view.message = Some("a window is being recorded already".to_owned());
        return;
    }
    let folder = match folder(&view.live.status.program, pid) {
        Ok(folder) => folder,
        Err(error) => {
            view.message = Some(format!("cannot find the current folder: {error}"));
            return;
        }
    };
    view.asking = true;
    let news = news.clone();
    thread::spawn(move || {
        let request = Record { out: Some(folder), ..Record::steps(STEPS) };
        let progress = |progress| drop(news.send(News::Progress(progress)));
        let answer = Client::of_process(pid).and_then(|mut client| client.record(&request, progress));
        let _ = news.send(News::Answer(answer.map_err(|error| error.to_string())));
    });
}

/// Returns the folder for the windows of a program: each has files of its own there.
fn folder(program: &str, pid: u32) -> io::Result<PathBuf> {
    let name: String =
        program.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    Ok(std::env::current_dir()?.join(format!("kernspan-{name}-{pid}")))
}

/// A key with a meaning.
enum Key {
    Quit,
    Help,
    Record,
    Page,
}

/// Waits a moment for a key.
fn pressed() -> io::Result<Option<Key>> {
    if !event::poll(PATIENCE)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        KeyCode::Char('c') if control => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('?' | 'h') => Some(Key::Help),
        KeyCode::Char('r') => Some(Key::Record),
        KeyCode::Char('o') => Some(Key::Page),
        _ => None,
    })
}

//! Draws the terminal's view of a running program, at any size.

use super::{gpus::GpuReading, view::View};
use kernspan::units;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span, Text},
    widgets::{Block, Borders, Clear, Padding, Paragraph, Sparkline, Wrap},
};
use std::time::Duration;

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Styles {
    colour: bool,
}

impl Styles {
    /// Uses colours unless `NO_COLOR` is set, or the terminal has none.
    pub(super) fn from_env() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colour: !is_set("NO_COLOR") && !dumb }
    }

    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Self { colour: false }
    }

    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

const HELP: &str = "\
r  record a window of 10 steps, with files in a new folder here
o  show the path of the last window's HTML page, recording one if needed
?  show or hide this help
q  quit; the program that is watched goes on

Spans are found by looking at all threads 50 times a second: those of a few
milliseconds may be missing. A window has all of them, with kernels.";

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View, styles: Styles) {
    let gpus = view.gpus.len() as u16 + view.live.memory.len() as u16;
    let findings = view.live.last_window.as_ref().map_or(0, |window| window.findings.len().min(3) as u16);
    let counters = view.counters.len().min(4) as u16;
    let [head, steps, counted, memory, spans, found, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(if counters > 0 { counters + 1 } else { 0 }),
        Constraint::Length(if gpus > 0 { gpus.min(6) + 1 } else { 0 }),
        Constraint::Min(4),
        Constraint::Length(if view.live.last_window.is_some() { findings.max(1) + 1 } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(view, styles), head);
    draw_steps(frame, steps, view, styles);
    draw_counters(frame, counted, view, styles);
    draw_memory(frame, memory, view, styles);
    draw_spans(frame, spans, view, styles);
    draw_findings(frame, found, view, styles);
    frame.render_widget(footer(view, styles), foot);
    if view.shows_help {
        draw_help(frame);
    }
}

fn title<'a>(view: &'a View, styles: Styles) -> Line<'a> {
    let status = &view.live.status;
    let rank =
        if status.world_size > 1 { format!("  rank {}/{}", status.rank, status.world_size) } else { String::new() };
    let mut spans = vec![
        Span::from(status.program.as_str()).add_modifier(Modifier::BOLD),
        Span::from(format!("  pid {}{rank}  step {}  ", status.pid, status.step)),
    ];
    spans.push(match (&view.ended, status.recording) {
        (Some(_), _) => Span::styled("ended", styles.of(Color::Red)),
        (None, true) => Span::styled("recording", styles.of(Color::Yellow)),
        (None, false) => Span::styled(status.phase.as_str(), styles.of(Color::Green)),
    });
    spans.push(Span::from(format!("  {} windows", status.windows)));
    if !status.records_gpu && !status.gpu.is_empty() {
        spans.push(Span::styled(format!("  {}", status.gpu), styles.of(Color::DarkGray)));
    }
    Line::from(spans)
}

/// Returns a block with a rule above it.
fn section(name: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(name)
}

fn draw_steps(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    let rate = view.live.status.steps_per_second;
    let rate = rate.map_or_else(|| "no steps yet".to_owned(), |rate| format!("{} steps/s", digits(rate)));
    let times = view.step_times().map_or_else(String::new, |times| {
        let [median, p95, longest] = [times.median, times.p95, times.longest].map(units::time);
        format!(", median {median}, 95th percentile {p95}, longest {longest}")
    });
    let block = section(format!(" Steps: {rate}{times} "));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let last: Vec<u64> = last(view.steps.iter().copied(), inner.width);
    frame.render_widget(Sparkline::default().data(last).style(styles.of(Color::Cyan)), inner);
}

fn draw_counters(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    let block = section(" Counters ".to_owned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    for (row, (name, values)) in inner.rows().zip(&view.counters) {
        let latest = values.back().copied().unwrap_or(f64::NAN);
        let text = format!("{:<20.20} {:>10}  ", name, digits(latest));
        let [label, line] = Layout::horizontal([Constraint::Length(33), Constraint::Min(0)]).areas(row);
        frame.render_widget(Line::from(text), label);
        if width > 40 {
            // A sparkline has whole numbers from zero on.
            let finite = values.iter().copied().filter(|value| value.is_finite());
            let (least, most) =
                finite.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
            let scaled =
                values.iter().map(|value| ((value - least) / (most - least).max(f64::MIN_POSITIVE) * 100.0) as u64);
            let data: Vec<u64> = last(scaled, line.width);
            frame.render_widget(Sparkline::default().data(data).max(100).style(styles.of(Color::Magenta)), line);
        }
    }
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    let gpus = view.gpus.iter().map(|gpu| gpu_line(gpu, styles));
    let memory = view.live.memory.iter().map(|(name, bytes)| {
        Line::from(format!("{:<24} {}", name.trim_start_matches("memory."), units::bytes(*bytes)))
    });
    let lines: Vec<Line<'_>> = gpus.chain(memory).collect();
    let name = if view.gpus.is_empty() { " Memory " } else { " GPUs and memory " };
    frame.render_widget(Paragraph::new(Text::from(lines)).block(section(name.to_owned())), area);
}

fn gpu_line<'a>(gpu: &GpuReading, styles: Styles) -> Line<'a> {
    let unknown = || units::NOTHING.to_owned();
    let busy = gpu.busy_percent.map_or_else(unknown, |percent| format!("{percent} %"));
    let memory =
        gpu.memory.map_or_else(unknown, |(used, all)| format!("{} of {}", units::bytes(used), units::bytes(all)));
    let power = gpu.watts.map_or_else(unknown, |watts| format!("{watts:.0} W"));
    let celsius = gpu.celsius.map_or_else(unknown, |celsius| format!("{celsius} °C"));
    let name = format!("{} {}", gpu.index, gpu.name);
    Line::from(vec![
        Span::from(format!("{name:<24.24} ")),
        Span::styled(format!("{busy:>4} busy  "), styles.of(Color::Cyan)),
        Span::from(format!("{memory:<24}{power:>6}  {celsius:>6}")),
    ])
}

fn draw_spans(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    const BAR: usize = 10;
    let block = section(" Spans of the last second, by their own time in threads ".to_owned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if view.live.spans.is_empty() {
        frame.render_widget(Line::from("no span was open").style(styles.of(Color::DarkGray)), inner);
        return;
    }
    let width = usize::from(inner.width);
    let most = view.live.spans.iter().map(|span| span.self_threads).fold(f64::MIN_POSITIVE, f64::max);
    for (row, span) in inner.rows().zip(&view.live.spans) {
        let filled = ((span.self_threads / most * BAR as f64).round() as usize).min(BAR);
        let bar = format!("{}{}", "█".repeat(filled), " ".repeat(BAR - filled));
        let figures = format!(" {:>5.2} of {:>5.2}  ", span.self_threads, span.threads);
        let left = width.saturating_sub(BAR + figures.len());
        let place = span.location.as_deref().filter(|_| left > 50).unwrap_or_default();
        let name_width = left.saturating_sub(place.chars().count() + 1);
        let line = Line::from(vec![
            Span::styled(bar, styles.of(Color::Cyan)),
            Span::from(figures),
            Span::from(format!("{:<name_width$.name_width$} ", span.name)),
            Span::styled(place, styles.of(Color::DarkGray)),
        ]);
        frame.render_widget(line, row);
    }
}

fn draw_findings(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    let Some(window) = &view.live.last_window else { return };
    let age = units::time(Duration::from_millis(window.age_ms));
    let steps = window
        .first_step
        .map_or_else(String::new, |first| format!(", steps {first} to {}", first + window.steps.max(1) - 1));
    let block = section(format!(" Findings of the window {age} ago{steps} "));
    let mut lines: Vec<Line<'_>> =
        window.findings.iter().take(3).map(|finding| Line::from(finding.to_string())).collect();
    if lines.is_empty() {
        lines.push(Line::from("none").style(styles.of(Color::DarkGray)));
    }
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), area);
}

fn footer<'a>(view: &'a View, styles: Styles) -> Line<'a> {
    match view.ended.as_ref().or(view.message.as_ref()) {
        Some(message) => Line::from(message.as_str()).style(styles.of(Color::Yellow)),
        None => Line::from("r record  o page  ? help  q quit").style(styles.of(Color::DarkGray)),
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let height = (HELP.lines().count() as u16 + 2).min(area.height);
    let width = 80.min(area.width);
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(ratatui::layout::Flex::Center).areas(area);
    let [help] = Layout::horizontal([Constraint::Length(width)]).flex(ratatui::layout::Flex::Center).areas(row);
    let block = Block::bordered().title(" Keys ".bold()).padding(Padding::horizontal(1));
    frame.render_widget(Clear, help);
    frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }).block(block), help);
}

/// Returns the last values that fit.
fn last(values: impl DoubleEndedIterator<Item = u64>, width: u16) -> Vec<u64> {
    let mut last: Vec<u64> = values.rev().take(usize::from(width)).collect();
    last.reverse();
    last
}

/// Formats a number with four significant digits.
fn digits(number: f64) -> String {
    match number.abs() {
        _ if !number.is_finite() => number.to_string(),
        0.0 => "0".to_owned(),
        size if !(1e-3..1e6).contains(&size) => format!("{number:.3e}"),
        size => format!("{number:.*}", (3 - size.log10().floor() as i32).clamp(0, 6) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::{Styles, draw};
    use crate::top::{gpus::GpuReading, view::View};
    use kernspan::control::protocol::Live;
    use ratatui::{Terminal, backend::TestBackend};

    /// A state as a program sends it.
    const LIVE: &str = r#"{
        "status": {"program": "train", "pid": 4711, "rank": 1, "world_size": 4, "host": "node7", "step": 41250,
            "has_steps": true, "steps_per_second": 21.43, "phase": "wait", "schedule": "by hand", "windows": 2,
            "gpu": "one GPU", "records_gpu": true},
        "steps": [],
        "counters": {"loss": 2.0, "learning_rate": 0.0003, "accuracy": "NaN"},
        "memory": {"memory.process": 1503238553, "memory.gpu0": 6442450944},
        "spans": [
            {"name": "backward", "location": "src/train.rs:88", "threads": 0.62, "self_threads": 0.41},
            {"name": "attention", "location": "src/model/attention.rs:120", "threads": 0.2, "self_threads": 0.2},
            {"name": "a span whose name is far too long for any terminal that people use at work", "threads": 1.0,
                "self_threads": 0.05}],
        "samples": 50,
        "last_window": {"window": 1, "age_ms": 83000, "first_step": 40000, "steps": 10, "findings": [
            {"kind": "host-sync", "title": "`loss.item()` waits for the GPU in train_step", "saving_ns": 4200000,
                "step_ns": 46660000}], "spans": []}
    }"#;

    fn view() -> View {
        let mut view = View::default();
        let mut live: Live = serde_json::from_str(LIVE).unwrap();
        for step in 0..120_u64 {
            let number = 41_000 + step;
            let duration_ns = if step % 40 == 39 { 140_000_000 } else { 46_000_000 + step * 10_000 };
            let step = format!(r#"{{"number": {number}, "duration_ns": {duration_ns}, "recorded": false}}"#);
            live.steps = vec![serde_json::from_str(&step).unwrap()];
            live.counters.insert("loss".to_owned(), kernspan::control::protocol::Number(2.0 - number as f64 / 1e5));
            view.take(live.clone());
        }
        view.gpus.push(GpuReading {
            index: 0,
            name: "NVIDIA H200".to_owned(),
            busy_percent: Some(93),
            memory: Some((6_442_450_944, 150_000_000_000)),
            watts: Some(612.4),
            celsius: None,
        });
        view
    }

    fn shown(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, Styles::plain())).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
        (0..height).map(row).collect()
    }

    #[test]
    fn the_screen_is_as_it_was() {
        let mut view = view();
        let mut screens = format!("{}\n{}\n", shown(&view, 80, 24), shown(&view, 132, 30));
        view.shows_help = true;
        screens += &shown(&view, 80, 24);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/top.txt");
        if std::env::var_os("KERNSPAN_BLESS").is_some() {
            std::fs::write(path, &screens).unwrap();
        }
        assert_eq!(screens, std::fs::read_to_string(path).unwrap(), "KERNSPAN_BLESS=1 accepts the new screens");
    }

    #[test]
    fn any_size_is_drawn() {
        let (full, empty) = (view(), View::default());
        for width in [1, 2, 10, 33, 40, 80, 300] {
            for height in [1, 2, 5, 10, 24, 100] {
                shown(&full, width, height);
                shown(&empty, width, height);
            }
        }
        assert!(shown(&empty, 80, 24).contains("no steps yet"));
    }
}

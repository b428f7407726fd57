//! The width of printed tables, and of the terminal.

/// The most columns of text that a printed table takes, if no other width was set.
///
/// It does not depend on the terminal, so that the same report prints the same text wherever it is printed.
pub(super) const WIDTH: usize = 120;

/// Returns the number of columns of the terminal, or `None` if standard output is no terminal.
pub(super) fn terminal_width() -> Option<usize> {
    #[cfg(unix)]
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let columns = None;
    columns.filter(|&columns| columns > 0)
}

//! The table that the bench prints at its end.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// The rows so far.
#[derive(Default)]
pub(crate) struct Table {
    rows: String,
}

/// The limit of a ratio or a value.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// The number is only reported.
    None,
    AtMost(f64),
    /// Like [`Self::AtMost`]; the first number is what we aim for.
    Aim(f64, f64),
    AtLeast(f64),
}

impl Table {
    /// A row of two times, with a limit on their ratio.
    pub(crate) fn times(&mut self, what: &str, floor: Duration, measured: Duration, limit: Limit) {
        let ratio = measured.as_secs_f64() / floor.as_secs_f64();
        self.row(what, &time(floor), &time(measured), &format!("{ratio:.2}"), &limit.judge(ratio, ""));
    }

    /// A row with texts of the caller.
    pub(crate) fn row(&mut self, what: &str, floor: &str, measured: &str, ratio: &str, limit: &str) {
        writeln!(self.rows, "| {what} | {floor} | {measured} | {ratio} | {limit} |")
            .expect("a string takes everything");
    }

    /// Prints the table, and writes it to the target directory.
    pub(crate) fn publish(&self) {
        let text = format!(
            "| what | floor | measured | ratio | limit |\n| --- | --- | --- | --- | --- |\n{}",
            self.rows
        );
        let target =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
        fs::write(target.join("bench-session.md"), &text).unwrap();
        std::io::stdout().lock().write_all(text.as_bytes()).unwrap();
    }
}

impl Limit {
    /// The limit as text, marked if the value misses it.
    pub(crate) fn judge(self, value: f64, unit: &str) -> String {
        let (is_kept, text) = match self {
            Self::None => return String::new(),
            Self::Aim(aim, limit) => (value <= limit, format!("≤ {limit}{unit}, aim {aim}")),
            Self::AtMost(limit) => (value <= limit, format!("≤ {limit}{unit}")),
            Self::AtLeast(limit) => (value >= limit, format!("≥ {limit}{unit}")),
        };
        if is_kept { text } else { format!("{text}, **missed**") }
    }
}

/// A time in microseconds, or in milliseconds if it is long.
pub(crate) fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1000.0) }
}

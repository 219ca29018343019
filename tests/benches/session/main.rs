//! The cost of bash and Python sessions, compared with the cost of the same work without a session.
//!
//! Build the workers first: `cargo build --release --workspace`. Then `cargo bench -p rlm-tests --bench session` shows
//! Criterion's report on each timed thing, prints a Markdown table of costs, floors and limits, and writes that table
//! to `bench-session.md` in Cargo's target directory. It takes about three minutes, in which nothing else should run.
//!
//! A *floor* is the least work that could do the job, in the same run: the ratio to it says more than a time does. Each
//! number of the table is a median over rounds in which the thing and its floor take turns, so that both see the same
//! machine. A missed limit is marked in the table, but does not fail the bench: the figures are for people.

mod checkpoints;
mod fifo_floor;
mod fork_server;
mod host;
mod idle;
mod language;
mod many;
mod output;
mod placement;
mod printing;
mod round_trip;
mod saved;
mod start;
mod subject;
mod table;

use std::ffi::OsStr;
use std::path::Path;

use criterion::Criterion;

use crate::language::Language;
use crate::table::Table;

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let [first, dir] = arguments.as_slice()
        && first == fifo_floor::PEER_ARGUMENT
    {
        return fifo_floor::peer(Path::new(dir));
    }
    if !arguments.iter().any(|argument| argument == OsStr::new("--bench")) {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let mut table = Table::default();
    let languages = [Language::bash(), Language::python()];
    round_trip::bench(&mut criterion, &mut table, &languages);
    start::bench(&mut criterion, &mut table);
    output::bench(&mut criterion, &mut table);
    printing::bench(&mut criterion, &mut table, &languages[1]);
    idle::bench(&mut table, &languages);
    many::bench(&mut criterion, &mut table);
    saved::bench(&mut table);
    checkpoints::bench(&mut table);
    fork_server::bench(&mut table);
    criterion.final_summary();
    table.publish();
}

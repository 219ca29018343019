//! End-to-end tests: the built programs, over real FIFOs.

mod answer;
mod callbacks;
mod cli;
mod embedding;
mod endings;
mod environment;
mod exits;
mod faults;
mod hostile_shell;
mod limits;
mod mcp;
mod ops;
mod ordinary_host;
mod output;
mod persistence;
mod python;
mod replay;
mod rollouts;
mod root_tools;
mod run;
mod session;
mod standard_input;
mod syntax;
mod tool;
mod view;
mod wire;

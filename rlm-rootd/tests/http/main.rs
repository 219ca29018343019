//! The endpoint over its sockets: in this process, and the built program.

mod admin;
mod admission;
mod arguments;
mod bodies;
mod callbacks;
mod cancellation;
mod connections;
mod in_process;
mod large;
mod llm;
mod metrics;
mod models;
mod nav;
mod program;
mod programs;
mod python;
mod refusals;
mod results;
mod support;

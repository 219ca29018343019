//! Warnings of libraries, on standard error.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use indicatif::ProgressBar;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::lock::lock;

/// Prints warnings as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings {
    /// The progress bar on standard error.
    bar: Arc<Mutex<Option<ProgressBar>>>,
}

impl Warnings {
    /// Starts printing the warnings of our own libraries.
    pub(crate) fn start() -> Self {
        let warnings = Self::default();
        let ours = ["rlm_core", "rlm_env", "rlm_rootd"].map(|library| (library, LevelFilter::WARN));
        tracing_subscriber::registry()
            .with(warnings.clone().with_filter(Targets::new().with_targets(ours)))
            .init();
        warnings
    }

    /// Prints a message as warnings are printed.
    pub(crate) fn say(&self, message: impl fmt::Display) {
        let bar = lock(&self.bar).clone();
        match bar {
            Some(bar) => bar.suspend(|| crate::tell(message)),
            None => crate::tell(message),
        }
    }

    /// Prints them above this bar from now on.
    pub(crate) fn print_above(&self, bar: &ProgressBar) {
        *lock(&self.bar) = Some(bar.clone());
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        self.say(text);
    }
}

/// The text of an event, in one line.
#[derive(Debug, Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _always_ok = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl fmt::Display for EventText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rlm: warning: {}", format!("{}{}", self.message, self.fields).replace('\n', " "))
    }
}

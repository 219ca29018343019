//! A report, in words, of the files that copies of contexts leave out.

use std::collections::BTreeSet;
use std::sync::Mutex;

use rlm_core::text::{counted, one_line};
use rlm_env::rollout::{LeftOut, LeftOutReason};
use rlm_env::trajectory::{Entry, Event, Sink};

use crate::lock::lock;
use crate::warnings::Warnings;

/// Says what the contexts of a run leave out, once each.
#[derive(Debug)]
pub(crate) struct LeftOutNotices {
    warnings: Warnings,
    said: Mutex<BTreeSet<String>>,
}

impl LeftOutNotices {
    pub(crate) fn new(warnings: &Warnings) -> Self {
        Self { warnings: warnings.clone(), said: Mutex::default() }
    }
}

impl Sink for LeftOutNotices {
    fn entry(&self, entry: &Entry) {
        let Event::RolloutStarted(started) = &entry.event else { return };
        if entry.depth > 0 {
            // Code has chosen what it gets.
            return;
        }
        let Some(words) = words(&started.context_left_out, "--gitignore false") else { return };
        if lock(&self.said).insert(words.clone()) {
            self.warnings.say(format_args!("rlm: {words}"));
        }
    }
}

/// The files that a copy left out, in one line; None if there are none. `switch` turns the rules of `.gitignore` off.
pub(crate) fn words(left_out: &[LeftOut], switch: &str) -> Option<String> {
    let each = |left_out: &LeftOut| match left_out.reason {
        LeftOutReason::Gitignore => format!("{} (.gitignore; {switch} copies them)", names(left_out)),
        LeftOutReason::Exclude => format!("{} (exclude)", names(left_out)),
        LeftOutReason::SymbolicLink => counted(left_out.count, "symbolic link"),
        _ => counted(left_out.count, "special file"),
    };
    let all: Vec<String> = left_out.iter().map(each).collect();
    (!all.is_empty()).then(|| format!("left out of the context: {}", all.join(", ")))
}

/// The first names, and the number of the others.
fn names(left_out: &LeftOut) -> String {
    let names: Vec<String> = left_out.names.iter().map(|name| one_line(name)).collect();
    match left_out.count.saturating_sub(names.len() as u64) {
        0 => names.join(", "),
        others => format!("{} and {}", names.join(", "), counted(others, "other")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn left_out(reason: &str, count: u64, names: &[&str]) -> LeftOut {
        serde_json::from_value(json!({"reason": reason, "count": count, "names": names})).unwrap()
    }

    #[test]
    fn the_first_names_come_before_counts() {
        assert_eq!(words(&[], ""), None);
        let all = [
            left_out("gitignore", 4, &[".git/", "target/", "a\nb"]),
            left_out("exclude", 1, &["data/"]),
            left_out("symbolic_link", 2, &["link", "way"]),
            left_out("special", 1, &["fifo"]),
        ];
        assert_eq!(
            words(&all, "--gitignore false").unwrap(),
            "left out of the context: .git/, target/, a b and 1 other (.gitignore; --gitignore false copies them), data/ \
             (exclude), 2 symbolic links, 1 special file"
        );
    }
}

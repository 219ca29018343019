//! The cases: each checks one promise of `docs/protocol.md`, and quotes it.

mod endings;
mod fifos;
mod files;
mod history;
mod input;
mod operations;
mod requests;
mod responses;

use rlm_env::ReplLanguage;

use super::check::Check;
use super::host::Stand;

pub(super) use self::operations::info;

/// A case.
#[derive(Debug)]
pub(super) struct Case {
    /// The stable name of the case.
    pub(super) id: &'static str,
    /// The section of `docs/protocol.md` with the promise.
    pub(super) section: &'static str,
    /// The promise, in the words of the section.
    pub(super) promise: &'static str,
    /// Knowledge of the worker's language without which the case is skipped.
    pub(super) needs: Needs,
    /// Checks the promise. Each case has a stand of its own.
    pub(super) run: fn(&Stand<'_>) -> Check,
}

/// Knowledge of a worker's language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// No knowledge: the case runs no code.
    Nothing,
    /// Any language that the suite has code for.
    Any,
    /// This language.
    Only(ReplLanguage),
}

/// A case that runs code in the worker's language.
const fn case(
    id: &'static str,
    section: &'static str,
    promise: &'static str,
    run: fn(&Stand<'_>) -> Check,
) -> Case {
    Case { id, section, promise, needs: Needs::Any, run }
}

/// A case that runs no code.
const fn plain(
    id: &'static str,
    section: &'static str,
    promise: &'static str,
    run: fn(&Stand<'_>) -> Check,
) -> Case {
    Case { id, section, promise, needs: Needs::Nothing, run }
}

/// All cases, in the order of the document.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    let groups = [
        files::CASES,
        fifos::CASES,
        requests::CASES,
        operations::CASES,
        responses::CASES,
        history::CASES,
        input::CASES,
        endings::CASES,
    ];
    groups.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The document's sections: heading and text, with single spaces.
    fn sections() -> Vec<(String, String)> {
        let document = include_str!("../../../../docs/protocol.md");
        let mut sections = vec![(String::new(), String::new())];
        for line in document.lines() {
            match line.strip_prefix("##") {
                Some(heading) => {
                    sections.push((heading.trim_start_matches('#').trim().to_owned(), String::new()))
                }
                None => {
                    let (_, text) = sections.last_mut().unwrap();
                    text.push_str(line.trim());
                    text.push(' ');
                }
            }
        }
        sections
    }

    #[test]
    fn each_promise_is_a_quotation_from_its_section() {
        let sections = sections();
        for case in all() {
            let text = sections.iter().find_map(|(heading, text)| (heading == case.section).then_some(text));
            let text = text.unwrap_or_else(|| panic!("{}: no section {}", case.id, case.section));
            assert!(text.contains(case.promise), "{}: {:?} is not in {text}", case.id, case.promise);
        }
    }

    #[test]
    fn ids_differ() {
        let ids: HashSet<_> = all().map(|case| case.id).collect();
        assert_eq!(ids.len(), all().count());
    }
}

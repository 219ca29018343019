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
use super::host::{Stand, Worker};

pub(super) use self::operations::info;

/// A case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The stable name of the case.
    pub(super) id: &'static str,
    /// The section of `docs/protocol.md` with the promise. Empty in the list of a group: that of the group.
    pub(super) section: &'static str,
    /// The promise, in the words of the section.
    pub(super) promise: &'static str,
    /// Knowledge of the worker's language without which the case is skipped.
    pub(super) needs: Needs,
    /// Checks the promise. Each case has a stand of its own.
    pub(super) run: Run,
}

/// The check of a case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// With a worker that is ready.
    Started(fn(&mut Worker<'_>) -> Check),
    /// The check starts its workers.
    OnStand(fn(&Stand<'_>) -> Check),
}

impl Run {
    pub(super) fn on(self, stand: &Stand<'_>) -> Check {
        match self {
            Self::Started(check) => check(&mut stand.start()?),
            Self::OnStand(check) => check(stand),
        }
    }
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

/// The check of a worker, for a case that runs code in its language.
const fn case(id: &'static str, promise: &'static str, check: fn(&mut Worker<'_>) -> Check) -> Case {
    Case { id, section: "", promise, needs: Needs::Any, run: Run::Started(check) }
}

/// [`case`], for a case that runs no code.
const fn plain(id: &'static str, promise: &'static str, check: fn(&mut Worker<'_>) -> Check) -> Case {
    Case { needs: Needs::Nothing, ..case(id, promise, check) }
}

/// [`case`], for a case that starts its workers itself.
const fn case_on_stand(id: &'static str, promise: &'static str, check: fn(&Stand<'_>) -> Check) -> Case {
    Case { id, section: "", promise, needs: Needs::Any, run: Run::OnStand(check) }
}

/// [`case_on_stand`], for a case that runs no code.
const fn plain_on_stand(id: &'static str, promise: &'static str, check: fn(&Stand<'_>) -> Check) -> Case {
    Case { needs: Needs::Nothing, ..case_on_stand(id, promise, check) }
}

impl Case {
    /// The same case, for one language alone.
    const fn only(self, language: ReplLanguage) -> Self {
        Self { needs: Needs::Only(language), ..self }
    }

    /// The same case, of a promise in this section.
    const fn of(self, section: &'static str) -> Self {
        Self { section, ..self }
    }
}

/// All cases, in the order of the document.
pub(super) fn all() -> impl Iterator<Item = Case> {
    let groups = [
        (files::SECTION, files::CASES),
        (fifos::SECTION, fifos::CASES),
        (requests::SECTION, requests::CASES),
        ("reset", operations::RESET),
        ("set", operations::SET),
        ("info", operations::INFO),
        (responses::SECTION, responses::CASES),
        (history::SECTION, history::CASES),
        (input::SECTION, input::CASES),
        (endings::SECTION, endings::CASES),
    ];
    let in_group = |(section, cases): (&'static str, &'static [Case])| {
        cases.iter().map(move |case| if case.section.is_empty() { case.of(section) } else { *case })
    };
    groups.into_iter().flat_map(in_group)
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

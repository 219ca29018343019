//! The pieces of calls: marks, values and JSON.

use serde_json::{Map, Value as Json};

use super::json::{first_json, whole_json};
use super::marks::{AFTER_VALUES, THOUGHTS};
use super::scanner::{NEAR_BYTES, Scanner};
use super::written::{checked, without_breaks};

impl<'a> Scanner<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// Skips a mark and the white space before it, or nothing.
    pub(super) fn skip(&mut self, mark: &str) -> bool {
        let behind = self.rest().trim_start().strip_prefix(mark);
        self.at = behind.map_or(self.at, |behind| self.end - behind.len());
        behind.is_some()
    }

    /// Skips a mark behind line breaks, some of which GLM writes as a backslash and an `n`.
    pub(super) fn skip_breaks(&mut self, mark: &str) -> bool {
        while self.skip("\\n") {}
        self.skip(mark)
    }

    /// The text before a mark, if that is near.
    pub(super) fn until(&mut self, mark: &str) -> Option<&'a str> {
        let near = &self.rest()[..self.rest().floor_char_boundary(NEAR_BYTES)];
        let (before, _) = near.split_once(mark)?;
        self.at += before.len() + mark.len();
        Some(before)
    }

    /// The text before the first of these characters, if that is near.
    pub(super) fn before<const N: usize>(&mut self, chars: [char; N]) -> Option<&'a str> {
        let near = &self.rest()[..self.rest().floor_char_boundary(NEAR_BYTES)];
        let before = &near[..near.find(chars)?];
        self.at += before.len();
        Some(before)
    }

    pub(super) fn find_any(&mut self, marks: &[&'static str]) -> Option<usize> {
        marks.iter().filter_map(|mark| self.find(mark)).min()
    }

    /// The next place of a mark. The end of a value is found only where a value can end.
    pub(super) fn find(&mut self, mark: &'static str) -> Option<usize> {
        let (text, from) = (self.text, self.at);
        let known = self.found.get(mark).copied();
        let known = known.filter(|(start, found)| *start <= from && found.is_none_or(|found| from <= found));
        let known = known.unwrap_or_else(|| {
            let after = AFTER_VALUES.iter().find(|(end, _)| *end == mark).map(|(_, after)| *after);
            let is_of_thought = THOUGHTS.iter().any(|(_, close)| *close == mark);
            let searched = if is_of_thought { self.in_any_case(mark) } else { text };
            let mut places = searched[from..].match_indices(mark).map(|(place, _)| from + place);
            let found = places.find(|place| {
                let behind = text[place + mark.len()..].trim_start();
                after.is_none_or(|after| after.iter().any(|after| behind.starts_with(after)))
            });
            (from, found)
        });
        self.found.insert(mark, known);
        known.1.filter(|found| found + mark.len() <= self.end)
    }

    pub(super) fn value(&mut self, close: &'static str) -> Option<&'a str> {
        let end = self.find(close)?;
        let value = &self.text[self.at..end];
        self.at = end + close.len();
        self.values_end = self.at;
        Some(value)
    }

    /// Named parameters as a JSON object. Without the tool's schema, values are strings, unless an attribute says so.
    pub(super) fn parameters(&mut self, open: &str, close: &'static str) -> Option<String> {
        let mut parameters = Map::new();
        while self.skip(open) {
            let head = self.until(">")?;
            let (key, attributes) = head.split_once('"').unwrap_or((head, ""));
            let value = self.value(close)?;
            let value = match attributes.trim() {
                r#"string="true""# => value.into(),
                r#"string="false""# => whole_json(value).unwrap_or_else(|_| value.into()),
                _ => without_breaks(value).into(),
            };
            if parameters.insert(checked(key)?, value).is_some() {
                return None;
            }
        }
        Some(Json::Object(parameters).to_string())
    }

    /// A JSON object as written, or the faulty text before the closing mark, so that the model learns of the fault.
    pub(super) fn payload(&mut self, closes: &[&'static str]) -> Option<String> {
        self.object().or_else(|| {
            let end = self.find_any(closes)?;
            let written = self.text[self.at..end].trim();
            self.at = end;
            Some(written.to_owned())
        })
    }

    pub(super) fn object(&mut self) -> Option<String> {
        let (json, bytes) = first_json(self.rest())?;
        let written = json.is_object().then(|| self.rest()[..bytes].trim_start())?;
        self.at += bytes;
        Some(written.to_owned())
    }
}

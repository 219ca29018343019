//! The text of the demo: a year of letters to a bicycle-hire service, generated from sentences and always the same.
//!
//! The generator knows the topic of each letter and records it: [`Corpus::truth`] does not depend on the models.

use std::collections::BTreeMap;

use fastrand::Rng;
use rlm_env::Context;
use serde::Deserialize;

use crate::display::wrapped;

/// The sentences.
const SENTENCES: &str = include_str!("../../demo/letters.toml");

/// Seed of the random numbers, so that each run generates the same text.
const SEED: u64 = 2024;

const YEAR: u32 = 2024;

/// Letters of a month.
const LETTERS_A_MONTH: usize = 230;

/// Longest line of a letter.
const WIDTH: usize = 90;

/// The months: name, days, and numbers of letters on failed brakes with an injury, failed brakes without one, and injuries
/// with other causes. July has the most letters about brakes, January the most injuries with other causes.
const MONTHS: [(&str, u8, [usize; 3]); 12] = [
    ("January", 31, [5, 12, 12]),
    ("February", 29, [4, 11, 10]),
    ("March", 31, [6, 17, 6]),
    ("April", 30, [7, 19, 5]),
    ("May", 31, [6, 24, 4]),
    ("June", 30, [8, 26, 5]),
    ("July", 31, [9, 33, 4]),
    ("August", 31, [7, 28, 5]),
    ("September", 30, [6, 21, 4]),
    ("October", 31, [13, 16, 5]),
    ("November", 30, [8, 13, 7]),
    ("December", 31, [5, 12, 9]),
];

/// Topics of the other letters.
const OTHERS: [&str; 8] = ["good_brakes", "app", "payment", "tyre", "dock", "lost", "saddle", "wish"];

#[derive(Deserialize)]
struct Sentences {
    names: Vec<String>,
    stations: Vec<String>,
    streets: Vec<String>,
    openings: Vec<String>,
    small_talk: Vec<String>,
    closings: Vec<String>,
    weather: Vec<String>,
    daytime: Vec<String>,
    topic: BTreeMap<String, Topic>,
}

#[derive(Deserialize)]
struct Topic {
    subjects: Vec<String>,
    events: Vec<String>,
    outcomes: Vec<String>,
}

/// The letters, a file per month.
#[derive(Debug)]
pub(super) struct Corpus {
    /// Names and texts of the files.
    pub(super) files: Vec<(String, String)>,
    /// The month with the most people injured by brakes, and their number.
    pub(super) truth: String,
}

impl Corpus {
    /// Generates the letters.
    pub(super) fn new() -> Self {
        let sentences: Sentences = toml::from_str(SENTENCES).expect("the bundled sentences are valid");
        let mut writer = Writer { sentences, random: Rng::with_seed(SEED), tickets: 0 };
        let files = (1..).zip(MONTHS).map(|(number, (_, days, counts))| {
            (format!("{YEAR}-{number:02}.txt"), writer.month(number, days, counts))
        });
        let files = files.collect();
        let (month, _, [injured, ..]) =
            MONTHS.iter().max_by_key(|(_, _, [injured, ..])| injured).expect("a year has months");
        Self { files, truth: format!("{month} {YEAR}: {injured} people") }
    }

    /// The files as a context.
    pub(super) fn context(&self) -> Context {
        let files = self.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        Context::Files(files.collect())
    }

    /// The size of the letters in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.files.iter().map(|(_, text)| text.len()).sum()
    }
}

struct Writer {
    sentences: Sentences,
    random: Rng,
    tickets: u32,
}

impl Writer {
    /// The letters of a month, in the order of their dates, with a blank line between them.
    fn month(&mut self, number: u8, days: u8, [injured, unharmed, other_cause]: [usize; 3]) -> String {
        let mut topics = Vec::new();
        for (topic, count) in [("injured", injured), ("unharmed", unharmed), ("other_cause", other_cause)] {
            topics.extend(std::iter::repeat_n(topic, count));
        }
        while topics.len() < LETTERS_A_MONTH {
            topics.push(OTHERS[self.random.usize(..OTHERS.len())]);
        }
        self.random.shuffle(&mut topics);
        let letters = topics.len();
        let letter = |(at, topic): (usize, &str)| {
            let day = 1 + at * usize::from(days) / letters;
            self.letter(topic, &format!("{YEAR}-{number:02}-{day:02}"))
        };
        topics.into_iter().enumerate().map(letter).collect::<Vec<_>>().join("\n")
    }

    fn letter(&mut self, topic: &str, date: &str) -> String {
        self.tickets += 1 + self.random.u32(..3);
        let bike = self.random.u32(1000..5000);
        let (hour, minute) = (self.random.u32(7..22), self.random.u32(..60));
        let Self { sentences, random, .. } = self;
        let topic = &sentences.topic[topic];
        let small_talk = || &sentences.small_talk;
        let mut lists = vec![&sentences.openings, &topic.events, &topic.outcomes, &sentences.closings];
        for _ in 0..random.usize(1..4) {
            let at = random.choice([1, 3, lists.len() - 1]).expect("there are places");
            lists.insert(at, small_talk());
        }
        let body: Vec<String> =
            lists.into_iter().map(|list| fill(pick(list, random), bike, sentences, random)).collect();
        let subject = fill(pick(&topic.subjects, random), bike, sentences, random);
        let name = pick(&sentences.names, random);
        let ticket = self.tickets;
        format!(
            "Ticket {ticket:05}\nDate: {date} {hour:02}:{minute:02}\nFrom: {name}\nSubject: {subject}\n{}\n",
            wrapped(&body.join(" "), WIDTH)
        )
    }
}

fn pick<'a>(list: &'a [String], random: &mut Rng) -> &'a str {
    &list[random.usize(..list.len())]
}

/// The sentence with its holes filled.
fn fill(sentence: &str, bike: u32, sentences: &Sentences, random: &mut Rng) -> String {
    let mut text = String::new();
    let mut rest = sentence;
    while let Some((before, behind)) = rest.split_once('{') {
        let (hole, after) = behind.split_once('}').expect("a brace is closed");
        text += before;
        text += &match hole {
            "bike" => bike.to_string(),
            "station" => pick(&sentences.stations, random).to_owned(),
            "street" => pick(&sentences.streets, random).to_owned(),
            "weather" => pick(&sentences.weather, random).to_owned(),
            "daytime" => pick(&sentences.daytime, random).to_owned(),
            "years" => random.u32(2..9).to_string(),
            "minutes" => random.u32(5..50).to_string(),
            "stitches" => random.u32(3..8).to_string(),
            "amount" => random.u32(4..90).to_string(),
            "age" => random.u32(70..92).to_string(),
            other => unreachable!("nothing fills {{{other}}}"),
        };
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_are_a_megabyte_and_always_the_same() {
        let (one, other) = (Corpus::new(), Corpus::new());
        assert_eq!(one.files, other.files);
        assert_eq!(one.files.len(), 12);
        assert!(one.bytes() >= 1_000_000, "{}", one.bytes());
        assert_eq!(one.truth, "October 2024: 13 people");
        for (_, text) in &one.files {
            assert!(text.lines().all(|line| line.len() <= WIDTH + 10 && !line.contains(['{', '}'])));
            assert_eq!(text.matches("Ticket ").count(), LETTERS_A_MONTH);
        }
    }

    #[test]
    fn one_month_has_the_most_injuries() {
        let most = MONTHS.iter().map(|(_, _, [injured, ..])| injured).max().unwrap();
        assert_eq!(
            MONTHS.iter().filter(|(_, _, [injured, ..])| injured == most).count(),
            1,
            "one month is the answer"
        );
    }
}

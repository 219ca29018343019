//! The sub-LLM of the demo: reads the letters of its prompt by simple rules.

/// Phrases for failed brakes.
const FAILURES: [&str; 7] =
    ["gave way", "did anything", "snapped", "were so worn", "came off", "stopped working", "brake failed"];

/// Phrases for injuries.
const INJURIES: [&str; 8] = [
    "broke my wrist",
    "stitches",
    "bruised",
    "fractured",
    "sprained",
    "concussion",
    "teeth are chipped",
    "elbow bled",
];

/// Answers a prompt: for each letter in it a line with `yes` or `no`, yes if brakes failed and injured somebody.
pub(super) fn answer(prompt: &str) -> String {
    let letters = prompt.split("Ticket ").skip(1).filter_map(|letter| {
        let (number, text) = letter.split_once('\n')?;
        number.trim().parse::<u32>().ok()?;
        let verdict = if is_injury_by_brakes(text) { "yes" } else { "no" };
        Some(format!("{}: {verdict}", number.trim()))
    });
    let lines: Vec<String> = letters.collect();
    if lines.is_empty() { "There is no letter in what you sent me.".to_owned() } else { lines.join("\n") }
}

fn is_injury_by_brakes(letter: &str) -> bool {
    let text = letter.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut sentences = text.split(['.', ';', '?']);
    let brakes_failed = sentences
        .clone()
        .any(|sentence| names_brakes(sentence) && FAILURES.iter().any(|failure| sentence.contains(failure)));
    brakes_failed && sentences.any(|sentence| INJURIES.iter().any(|injury| sentence.contains(injury)))
}

fn names_brakes(sentence: &str) -> bool {
    sentence.contains("brake") || sentence.contains("Brake")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::corpus::Corpus;

    #[test]
    fn it_finds_the_injuries_that_the_generator_recorded() {
        let corpus = Corpus::new();
        let injured = |month: usize| answer(&corpus.files[month].1).matches(": yes").count();
        let counts: Vec<usize> = (0..12).map(injured).collect();
        assert_eq!(counts, [5, 4, 6, 7, 6, 8, 9, 7, 6, 13, 8, 5]);
    }

    #[test]
    fn it_needs_both_a_failure_and_an_injury() {
        let read = |text: &str| answer(&format!("Who?\n\nTicket 00007\n{text}\n"));
        assert_eq!(read("The front brake gave\nway. I broke my\nwrist."), "00007: yes");
        assert_eq!(read("The front brake gave way. I was not injured."), "00007: no");
        assert_eq!(read("The brakes held. I broke my wrist."), "00007: no");
        assert_eq!(answer("Hello?"), "There is no letter in what you sent me.");
    }
}

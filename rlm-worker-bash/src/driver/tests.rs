//! Properties of every text that a shell may get.

use super::legend::{MARKERS, TOKENS, VARIABLES};
use super::texts::is_name_char;
use super::*;

fn scripts() -> Scripts {
    let path = |name: &str| format!("/{name}");
    Scripts::new(Paths {
        commands: path("commands"),
        report: path("report"),
        quiet: path("quiet"),
        code: path("code"),
        state: path("state"),
        terminal: path("terminal"),
        scripts: std::array::from_fn(|at| path(&at.to_string())),
        key: "0f1e2d3c".to_owned(),
    })
}

/// A shell that SIGHUP ends while a file is sourced with arguments may hand on the arguments as the user's.
#[test]
fn nothing_is_sourced_with_arguments() {
    for text in shell_texts() {
        for (at, _) in text.match_indices("\\builtin . ").chain(text.match_indices("\\. ")) {
            let rest = text[at..].split_once(". ").unwrap().1;
            let path = &rest[..rest.find([' ', ';', '\n']).unwrap_or(rest.len())];
            let after = rest[path.len()..].trim_start_matches(' ');
            assert!(after.is_empty() || after.starts_with([';', '\n', '}', '|']), "{path} in {text}");
        }
    }
}

/// A shell that an interrupt throws out of `name=(...)` goes on reading that text, and then ends (bash 5.2). Only code is
/// interrupted, so the empty array of an op `set` may stay.
#[test]
fn no_array_is_read_around_code() {
    for text in shell_texts() {
        assert!(!text.replace("b=()", "").contains("=("), "{text}");
    }
}

/// The files of the driver: name and text.
fn sources() -> Vec<(String, String)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/driver");
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "bash"));
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    scripts.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// Every text that a shell may get: the script files, and calls of every kind.
fn shell_texts() -> Vec<String> {
    let scripts = scripts();
    let function = Some(b"builtin () { :; }".to_vec());
    let user = [
        UserState {
            stdin: Stdin::Saved,
            is_silenced: true,
            exec_is_function: true,
            status: 1,
            ..UserState::default()
        },
        UserState { stdin: Stdin::Closed, disabled: vec![b"printf".to_vec()], ..UserState::default() },
        UserState {
            builtin_function: function,
            exit_trap: b"trap -- 'x' EXIT\n".to_vec(),
            ..UserState::default()
        },
    ];
    let drivers = [Driver::Fast, Driver::Standard, Driver::Shadowed];
    let calls = user.iter().flat_map(|user| drivers.map(|driver| (user, driver)));
    let calls = calls.map(|(user, driver)| {
        scripts.call("trap 'x' INT | cat", Suffix::PipeStatus, user, &BTreeSet::new(), driver, 7)
    });
    let fields = vec![[b"k".to_vec(), b"v".to_vec()]];
    let variables = [("a", Value::Scalar(Vec::new())), ("b", Value::Associative(fields))];
    let others = [
        scripts.set_up(Some(&[b"p".to_vec()]), Some(b""), &RawAnswer::default(), 7),
        scripts.set(&variables, 7),
        scripts.complete("file", "word", 7),
    ];
    let text = |call: Call| String::from_utf8(call.file).unwrap() + &call.lines;
    let tools = crate::tools::function("tool", std::path::Path::new("/helper")).into_string().unwrap();
    scripts.files.iter().cloned().chain(calls.chain(others).map(text)).chain([tools]).collect()
}

/// The text between two `@`, if it has the form of a placeholder.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let is_placeholder = |text: &&str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_. ".contains(c))
    };
    text.split('@').skip(1).filter(is_placeholder)
}

/// The names of the driver's variables and functions in a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !is_name_char(c)).filter(|word| word.starts_with("__rlm")).collect()
}

#[test]
fn every_name_and_token_is_in_the_legend() {
    let table: Vec<&str> =
        include_str!("legend.rs").lines().filter(|line| line.starts_with("//! | `")).collect();
    let table = table.join("\n");
    let (long, short): (BTreeSet<&str>, BTreeSet<&str>) = VARIABLES.into_iter().unzip();
    assert_eq!(names(&table), &long | &short, "names of the table, and of the list");
    let (sources, texts) = (sources(), shell_texts());
    let in_sources: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| names(text)).collect();
    assert!(in_sources.is_subset(&long), "{:?}", in_sources.difference(&long));
    let in_texts: BTreeSet<&str> = texts.iter().flat_map(|text| names(text)).collect();
    assert_eq!(in_texts, short, "names in the shell, and of the list");
    for (token, _) in TOKENS.iter().chain(MARKERS) {
        assert!(table.contains(&format!("`{}`", token.trim_matches('@'))), "{token}");
    }
    for (file, text) in sources {
        // Text between two NUL bytes is a token, and must be a placeholder.
        for piece in text.split("\\0").skip(1).filter(|piece| !piece.is_empty()) {
            assert!(!piece.chars().all(|c| c.is_ascii_alphanumeric() || c == '|'), "{file}: {piece}");
        }
        assert!(!text.contains("'|'"), "{file}");
    }
}

#[test]
fn every_placeholder_is_filled() {
    for text in shell_texts() {
        assert_eq!(placeholders(&text).collect::<Vec<_>>(), [""; 0], "{text}");
        assert!(!text.contains("\n#"), "{text}");
    }
}

#[test]
fn the_lines_are_short_enough_for_one_read_of_bash() {
    let code = "builtin";
    for driver in [Driver::Fast, Driver::Standard, Driver::Shadowed] {
        let unset = BTreeSet::from(["a".repeat(1000)]);
        let call = scripts().call(code, Suffix::None, &UserState::default(), &unset, driver, u64::MAX);
        assert!(call.lines.len() + 6 * 24 < 1024, "{}", call.lines);
    }
}

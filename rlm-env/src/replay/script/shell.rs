//! Bash syntax of here-documents, and code that can be followed by other code.

use std::collections::VecDeque;

/// A here-document with this text, and its delimiter: a name that is not a line of the text.
pub(super) fn here_document(text: &str, name: &str) -> (String, String) {
    // Removing NULs can make two lines equal.
    let text = text.replace('\0', "");
    let is_free = |end: &String| text.lines().all(|line| line != end);
    let end = std::iter::once(name.to_owned())
        .chain((2..).map(|number| format!("{name}_{number}")))
        .find(is_free)
        .expect("a text has finitely many lines");
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    (end.clone(), format!("{text}{newline}{end}\n"))
}

/// True if code that ran to its end with status 0 can be followed by other code in a file. It cannot end within a
/// quotation or a compound command, which would be an error, but its last line may continue, and here-documents may be
/// open. If in doubt, false.
pub(super) fn stands_alone(code: &str) -> bool {
    !code.trim_end_matches('\n').ends_with('\\') && !code.contains('\0') && here_documents_end(code)
}

/// True if each here-document, or what looks like one, is closed.
fn here_documents_end(code: &str) -> bool {
    let mut open: VecDeque<(bool, String)> = VecDeque::new();
    let mut goes_on = false;
    for line in code.split('\n') {
        if let Some((strips_tabs, end)) = open.front() {
            let line = if *strips_tabs { line.trim_start_matches('\t') } else { line };
            if line == end {
                open.pop_front();
            }
            continue;
        }
        if goes_on && line.contains('<') {
            return false;
        }
        let Some(ends) = ends_named_in(line) else { return false };
        open.extend(ends);
        // The next lines may be in a quotation, or continue this one.
        goes_on |= line.ends_with('\\')
            || ['\'', '"', '`'].iter().any(|quote| line.matches(*quote).count() % 2 == 1);
    }
    open.is_empty()
}

/// The delimiters of the here-documents that begin in a line. None: unclear, or the line may not be a command.
fn ends_named_in(line: &str) -> Option<Vec<(bool, String)>> {
    let mut ends = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("<<") {
        let before = &rest[..at];
        rest = &rest[at + 2..];
        if let Some(here_string) = rest.strip_prefix('<') {
            rest = here_string;
            continue;
        }
        // In a quotation, a comment or an arithmetic expression, `<<` does not begin a here-document.
        if ["'", "\"", "#", "((", "`"].iter().any(|mark| before.contains(mark)) {
            return None;
        }
        let (strips_tabs, word) = match rest.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, rest),
        };
        let word = word.trim_start_matches([' ', '\t']);
        let quote = word.chars().next().filter(|c| "'\"".contains(*c));
        let word = quote.map_or(word, |quote| word.strip_prefix(quote).unwrap_or(word));
        let length = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
        let (end, after) = word.split_at(length);
        let after = match quote {
            Some(quote) => after.strip_prefix(quote)?,
            None => after,
        };
        if end.is_empty() || after.starts_with(['\\', '$', '\'', '"', '-', '.', '/']) {
            return None;
        }
        ends.push((strips_tabs, end.to_owned()));
        rest = after;
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_continues_after_its_end_does_not_stand_alone() {
        for code in [
            "echo a",
            "cat <<EOF\na\nEOF",
            "cat <<'EOF' | tr a b >x\n'\nEOF\necho",
            "cat <<-E\n\ta\n\tE\n",
            "cat <<<a",
            "cat <<A; cat <<\"B\"\na\nA\nb\nB\n# a comment",
            "echo \\\\x",
            "echo 'a\nb'\necho \"it's\"\ncat x",
        ] {
            assert!(stands_alone(code), "{code}");
        }
        for code in [
            "echo a \\",
            "echo a \\\n\n",
            "cat <<EOF\na",
            "cat <<EOF\nEOF \n",
            "cat <<-E\n  E",
            "cat <<A <<B\nA\n",
            "echo $((1<<2))",
            "echo '<<A'; cat <<B\nA\n",
            "# <<A\ncat <<B\nA",
            "cat <<\\EOF\nEOF",
            "cat <<E\"O\"F\nEOF",
            "echo '\ncat <<A\n'\ncat <<B\nA\n",
            "cat <\\\n<EOF\nfoo",
            "echo \0",
        ] {
            assert!(!stands_alone(code), "{code}");
        }
    }

    #[test]
    fn a_here_document_has_an_end_of_its_own() {
        assert_eq!(here_document("a", "E"), ("E".to_owned(), "a\nE\n".to_owned()));
        assert_eq!(here_document("E\nE_2\n", "E"), ("E_3".to_owned(), "E\nE_2\nE_3\n".to_owned()));
        assert_eq!(here_document("E\0\nE_\x002", "E"), ("E_3".to_owned(), "E\nE_2\nE_3\n".to_owned()));
    }
}

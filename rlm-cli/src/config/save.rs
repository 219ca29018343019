//! Settings that a command writes into `rlm.toml`. The rest of the file stays as it is, comments included.

use std::io::ErrorKind;
use std::path::Path;

use toml::de::DeTable;

use super::file;
use super::setting::AnySetting;

/// Sets a setting in a file, which is made if there is none, to this value in TOML.
///
/// # Errors
/// A sentence on why the file is not changed.
pub(crate) fn save(path: &Path, setting: &dyn AnySetting, value: &str) -> Result<(), String> {
    let cannot =
        |reason: String| format!("`{}` cannot be saved in {}: {reason}", setting.name, path.display());
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| cannot(error.to_string()))?,
    };
    let new = edited(&text, setting.name, value).map_err(cannot)?;
    let values = |text: &str| file::values(text, path).map_err(|error| cannot(error.to_string()));
    let (mut before, mut after) = (values(&text)?, values(&new)?);
    (_, _) = (before.remove(setting.name), after.remove(setting.name));
    let texts = |values: &file::Values| {
        values.iter().map(|(name, (text, _))| (*name, text.clone())).collect::<Vec<_>>()
    };
    if texts(&before) != texts(&after) {
        return Err(cannot(format!("write it there yourself: {} = {value}", setting.name)));
    }
    std::fs::write(path, new).map_err(|error| cannot(error.to_string()))
}

/// The text of a file with another value of a key at its top.
fn edited(text: &str, name: &str, value: &str) -> Result<String, String> {
    let line = format!("{name} = {value}");
    let table = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let mut first_section = None;
    for (key, item) in table.get_ref() {
        let (begin, end) = (key.span().start, key.span().end);
        let begin_of_line = text[..begin].rfind('\n').map_or(0, |at| at + 1);
        let is_section = text[begin_of_line..begin].trim_start().starts_with('[');
        if is_section {
            first_section =
                Some(first_section.map_or(begin_of_line, |first: usize| first.min(begin_of_line)));
        }
        if key.get_ref() != name {
            continue;
        }
        if is_section || !text[end..].trim_start().starts_with('=') {
            return Err(format!("it is a section of its own there; write this in its place: {line}"));
        }
        let mut new = text.to_owned();
        new.replace_range(begin..item.span().end, &line);
        return Ok(new);
    }
    // Keys at the top come before sections, and comments right above a section belong to it.
    let Some(section) = first_section else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{line}\n"));
    };
    let mut at = section;
    while let Some(above) = text[..at].strip_suffix('\n') {
        let begin = above.rfind('\n').map_or(0, |at| at + 1);
        if !above[begin..].trim_start().starts_with('#') {
            break;
        }
        at = begin;
    }
    Ok(format!("{}{line}\n\n{}", &text[..at], &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_file_stays() {
        let edited = |text: &str| edited(text, "server", "{ fill_ids = true }").unwrap();
        let line = "server = { fill_ids = true }";
        assert_eq!(edited(""), format!("{line}\n"));
        assert_eq!(edited("model = \"m\" # mine"), format!("model = \"m\" # mine\n{line}\n"));
        assert_eq!(
            edited("# top\nserver = \"vllm\" # old\nmodel = \"m\"\n"),
            format!("# top\n{line} # old\nmodel = \"m\"\n")
        );
        assert_eq!(
            edited("server = { name = \"vllm\",\n  fill_ids = false }\n[sampling]\n"),
            format!("{line}\n[sampling]\n")
        );
        assert_eq!(
            edited("model = \"m\"\n\n# how\n# it samples\n[sampling]\ntop_p = 1\n"),
            format!("model = \"m\"\n\n{line}\n\n# how\n# it samples\n[sampling]\ntop_p = 1\n")
        );
    }

    #[test]
    fn a_section_is_not_edited() {
        for text in ["[server]\nfill_ids = false\n", "server.fill_ids = false\n"] {
            let error = edited(text, "server", "{ fill_ids = true }").unwrap_err();
            assert_eq!(
                error,
                "it is a section of its own there; write this in its place: server = { fill_ids = true }"
            );
        }
    }
}

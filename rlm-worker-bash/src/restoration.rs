//! The text that restores a shell, made faster and more exact than that of `declare -p`.
//!
//! Bash takes microseconds for each element of `declare -a name=([0]="…" …)`, ten times as long as its `mapfile` takes for a value
//! that ends in NUL, and reads a long text a character at a time. So the values of a large array, and a large value, go beside the text. Attributes that change what is assigned (`-i`, `-l`, `-u`)
//! come after the value, which may be older than they are. What is not understood stays as it is.

use crate::driver::legend::VALUE;

/// The descriptor from which the text reads values.
pub(crate) const VALUES_FD: u32 = 3;

/// Least number of elements of a large array, and of each of its runs of consecutive indices, on average.
const LARGE: usize = 32;

/// Least size in bytes of a large value, as it is printed, and of the values of each run on average.
const LARGE_VALUE: usize = 16 << 10;

/// Text for a new shell, and what it reads from [`VALUES_FD`]: values that end in NUL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restoration {
    pub(crate) text: Vec<u8>,
    pub(crate) values: Vec<u8>,
}

impl Restoration {
    /// The restoration of a state that begins with the output of `declare -p`.
    pub(crate) fn new(state: &[u8]) -> Self {
        let (mut text, mut values) = (Vec::with_capacity(state.len()), Vec::new());
        let mut rest = state;
        while let Some((declaration, after)) = Declaration::read(rest) {
            if !declaration.push(&mut text, &mut values) {
                text.extend_from_slice(&rest[..rest.len() - after.len()]);
            }
            rest = after;
        }
        text.extend_from_slice(rest);
        Self { text, values }
    }
}

/// A statement of `declare -p`.
struct Declaration<'a> {
    /// `-a`, `-Ax`, `--`, …
    flags: &'a [u8],
    name: &'a [u8],
    /// The text after the `=`; None for a variable without a value.
    value: Option<&'a [u8]>,
    /// Number of an array's elements.
    count: usize,
}

impl<'a> Declaration<'a> {
    /// The declaration at the start of a text, and the text after it.
    fn read(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let rest = text.strip_prefix(b"declare ")?;
        let (flags, rest) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        let rest = &rest[1..];
        let (name, mut rest) = rest.split_at(rest.iter().position(|byte| b"=\n".contains(byte))?);
        let mut declaration = Self { flags, name, value: None, count: 0 };
        if let Some(value) = rest.strip_prefix(b"=") {
            rest = match value.strip_prefix(b"(") {
                None => Quoted::read(value)?.1,
                Some(mut rest) => {
                    while let Some((_, after)) = element(rest) {
                        declaration.count += 1;
                        rest = after;
                    }
                    rest.strip_prefix(b")")?
                }
            };
            declaration.value = Some(&value[..value.len() - rest.len()]);
        }
        Some((declaration, rest.strip_prefix(b"\n")?))
    }

    /// Adds the declaration in another form. False: it is to be added as it is.
    fn push(&self, text: &mut Vec<u8>, values: &mut Vec<u8>) -> bool {
        let Self { flags, name, value: Some(value), .. } = *self else { return false };
        let is_own =
            [&b"BASH_"[..], b"DIRSTACK", b"FUNCNAME", b"GROUPS"].iter().any(|own| name.starts_with(own));
        let has_large_values = value.len() >= LARGE_VALUE && flags.contains(&b'a');
        let (is_large, is_changing) =
            (self.count >= LARGE || has_large_values, flags.iter().any(|flag| b"ilu".contains(flag)));
        let large_value = || {
            let (quoted, rest) = Quoted::read(value).filter(|_| value.len() >= LARGE_VALUE)?;
            let mut decoded = Vec::with_capacity(value.len());
            quoted.decode(&mut decoded)?;
            rest.is_empty().then_some(decoded)
        };
        let large_value = if is_own { None } else { large_value() };
        if is_own || !(is_large || is_changing || large_value.is_some()) {
            return false;
        }
        let kinds = [b"-A", b"-a", b"--"];
        let kind = kinds[kinds.iter().position(|kind| flags.contains(&kind[1])).unwrap_or(2)];
        let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| text.extend_from_slice(part));
        let runs = (is_large && kind == b"-a").then(|| self.runs(&value[1..])).flatten();
        match (is_large, runs) {
            (false, _) if large_value.is_some() => {
                let read = format!("\\builtin mapfile -u {VALUES_FD} -d '' -t -n 1 {VALUE}\n");
                push(&[read.as_bytes(), b"declare ", kind, b" ", name, b"\n"]);
                push(&[name, b"=${", VALUE.as_bytes(), b"}\n"]);
                values.extend(large_value.unwrap_or_default());
                values.push(0);
            }
            (false, _) => push(&[b"declare ", kind, b" ", name, b"=", value, b"\n"]),
            // An assignment takes half the time of a declaration.
            (true, None) => push(&[b"declare ", kind, b" ", name, b"\n", name, b"=", value, b"\n"]),
            (true, Some(Runs { places, values: of_runs })) => {
                push(&[b"declare ", kind, b" ", name, b"=()\n"]);
                for (first, count) in places {
                    let command = format!("\\builtin mapfile -u {VALUES_FD} -d '' -t -O {first} -n {count} ");
                    push(&[command.as_bytes(), name, b"\n"]);
                }
                values.extend(of_runs);
            }
        }
        if flags != kind {
            push(&[b"declare ", flags, b" ", name, b"\n"]);
        }
        true
    }

    /// The runs of these elements. None: there are too many, or a value is not understood.
    fn runs(&self, mut elements: &[u8]) -> Option<Runs> {
        let (mut places, mut values) = (Vec::<(u64, usize)>::new(), Vec::with_capacity(elements.len()));
        while let Some((Element { subscript, value }, after)) = element(elements) {
            let index: u64 = str::from_utf8(subscript).ok()?.parse().ok()?;
            match places.last_mut() {
                Some((first, count)) if *first + *count as u64 == index => *count += 1,
                _ => places.push((index, 1)),
            }
            value.decode(&mut values)?;
            values.push(0);
            elements = after;
        }
        let is_worth_it = places.len() * LARGE <= self.count || places.len() * LARGE_VALUE <= values.len();
        is_worth_it.then_some(Runs { places, values })
    }
}

/// Runs of consecutive indices of an array.
struct Runs {
    /// First index and number of each.
    places: Vec<(u64, usize)>,
    /// The values of all, each ended by NUL.
    values: Vec<u8>,
}

/// An element of an array: `[subscript]=value`.
struct Element<'a> {
    subscript: &'a [u8],
    value: Quoted<'a>,
}

/// The element at the start of a text, and the text after it and a space.
fn element(text: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let rest = text.strip_prefix(b"[")?;
    let end = match Quoted::read(rest) {
        Some((_, after)) => rest.len() - after.len(),
        None => rest.iter().position(|byte| *byte == b']')?,
    };
    let (subscript, rest) = rest.split_at(end);
    let (value, rest) = Quoted::read(rest.strip_prefix(b"]=")?)?;
    Some((Element { subscript, value }, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// A quoted word, as `declare -p` prints it.
enum Quoted<'a> {
    /// `"…"`
    Double(&'a [u8]),
    /// `$'…'`
    Ansi(&'a [u8]),
}

impl<'a> Quoted<'a> {
    /// The word at the start of a text, and the text after it.
    fn read(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (quote, make, inside): (u8, fn(&'a [u8]) -> Self, _) = match text {
            [b'"', inside @ ..] => (b'"', Self::Double, inside),
            [b'$', b'\'', inside @ ..] => (b'\'', Self::Ansi, inside),
            _ => return None,
        };
        let mut at = 0;
        while *inside.get(at)? != quote {
            at += if inside[at] == b'\\' { 2 } else { 1 };
        }
        Some((make(&inside[..at]), &inside[at + 1..]))
    }

    /// Adds the value. None: it has an escape that `declare -p` does not print.
    fn decode(&self, value: &mut Vec<u8>) -> Option<()> {
        let (&Self::Double(mut rest) | &Self::Ansi(mut rest)) = self;
        // Bytes by which bash itself quotes, and which bash 4.4 prints twice.
        if matches!(self, Self::Double(_)) && memchr::memchr2(0x01, 0x7f, rest).is_some() {
            return None;
        }
        while let Some(at) = memchr::memchr(b'\\', rest) {
            value.extend_from_slice(&rest[..at]);
            let escape = *rest.get(at + 1)?;
            let mut after = &rest[at + 2..];
            value.push(match (self, escape) {
                (Self::Double(_), b'"' | b'\\' | b'$' | b'`') | (Self::Ansi(_), b'\'' | b'\\') => escape,
                (Self::Ansi(_), b'a') => 0x07,
                (Self::Ansi(_), b'b') => 0x08,
                (Self::Ansi(_), b't') => b'\t',
                (Self::Ansi(_), b'n') => b'\n',
                (Self::Ansi(_), b'v') => 0x0b,
                (Self::Ansi(_), b'f') => 0x0c,
                (Self::Ansi(_), b'r') => b'\r',
                (Self::Ansi(_), b'E') => 0x1b,
                (Self::Ansi(_), b'0'..=b'3') => {
                    let byte = u8::from_str_radix(str::from_utf8(rest.get(at + 1..at + 4)?).ok()?, 8).ok()?;
                    after = &rest[at + 4..];
                    byte
                }
                _ => return None,
            });
            rest = after;
        }
        value.extend_from_slice(rest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// The output of `declare -p` for a variable in a new bash that has run a restoration.
    fn printed(restoration: &Restoration, name: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("text"), &restoration.text).unwrap();
        std::fs::write(dir.path().join("values"), &restoration.values).unwrap();
        let code = format!("{{ . ./text; }} {VALUES_FD}<values || exit; declare -p {name}");
        bash(&code, dir.path())
    }

    fn bash(code: &str, dir: &Path) -> Vec<u8> {
        let output = Command::new("bash")
            .args(["--norc", "-c", code])
            .env("LC_ALL", "C.UTF-8")
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{code}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    #[test]
    fn every_value_is_the_same_in_the_new_form() {
        // Each value of a byte, alone and between others; text; and the escapes themselves.
        const VALUES: &str = r#"for ((n = 1; n < 256; n++)); do printf -v x '\\x%x' $n; printf -v x "$x"; a+=("$x" "é$x'z"); done;
            a+=('' ' two  words ' $'line\n' '$x `y` "' '\' '\n' '\\n' $'\x01\x7f' '日本' '[0]="' ')' '~' '*');"#;
        const NUMBERS: &str = "a=({1..200});";
        const MAP: &str = r#"declare -A a; for n in {1..255}; do printf -v x '\\x%x' $n; printf -v x "$x"; a["k$x"]=$x; done
            a['@']=1 a['*']=2 a['a]b']=3;"#;
        for (code, has_values) in [
            (VALUES.to_owned(), true),
            (format!("{VALUES} declare -rax a"), true),
            (format!("{VALUES} unset 'a[0]' 'a[7]' 'a[99]'; a[10000]=far"), true),
            (NUMBERS.to_owned(), true),
            (format!("declare -ai a; {NUMBERS} a[3]=4+4"), true),
            (format!("{NUMBERS} a[3]=4+4; declare -ai a"), true),
            (format!("declare -au a; {NUMBERS} a[3]=é; declare -al a; a[4]=É"), true),
            ("for n in {1..100}; do a[n * 2]=$n; done".to_owned(), false),
            (MAP.to_owned(), false),
            (format!("{MAP} declare -rAi a"), false),
            ("a=(1 2 3)".to_owned(), false),
            ("a=(1 2+3 4); declare -air a".to_owned(), false),
            ("a=()".to_owned(), false),
            (format!("{VALUES} printf -v a '%s|' \"${{a[@]}}\" {{1..9999}}"), true),
            ("printf -v x '%s  ' {1..9999}; a=$'\\n'$x; declare -rx a".to_owned(), true),
            ("printf -v x '%s\\n' {1..9999}; a=('' \"$x\" b)".to_owned(), true),
            ("printf -v a '%s' {a..z}{1..999}; declare -u a".to_owned(), true),
            ("declare -ai a".to_owned(), false),
            ("a=ABC; declare -l a".to_owned(), false),
            ("a=abc; declare -uxr a".to_owned(), false),
            ("declare -ai b; declare -i a=2+2; declare -n c=a; c+=3".to_owned(), false),
            ("a=2+2; declare -i a".to_owned(), false),
        ] {
            let state = bash(&format!("{code}\ndeclare -p a"), Path::new("/"));
            let restoration = Restoration::new(&state);
            assert_eq!(!restoration.values.is_empty(), has_values, "{code}");
            let [found, expected] = [printed(&restoration, "a"), state].map(|text| {
                let text = text.escape_ascii().to_string();
                // A map has another order in a new shell.
                let mut elements: Vec<_> = text.split_inclusive(" [").map(str::to_owned).collect();
                if code.contains("-A") {
                    elements.sort();
                }
                elements
            });
            assert!(found == expected, "{code}: {found:?}\n{expected:?}");
        }
    }

    #[test]
    fn a_map_with_keys_like_indices_is_a_map() {
        let elements: String = (0..100).map(|at| format!("[{at}]=\"x\" ")).collect();
        let restoration = Restoration::new(format!("declare -A m=({elements})\n").as_bytes());
        let expected = format!("declare -A m\nm=({elements})\n");
        assert_eq!((restoration.text, restoration.values), (expected.into_bytes(), Vec::new()));
    }

    #[test]
    fn all_else_stays_as_it_is() {
        let large = |name: &str| {
            let elements: Vec<String> = (0..100).map(|at| format!("[{at}]=\"\"")).collect();
            format!("declare -a {name}=({})\n", elements.join(" "))
        };
        let kept = format!(
            "declare -ir BASH_SUBSHELL=\"0\"\ndeclare -i n\ndeclare -n r=\"s\"\ndeclare -- x=\"\ndeclare -a a=([0]=\\\"\"\ndeclare -x E\ndeclare -a small=([0]=\"1\" [2]=$'\\n')\n{}",
            large("DIRSTACK")
        );
        // A function's text may look like a declaration.
        let end = format!("shopt -u extglob\nf () \n{{ \n    cat <<E\n{}E\n\n}}\n", large("a"));
        let restoration = Restoration::new(format!("{kept}{}{end}", large("b")).as_bytes());
        let expected = format!("{kept}declare -a b=()\n\\builtin mapfile -u 3 -d '' -t -O 0 -n 100 b\n{end}");
        assert_eq!(String::from_utf8(restoration.text).unwrap(), expected);
        assert_eq!(restoration.values, [0; 100]);
        for text in ["", "declare -- x=\"", "declare -a a=([0]=\"1\"", "declare -a a=(x)\n"] {
            let expected = Restoration { text: text.into(), values: Vec::new() };
            assert_eq!(Restoration::new(text.as_bytes()), expected);
        }
    }
}

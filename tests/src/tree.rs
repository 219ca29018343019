//! A generated tree of source files, for tests and benches of code that searches files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Number of files in each directory of the tree.
const FILES_IN_DIRECTORY: usize = 20;

/// The size of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Number of lines.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Creates this many Python files below a directory, each of about ten to two hundred lines, in directories of 20. One
/// in 500 has a line with `needle_` and its number; each has `return total` several times.
///
/// # Panics
/// The files cannot be written.
pub fn make(root: &Path, files: usize) -> Tree {
    let mut tree = Tree::default();
    for number in 0..files {
        let directory = number / FILES_IN_DIRECTORY;
        let directory = root.join(format!("part_{}/module_{directory}", directory / 25));
        fs::create_dir_all(&directory).expect("a directory can be made");
        let text = text(number);
        tree.lines += text.lines().count() as u64;
        tree.bytes += text.len() as u64;
        fs::write(directory.join(format!("file_{number}.py")), text).expect("a file can be written");
    }
    tree
}

fn text(number: usize) -> String {
    let mut text = format!("\"\"\"Module {number}.\"\"\"\n\nimport os\n\n");
    for function in 0..1 + number * 7 % 23 {
        write!(
            text,
            "\ndef function_{number}_{function}(first, second, third=None):\n    total = first * {function}\n    \
             for item in second:\n        total += item.value if third is None else third(item)\n    return total\n\n",
        )
        .expect("a String takes all");
    }
    if number.is_multiple_of(500) {
        writeln!(text, "# needle_{number}").expect("a String takes all");
    }
    text
}

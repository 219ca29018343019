//! Compiles the engine's Python parts for the CPythons of this machine: a session of one of these need not.

#![expect(clippy::disallowed_methods, reason = "Cargo names its directory in the environment")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The parts that each session needs, and their names in tracebacks.
const PARTS: [(&str, &str); 2] = [("src/glue.py", "<rlm>"), ("src/tools.py", "<rlm tools>")];

/// Writes the number of the format, of four bytes, and the code.
const COMPILE: &str = "
import importlib.util, marshal, sys
code = compile(open(sys.argv[1], encoding='utf-8').read(), sys.argv[2], 'exec')
sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + marshal.dumps(code))
";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets it"));
    println!("cargo::rerun-if-changed=build.rs");
    let mut rows = BTreeMap::new();
    for (part, (source, name)) in PARTS.into_iter().enumerate() {
        println!("cargo::rerun-if-changed={source}");
        for python in pythons() {
            let Some(compiled) = compile(&python, source, name) else { continue };
            let Some((magic, code)) = compiled.split_first_chunk::<4>() else { continue };
            let path = out.join(format!("{part}-{:08x}", u32::from_be_bytes(*magic)));
            fs::write(&path, code).expect("OUT_DIR can be written");
            rows.insert(path.clone(), format!("({name:?}, {magic:?}, include_bytes!({path:?})),\n"));
        }
    }
    let rows: String = rows.into_values().collect();
    fs::write(out.join("compiled.rs"), format!("&[\n{rows}]\n")).expect("OUT_DIR can be written");
}

/// The CPythons of this machine, some of them perhaps under two names or missing.
fn pythons() -> impl Iterator<Item = PathBuf> {
    let on_path = (10..=15).map(|minor| format!("python3.{minor}"));
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(env::home_dir()?.join(".pyenv")));
    let versions = pyenv.and_then(|pyenv| pyenv.join("versions").read_dir().ok());
    let of_pyenv = versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python3"));
    ["python3".to_owned()].into_iter().chain(on_path).map(PathBuf::from).chain(of_pyenv)
}

fn compile(python: &Path, source: &str, name: &str) -> Option<Vec<u8>> {
    let output = Command::new(python).args(["-I", "-c", COMPILE, source, name]).output().ok()?;
    output.status.success().then_some(output.stdout)
}

//! The choice of the Python that runs the cells.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rlm_core::env;
use rlm_core::programs::{BUILTIN, builtin_python, needed_builtin};
use rlm_core::worker::settings::Environment;

/// The variable that an activated virtual environment sets.
const VIRTUAL_ENV: &str = "VIRTUAL_ENV";

/// Most links from one name of a program to the next.
const MOST_LINKS: u32 = 16;

/// A Python program, and the virtual environment that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Directory of the environment.
    pub virtual_env: Option<PathBuf>,
    /// True for the Python beside the programs.
    pub is_builtin: bool,
}

/// A Python that could not be found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PythonError {
    /// The path does not exist.
    #[error("{by} names the Python {}, which does not exist", program.display())]
    Missing {
        /// Option or variable that names it.
        by: &'static str,
        /// The path.
        program: PathBuf,
    },
    /// The name is not on `PATH`.
    #[error("{by} names the Python {}, which is not on PATH", program.display())]
    NotOnPath {
        /// Option or variable that names it.
        by: &'static str,
        /// The name.
        program: PathBuf,
    },
    /// A broken link: the Python that a virtual environment was created with is gone.
    #[error(
        "{by} names the Python {}, which links to {}, which no longer exists: recreate the virtual environment with `python3 -m venv`",
        program.display(),
        target.display()
    )]
    Dangling {
        /// Option or variable that names it.
        by: &'static str,
        /// The link.
        program: PathBuf,
        /// Target of the link.
        target: PathBuf,
    },
    /// A directory that does not contain a Python.
    #[error("{by} names the directory {}, which has no bin/python3: expected a virtual environment", dir.display())]
    NoEnvironment {
        /// Option or variable that names it.
        by: &'static str,
        /// The directory.
        dir: PathBuf,
    },
    /// A script in place of an interpreter: a confined session cannot see the Python that the script starts.
    #[error(
        "{} is a script that starts a Python, such as those of pyenv, and a confined session cannot run it: name the interpreter itself, with --python \"$(pyenv which python3)\" or RLM_PYTHON",
        program.display()
    )]
    Script {
        /// The script.
        program: PathBuf,
    },
    /// No Python was named, and the default was not found.
    #[error("no python3 on PATH: install CPython 3.10 or newer, or name one with --python or RLM_PYTHON")]
    None,
    /// The built-in Python was named, but does not exist.
    #[error(
        "{by} names the built-in Python, and there is none in {}: it belongs to rlm as one file, which has one only where it can be unpacked",
        dir.display()
    )]
    NoBuiltin {
        /// Option or variable that names it.
        by: &'static str,
        /// Directory of the programs.
        dir: PathBuf,
    },
}

impl Python {
    /// Finds the requested Python: that of `--python`, `RLM_PYTHON`, `VIRTUAL_ENV`, `python3` on `PATH`, or the one in the
    /// directory of the programs, in this order.
    ///
    /// # Errors
    /// The requested Python does not exist. The next one in the order would not be the one that was meant, so it is not
    /// used.
    pub fn find(
        option: Option<OsString>,
        environment: &Environment,
        programs: &Path,
    ) -> Result<Self, PythonError> {
        let named = option.map(|path| ("--python", PathBuf::from(path)));
        // A host may set the variable for an option of its own.
        let of_host = || Some(("--python or RLM_PYTHON", environment.path(env::PYTHON)?));
        let of_venv = || Some((VIRTUAL_ENV, environment.path(VIRTUAL_ENV)?));
        let named = named.or_else(of_host).or_else(of_venv);
        let program = match named {
            None => {
                let on_path = environment.find_program("python3");
                let builtin = needed_builtin(programs, on_path.as_deref());
                builtin.or(on_path).ok_or(PythonError::None)?
            }
            Some((by, program)) if program.as_os_str() == BUILTIN => builtin_python(programs)
                .ok_or_else(|| PythonError::NoBuiltin { by, dir: programs.to_owned() })?,
            Some((by, program)) if is_name(&program) => {
                let found = environment.find_program(&program.to_string_lossy());
                found.ok_or(PythonError::NotOnPath { by, program })?
            }
            Some((by, path)) if path.is_dir() => {
                let python = ["python3", "python"].map(|name| path.join("bin").join(name));
                let python = python.into_iter().find(|python| python.symlink_metadata().is_ok());
                check(by, python.ok_or(PythonError::NoEnvironment { by, dir: path })?)?
            }
            Some((by, program)) => check(by, program)?,
        };
        let program = std::path::absolute(&program).unwrap_or(program);
        let virtual_env = program.parent().and_then(Path::parent);
        let virtual_env = virtual_env.filter(|dir| dir.join("pyvenv.cfg").is_file()).map(Path::to_owned);
        let is_builtin = builtin_python(programs).is_some_and(|builtin| builtin == program);
        Ok(Self { program, virtual_env, is_builtin })
    }

    /// Refuses a script.
    ///
    /// # Errors
    /// [`PythonError::Script`].
    pub fn check_is_no_script(&self) -> Result<(), PythonError> {
        let mut begin = [0; 2];
        let is_read = File::open(&self.program).and_then(|mut file| file.read_exact(&mut begin)).is_ok();
        match is_read && begin == *b"#!" {
            true => Err(PythonError::Script { program: self.program.clone() }),
            false => Ok(()),
        }
    }

    /// The paths that the Python is read from: its environment, the links to its program, and the parts of the Pythons that these
    /// lie in or that its environment was made with. If the environment holds the user's home, only its parts.
    #[must_use]
    pub fn paths(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let prefix = |program: &Path| program.parent().and_then(Path::parent).map(Path::to_owned);
        let (mut prefixes, mut found) = (Vec::new(), Vec::new());
        let mut program = self.program.clone();
        for _ in 0..MOST_LINKS {
            prefixes.extend(prefix(&program));
            let Ok(target) = program.read_link() else { break };
            found.push(program.clone());
            program = program.parent().unwrap_or(Path::new("/")).join(target);
        }
        let resolved = self.program.canonicalize().ok();
        prefixes.extend(resolved.as_deref().and_then(prefix));
        found.extend(resolved);
        let settings =
            self.virtual_env.as_ref().and_then(|dir| std::fs::read_to_string(dir.join("pyvenv.cfg")).ok());
        let made_with = settings.as_deref().unwrap_or_default().lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == "home").then(|| PathBuf::from(value.trim()))
        });
        prefixes.extend(made_with.as_deref().and_then(Path::parent).map(Path::to_owned));
        // Code may have written these names, so that they lead to something other than a Python.
        prefixes.retain(|dir| has_library(dir));
        let home = home.and_then(|home| home.canonicalize().ok());
        if let Some(dir) = &self.virtual_env {
            let holds_home = match (&home, dir.canonicalize()) {
                (Some(home), Ok(dir)) => home.starts_with(dir),
                _ => true,
            };
            if holds_home {
                found.push(dir.join("pyvenv.cfg"));
                prefixes.push(dir.clone());
            } else {
                found.push(dir.clone());
            }
        }
        for dir in prefixes {
            found.extend(["bin", "lib", "lib64", "include", "ssl"].map(|name| dir.join(name)));
        }
        found
    }

    /// Activates the virtual environment in the session's environment: its programs come first.
    pub fn activate(&self, session_env: &mut Vec<(OsString, OsString)>) {
        let Some(dir) = &self.virtual_env else { return };
        rlm_core::env::set(session_env, VIRTUAL_ENV, dir);
        for (_, path) in session_env.iter_mut().filter(|(name, _)| name == "PATH") {
            let mut dirs = dir.join("bin").into_os_string();
            dirs.push(":");
            dirs.push(&path);
            *path = dirs;
        }
    }
}

/// True for a directory with Python's own library.
fn has_library(dir: &Path) -> bool {
    ["lib", "lib64"].iter().any(|name| {
        let entries = dir.join(name).read_dir().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| {
            entry.file_name().to_string_lossy().starts_with("python3") && entry.path().join("os.py").is_file()
        })
    })
}

/// True for a name to look up rather than a path.
fn is_name(program: &Path) -> bool {
    program.components().count() == 1 && !program.exists() && !program.has_root()
}

fn check(by: &'static str, program: PathBuf) -> Result<PathBuf, PythonError> {
    match program.metadata() {
        Ok(_) => Ok(program),
        Err(error) => Err(match program.read_link() {
            Ok(target) if error.kind() == io::ErrorKind::NotFound => {
                let target = program.parent().unwrap_or(Path::new("/")).join(target);
                PythonError::Dangling { by, program, target }
            }
            _ => PythonError::Missing { by, program },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn find(option: Option<&Path>, variables: &[(&str, &Path)]) -> Result<Python, PythonError> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Python::find(option.map(OsString::from), &variables.collect(), Path::new("/no/programs"))
    }

    /// Creates a directory with `bin/python3`, and `pyvenv.cfg` if it is a virtual environment.
    fn python(dir: &Path, is_venv: bool) -> PathBuf {
        fs::create_dir_all(dir.join("bin")).unwrap();
        fs::write(dir.join("bin/python3"), "").unwrap();
        if is_venv {
            fs::write(dir.join("pyvenv.cfg"), "").unwrap();
        }
        dir.join("bin/python3")
    }

    #[test]
    fn the_option_comes_before_the_variables_and_those_before_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let [option, variable, venv, path] = ["o", "v", "e", "p"].map(|name| dir.path().join(name));
        let pythons = [(&option, false), (&variable, false), (&venv, true), (&path, false)]
            .map(|(dir, is_venv)| python(dir, is_venv));
        let bin = path.join("bin");
        let all: [(&str, &Path); 3] = [("RLM_PYTHON", &pythons[1]), ("VIRTUAL_ENV", &venv), ("PATH", &bin)];
        let program = |found: Result<Python, PythonError>| found.unwrap().program;
        assert_eq!(program(find(Some(&pythons[0]), &all)), pythons[0]);
        assert_eq!(program(find(None, &all)), pythons[1]);
        assert_eq!(program(find(None, &all[1..])), pythons[2]);
        assert_eq!(program(find(None, &all[2..])), pythons[3]);
        assert_eq!(find(None, &[]), Err(PythonError::None));
        assert_eq!(program(find(Some(Path::new("python3")), &all[2..])), pythons[3], "a name is looked up");
        assert_eq!(program(find(Some(&venv), &[])), pythons[2], "an environment stands for its Python");
    }

    #[test]
    fn a_virtual_environment_is_activated_however_it_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let venv = dir.path().join("venv");
        let found = find(Some(&python(&venv, true)), &[]).unwrap();
        assert_eq!(found.virtual_env.as_deref(), Some(&*venv));
        let mut env = vec![("PATH".into(), "/bin".into()), ("VIRTUAL_ENV".into(), "/other".into())];
        found.activate(&mut env);
        let path = format!("{}/bin:/bin", venv.display());
        assert_eq!(env, [("PATH".into(), path.into()), ("VIRTUAL_ENV".into(), venv.into())]);
    }

    #[test]
    fn errors_name_the_python_and_the_option_or_variable() {
        let dir = tempfile::tempdir().unwrap();
        let message = |option: &Path, variables: &[(&str, &Path)]| {
            find(Some(option), variables).unwrap_err().to_string()
        };
        assert_eq!(
            message(Path::new("/no/python3"), &[]),
            "--python names the Python /no/python3, which does not exist"
        );
        assert_eq!(
            message(Path::new("python3.99"), &[("PATH", Path::new("/bin"))]),
            "--python names the Python python3.99, which is not on PATH"
        );
        assert_eq!(
            message(Path::new("builtin"), &[]),
            "--python names the built-in Python, and there is none in /no/programs: it belongs to rlm as one file, \
             which has one only where it can be unpacked"
        );
        let broken = dir.path().join("broken");
        fs::create_dir_all(broken.join("bin")).unwrap();
        symlink("/gone/python3.9", broken.join("bin/python3")).unwrap();
        let error = find(None, &[("VIRTUAL_ENV", &broken)]).unwrap_err().to_string();
        let expected = format!(
            "VIRTUAL_ENV names the Python {}/bin/python3, which links to /gone/python3.9, which no longer exists: recreate the \
             virtual environment with `python3 -m venv`",
            broken.display()
        );
        assert_eq!(error, expected);
        let error = find(None, &[("RLM_PYTHON", dir.path())]).unwrap_err().to_string();
        assert!(error.contains("has no bin/python3: expected a virtual environment"), "{error}");
    }
}

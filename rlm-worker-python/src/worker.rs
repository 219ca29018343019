//! The worker program: its command line, and the configuration of its session.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rlm_core::protocol::{Answer, Context};
use rlm_core::worker::settings::Environment;
use rlm_core::worker::{Exit, Program, ResourceLimits, Settings};
use rlm_core::{env, programs};

use crate::process::{ENGINE, Forking};
use crate::python::Python;
use crate::session::{PythonConfig, PythonSession};
use crate::tools;
use crate::wire::Setup;

/// The worker's command line, and its settings.
#[derive(Debug, Default)]
pub struct PythonWorker {
    python: Option<OsString>,
    forking: Option<Forking>,
}

impl PythonWorker {
    /// The server of a session whose interpreters are forked from its own process.
    #[must_use]
    pub fn forking(forking: Forking) -> Self {
        Self { forking: Some(forking), ..Self::default() }
    }
}

impl Program for PythonWorker {
    const NAME: &'static str = "rlm-worker-python";
    const USAGE: &'static str = "\
A persistent Python session for one host, driven over two named pipes.

Usage: rlm-worker-python --control-dir DIR [--python PATH]
       rlm-worker-python --fork-server NAME [--python PATH]

Options:
  --control-dir DIR  the directory of rlm_context.json, where the FIFOs rlm_cmd and rlm_res are created
  --python PATH      the Python that runs the cells, CPython 3.10 or newer: a program, its name on PATH, the
                     directory of a virtual environment, or builtin. Default: RLM_PYTHON, then VIRTUAL_ENV, then
                     python3 on PATH, then the one that is built in
  --ready-fd N       an inherited descriptor that gets `ready` and a newline when a call can be taken
  -h, --help         print this text
  -V, --version      print the version

Environment: RLM_PYTHON, RLM_EXEC_TIMEOUT, RLM_MAX_OUTPUT_BYTES, RLM_HOST_PID, RLM_TERM, RLM_PASS_ENV,
RLM_DISALLOWED_MODULES, RLM_DISALLOWED_BUILTINS, RLM_FS_JAIL, RLM_FINAL_FUNCTIONS, RLM_CHECKPOINT, RLM_BRANCH_NAME, and
the root-tool variables, which are passed on to the session.

A fork server makes sessions start in milliseconds: workers with RLM_FORK_SERVER_NAME=NAME get their interpreters from it, as
forks of one that has imported the modules of RLM_PYTHON_PRELOAD. Its --ready-fd gets `ready` when it takes sessions. It
ends after its standard input, and its last session, have ended. A worker that cannot use it starts as without one, and
says why in its log.

Limits of the session's resources, off by default: RLM_LIMIT_PROCESSES, RLM_LIMIT_MEMORY and RLM_LIMIT_FILE_SIZE
(bytes), RLM_LIMIT_CPU (seconds); RLM_CGROUP, the cgroup for them.

Exit status: 0 after a request to shut down, 2 usage, 3 the session cannot be started or served,
128 + N after signal N.

RLM_CONFINE=full, landlock or try: the session reaches its own directory, the system's programs and its endpoint alone;
RLM_CONFINE_READ and RLM_CONFINE_WRITE, further paths; RLM_CONFINE_TMP, bytes of /tmp. Without it, code runs with
the rights of this process.
";

    type Interpreter = PythonSession;

    fn option(&mut self, name: &str, value: impl FnOnce() -> Option<OsString>) -> bool {
        if name == "python" {
            self.python = value();
        }
        name == "python"
    }

    fn fork_server(&self, environment: &Environment) -> Option<(String, Vec<(&'static str, OsString)>)> {
        let name = environment.get(env::BRANCH_NAME).or_else(|| environment.get(env::FORK_SERVER_NAME))?;
        let name = name.to_string_lossy().into_owned();
        let python = self.python.clone().map(|python| (env::PYTHON, python));
        let programs = programs::directory(environment.path(env::BIN_DIR).as_deref()).ok()?;
        Some((name, python.into_iter().chain([(env::BIN_DIR, programs.into())]).collect()))
    }

    fn needs(&mut self, environment: &Environment, programs: &Path) -> Result<Vec<PathBuf>, Exit> {
        let python = Python::find(self.python.take(), environment, programs).map_err(Exit::failed)?;
        python.check_is_no_script().map_err(Exit::failed)?;
        let paths = python.paths(environment.path("HOME").as_deref());
        // The path is resolved here: a confined process has another working directory.
        self.python = Some(python.program.into());
        Ok(paths)
    }

    fn configure(
        self,
        environment: &Environment,
        settings: Settings,
        context: Context,
        answer: Answer,
        resource_limits: ResourceLimits,
    ) -> Result<PythonConfig, Exit> {
        let programs =
            programs::directory(environment.path(env::BIN_DIR).as_deref()).map_err(Exit::failed)?;
        let python = Python::find(self.python, environment, &programs).map_err(Exit::failed)?;
        let mut session_env = settings.session_env;
        python.activate(&mut session_env);
        let names = settings.root_tools.iter().flat_map(|tools| &tools.names);
        let is_on = |name| {
            let value = environment.parse(name, "1, true, 0 or false", parse_bool);
            value.map(Option::unwrap_or_default).map_err(Exit::failed)
        };
        let (is_jailed, has_final_functions) = (is_on(env::FS_JAIL)?, is_on(env::FINAL_FUNCTIONS)?);
        tools::check_names(names, has_final_functions).map_err(Exit::failed)?;
        let jail = || [context.fs_root.clone()].into_iter().chain(context.allowed_paths.clone()).collect();
        let setup = Setup {
            jail: is_jailed.then(jail),
            fs_root: context.fs_root,
            fs_metadata: context.fs_metadata,
            answer,
            disallowed_modules: environment.names(env::DISALLOWED_MODULES),
            disallowed_builtins: environment.names(env::DISALLOWED_BUILTINS),
            root_tools: settings.root_tools,
            has_final_functions,
            copies: None,
        };
        Ok(PythonConfig {
            python,
            engine: programs.join(ENGINE),
            forking: self.forking,
            env: session_env,
            setup,
            resource_limits,
            max_output_bytes: settings.max_output_bytes,
            checkpoint: settings.checkpoint,
            live: settings.live,
        })
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

//! `rlm-worker-bash`: a persistent bash session behind two FIFOs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rlm_core::memory::Allocator;
use rlm_core::protocol::{Answer, Context};
use rlm_core::worker::settings::Environment;
use rlm_core::worker::{Exit, Program, ResourceLimits, Settings, program};
use rlm_core::{env, programs};
use rlm_worker_bash::{BashConfig, BashSession, tools};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[derive(Default)]
struct BashWorker;

impl Program for BashWorker {
    const NAME: &'static str = "rlm-worker-bash";
    const USAGE: &'static str = "\
A persistent bash session for one host, driven over two named pipes.

Usage: rlm-worker-bash --control-dir DIR

Options:
  --control-dir DIR  the directory of rlm_context.json, where the FIFOs rlm_cmd and rlm_res are created
  --ready-fd N       an inherited descriptor that gets `ready` and a newline when a call can be taken
  -h, --help         print this text
  -V, --version      print the version

Environment: RLM_EXEC_TIMEOUT, RLM_MAX_OUTPUT_BYTES, RLM_HOST_PID, RLM_TERM, RLM_COLUMNS, RLM_ROWS, RLM_PASS_ENV,
RLM_BASH, RLM_CHECKPOINT, and the root-tool variables, which are passed on to the session.

Limits of the session's resources, off by default: RLM_LIMIT_PROCESSES, RLM_LIMIT_MEMORY and RLM_LIMIT_FILE_SIZE
(bytes), RLM_LIMIT_CPU (seconds); RLM_CGROUP, the cgroup for them.

Exit status: 0 after a request to shut down, 2 usage, 3 the session cannot be started or served,
128 + N after signal N.

RLM_CONFINE=full, landlock or try: the session reaches its own directory, the system's programs and its endpoint alone;
RLM_CONFINE_READ and RLM_CONFINE_WRITE, further paths; RLM_CONFINE_TMP, bytes of /tmp. Without it, code runs with
the rights of this process.
";

    type Interpreter = BashSession;

    fn needs(&mut self, environment: &Environment, _programs: &Path) -> Result<Vec<PathBuf>, Exit> {
        Ok(vec![shell(environment)])
    }

    fn configure(
        self,
        environment: &Environment,
        settings: Settings,
        context: Context,
        answer: Answer,
        resource_limits: ResourceLimits,
    ) -> Result<BashConfig, Exit> {
        let size = |text: &str| text.parse::<u16>().ok().filter(|size| *size > 0);
        let expected = "a number from 1 to 65535";
        let rows = environment.parse(env::ROWS, expected, size).map_err(Exit::failed)?;
        let columns = environment.parse(env::COLUMNS, expected, size).map_err(Exit::failed)?;
        let mut session_env = settings.session_env;
        let programs =
            programs::directory(environment.path(env::BIN_DIR).as_deref()).map_err(Exit::failed)?;
        let helper = programs.join(tools::HELPER);
        tools::provide(&mut session_env, settings.root_tools.as_ref(), &helper).map_err(Exit::failed)?;
        Ok(BashConfig {
            bash: shell(environment),
            workdir: context.fs_root,
            answer,
            env: session_env,
            resource_limits,
            max_output_bytes: settings.max_output_bytes,
            live: settings.live,
            takes_checkpoints: settings.checkpoint.is_some(),
            rows: rows.unwrap_or(24),
            columns: columns.unwrap_or(80),
        })
    }
}

/// The bash that runs the code.
fn shell(environment: &Environment) -> PathBuf {
    let found = environment.path(env::BASH).or_else(|| environment.find_program("bash"));
    found.unwrap_or_else(|| PathBuf::from("/bin/bash"))
}

fn main() -> ExitCode {
    program::main::<BashWorker>()
}

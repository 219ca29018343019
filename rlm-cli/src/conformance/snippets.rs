//! Code for the cases, in each language.

use rlm_env::ReplLanguage;

/// Code in one language.
#[derive(Debug)]
pub(super) struct Snippets {
    /// The language.
    pub(super) language: ReplLanguage,
    /// Makes the file `started`, then sleeps.
    pub(super) sleeps: &'static str,
    /// Sleeps for a second, then prints `done`.
    pub(super) sleeps_a_second: &'static str,
    /// Sets `kept`.
    pub(super) keeps: &'static str,
    /// Prints `kept` as `[VALUE]`, and `[]` if it is not set.
    pub(super) shows_kept: &'static str,
    /// Starts a process that outlives the call: `sleep` in a session of its own.
    pub(super) leaves_a_process: &'static str,
    /// Sets the answer to `forty-two`, and makes it final.
    pub(super) answers: &'static str,
    /// Sets the answer to 200,000 `x`.
    pub(super) answers_at_length: &'static str,
    /// Ends the interpreter with status 3.
    pub(super) ends_its_interpreter: &'static str,
    /// Prints 100,000 characters: `head`, many `x`, `tail`.
    pub(super) prints_much: &'static str,
}

impl Snippets {
    /// The code of a language.
    pub(super) fn of(language: ReplLanguage) -> &'static Self {
        match language {
            ReplLanguage::Bash => &BASH,
            ReplLanguage::Python => &PYTHON,
        }
    }

    /// Prints a word and a newline.
    pub(super) fn print(&self, word: &str) -> String {
        match self.language {
            ReplLanguage::Bash => format!("echo {word}"),
            ReplLanguage::Python => format!("print({word:?})"),
        }
    }

    /// Prints the value of a variable as `[VALUE]`.
    pub(super) fn show(&self, variable: &str) -> String {
        match self.language {
            ReplLanguage::Bash => format!("printf '[%s]' \"${variable}\""),
            ReplLanguage::Python => format!("print(f'[{{{variable}}}]', end='')"),
        }
    }

    /// Prints a word and a newline, then makes a file of that name.
    pub(super) fn print_and_mark(&self, word: &str) -> String {
        match self.language {
            ReplLanguage::Bash => format!("echo {word}; : >{word}"),
            ReplLanguage::Python => format!("print({word:?}); open({word:?}, 'w').close()"),
        }
    }
}

static BASH: Snippets = Snippets {
    language: ReplLanguage::Bash,
    sleeps: ": >started; sleep 1000",
    sleeps_a_second: "sleep 1; echo done",
    keeps: "kept=value",
    shows_kept: "printf '[%s]' \"$kept\"",
    leaves_a_process: "(nohup setsid sleep 1000 >/dev/null 2>&1 &)",
    answers: "RLM_CONTENT=forty-two; RLM_READY=1",
    answers_at_length: "RLM_CONTENT=$(head -c 200000 /dev/zero | tr '\\0' x)",
    ends_its_interpreter: "exit 3",
    prints_much: "printf head; head -c 99992 /dev/zero | tr '\\0' x; printf tail",
};

static PYTHON: Snippets = Snippets {
    language: ReplLanguage::Python,
    sleeps: "open('started', 'w').close()\nimport time\ntime.sleep(1000)",
    sleeps_a_second: "import time\ntime.sleep(1)\nprint('done')",
    keeps: "kept = 'value'",
    shows_kept: "print(f\"[{globals().get('kept', '')}]\", end='')",
    leaves_a_process: "import subprocess\nleft = subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    answers: "answer['content'] = 'forty-two'\nanswer['ready'] = True",
    answers_at_length: "answer['content'] = 'x' * 200000",
    ends_its_interpreter: "import os\nos._exit(3)",
    prints_much: "print('head' + 'x' * 99992 + 'tail', end='')",
};

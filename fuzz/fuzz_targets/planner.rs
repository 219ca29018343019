//! Whatever code a model writes: no panic; and a plan keeps the lines of the code, has a variable in it for each call, and
//! leaves no call in it.

#![no_main]
#![allow(dead_code, reason = "the host uses all of it")]

use libfuzzer_sys::fuzz_target;

#[path = "../../rlm-env/src/interception/mod.rs"]
mod interception;
mod terms {
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum ReplLanguage {
        Bash,
        Python,
    }
}

use interception::{Plan, Planner, VariableNames};
use terms::ReplLanguage;

const TOOLS: [&str; 2] = ["llm_batch", "tool"];

fuzz_target!(|input: (bool, Option<u8>, &str)| {
    let (is_python, minor, code) = input;
    let planner = Planner {
        language: if is_python { ReplLanguage::Python } else { ReplLanguage::Bash },
        python: minor.map(|minor| (3, 10 + minor % 5)),
        tools: &TOOLS,
    };
    let Plan::Intercepted { calls, code: rewritten } = planner.plan(code, &mut VariableNames::new(1)) else {
        return;
    };
    assert!(!calls.is_empty());
    for call in &calls {
        assert!(
            TOOLS.contains(&&*call.call.tool) && rewritten.contains(&call.variable),
            "{call:?} in {rewritten:?}"
        );
    }
    let lines = |text: &str| text.matches('\n').count();
    assert_eq!(lines(code), lines(&rewritten), "{rewritten:?}");
    // The variables have a reserved name, so a plan of the rewritten code may be refused, but it makes no call.
    let again = planner.plan(&rewritten, &mut VariableNames::new(2));
    assert!(!matches!(again, Plan::Intercepted { .. }), "{again:?}");
});

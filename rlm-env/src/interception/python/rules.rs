//! The rules by which a use of a tool's name is served or rejected.

use std::collections::HashSet;

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::Call;
use ruff_python_ast::{AnyNodeRef, Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::literal::{self, NoValue};
use super::uses::{CallSite, Use, UseKind};
use crate::interception::rejection::{ArgumentFault, Fault};

/// A use without a fault.
pub(super) enum Judgement {
    Call { call: Call, range: CallRanges },
    RefusedByPython,
}

/// The ranges of a call in the code.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallRanges {
    pub(super) whole: TextRange,
    /// The arguments with the parentheses.
    pub(super) arguments: TextRange,
}

/// The call, or its fault and the fault's offset.
pub(super) fn judge(found: &Use<'_>, code: &str) -> Result<Judgement, (TextSize, Fault)> {
    let here = |fault| (found.range.start(), fault);
    let site = match &found.kind {
        UseKind::Call(site) => site,
        UseKind::Reference => return Err(here(Fault::Reference)),
        UseKind::Binding | UseKind::Import => return Err(here(Fault::Rebound)),
        UseKind::Reserved => return Err(here(Fault::Reserved)),
    };
    if let Some(fault) = structure_fault(site, found.statement) {
        return Err((site.call.start(), fault));
    }
    match arguments(site.call, code) {
        Ok((args, kwargs)) => {
            let call = Call { tool: found.name.to_owned(), args, kwargs };
            let range = CallRanges { whole: site.call.range(), arguments: site.call.arguments.range() };
            Ok(Judgement::Call { call, range })
        }
        Err(NoArguments::RefusedByPython) => Ok(Judgement::RefusedByPython),
        Err(NoArguments::Fault(at, fault)) => Err((at, fault)),
    }
}

/// The reason why a call is not a statement `name = tool(…)` of the module.
pub(super) fn structure_fault(site: &CallSite<'_>, statement: &Stmt) -> Option<Fault> {
    let is_call = |expression: &Expr| expression.range() == site.call.range();
    match site.parent {
        Some(AnyNodeRef::ExprAwait(_)) => return Some(Fault::Awaited),
        Some(AnyNodeRef::ExprNamed(named)) if is_call(&named.value) => return Some(Fault::Walrus),
        _ => {}
    }
    if let Some(place) = site.place {
        return Some(Fault::Inside(place));
    }
    match statement {
        Stmt::Expr(statement) if is_call(&statement.value) => Some(Fault::Unnamed),
        Stmt::AugAssign(statement) if is_call(&statement.value) => Some(Fault::Augmented),
        Stmt::AnnAssign(statement) if statement.value.as_deref().is_some_and(is_call) => {
            Some(Fault::Annotated)
        }
        Stmt::Assign(statement) if is_call(&statement.value) => match &statement.targets[..] {
            [Expr::Name(_)] => None,
            [Expr::Tuple(_) | Expr::List(_) | Expr::Starred(_)] => Some(Fault::Unpacked),
            [_] => Some(Fault::TargetNotName),
            _ => Some(Fault::SeveralTargets),
        },
        _ => Some(Fault::Nested),
    }
}

enum NoArguments {
    Fault(TextSize, Fault),
    RefusedByPython,
}

fn arguments(call: &ExprCall, code: &str) -> Result<(Vec<Value>, Dict), NoArguments> {
    let failed = |argument: String, failure| match failure {
        NoValue::Fault(fault, range) => {
            NoArguments::Fault(range.start(), Fault::Argument { argument, fault })
        }
        NoValue::RefusedByPython => NoArguments::RefusedByPython,
    };
    let mut seen = HashSet::new();
    let mut names = call.arguments.keywords.iter().filter_map(|keyword| keyword.arg.as_ref());
    if names.any(|name| !seen.insert(name.as_str())) {
        return Err(NoArguments::RefusedByPython);
    }
    let mut args = Vec::with_capacity(call.arguments.args.len());
    for (at, argument) in call.arguments.args.iter().enumerate() {
        let value = literal::value(argument, code);
        args.push(value.map_err(|failure| failed(format!("argument {}", at + 1), failure))?);
    }
    let mut kwargs = Vec::with_capacity(call.arguments.keywords.len());
    for keyword in &call.arguments.keywords {
        let Some(name) = &keyword.arg else {
            let found = ArgumentFault::NotLiteral("an unpacked dict (**)".to_owned());
            let argument = "keyword arguments".to_owned();
            return Err(failed(argument, NoValue::Fault(found, keyword.range())));
        };
        let value = literal::value(&keyword.value, code);
        let value = value.map_err(|failure| failed(format!("argument {name}"), failure))?;
        kwargs.push((Value::from(name.as_str()), value));
    }
    let kwargs = Dict::from_pairs(kwargs).expect("a str is hashable");
    Ok((args, kwargs))
}

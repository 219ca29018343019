//! Values of Python literals.

use std::borrow::Cow;
use std::sync::Arc;

use num_bigint::BigInt;
use rlm_core::pickle::{Dict, Int, Set, Unhashable, Value};
use ruff_python_ast::{BytesLiteral, Expr, ExprDict, Number, StringLiteral, UnaryOp};
use ruff_python_parser::parse_expression;
use ruff_text_size::{Ranged, TextRange};

use crate::interception::rejection::ArgumentFault;

/// Python's limit on the digits of a decimal literal, without leading zeros.
const MAX_DIGITS: usize = 4300;

/// Why an expression has no value.
#[derive(Debug)]
pub(super) enum NoValue {
    /// The host cannot know or represent the value of the expression at this range.
    Fault(ArgumentFault, TextRange),
    /// Python reports a syntax error.
    RefusedByPython,
}

/// The value that the session's Python would give a literal.
pub(super) fn value(expression: &Expr, code: &str) -> Result<Value, NoValue> {
    let fault = |fault| NoValue::Fault(fault, expression.range());
    let unhashable = |Unhashable(kind)| fault(ArgumentFault::Unhashable(kind));
    let all = |items: &[Expr]| items.iter().map(|item| value(item, code)).collect::<Result<Vec<_>, _>>();
    match expression {
        Expr::NoneLiteral(_) => Ok(Value::None),
        Expr::BooleanLiteral(literal) => Ok(Value::Bool(literal.value)),
        Expr::NumberLiteral(_) | Expr::UnaryOp(_) => number(expression, code),
        Expr::StringLiteral(literal) => {
            let parts = literal.value.iter().map(|part| string(part, code));
            Ok(Value::from(parts.collect::<Result<String, NoValue>>()?))
        }
        Expr::BytesLiteral(literal) => {
            let parts = literal.value.iter().flat_map(|part| bytes(part, code).into_owned());
            Ok(Value::Bytes(parts.collect()))
        }
        Expr::Tuple(tuple) => Ok(Value::Tuple(Arc::new(all(&tuple.elts)?))),
        Expr::List(list) => Ok(Value::List(Arc::new(all(&list.elts)?))),
        Expr::Set(set) => Ok(Value::Set(Arc::new(Set::from_items(all(&set.elts)?).map_err(unhashable)?))),
        Expr::Dict(dict) => Ok(Value::from(Dict::from_pairs(pairs(dict, code)?).map_err(unhashable)?)),
        _ => Err(fault(ArgumentFault::NotLiteral(description(expression, code)))),
    }
}

fn pairs(dict: &ExprDict, code: &str) -> Result<Vec<(Value, Value)>, NoValue> {
    let pairs = dict.items.iter().map(|item| {
        let Some(key) = &item.key else {
            let found = "an unpacked dict (**)".to_owned();
            return Err(NoValue::Fault(ArgumentFault::NotLiteral(found), item.value.range()));
        };
        Ok((value(key, code)?, value(&item.value, code)?))
    });
    pairs.collect()
}

/// A number with any number of signs.
fn number(expression: &Expr, code: &str) -> Result<Value, NoValue> {
    let (mut operand, mut is_negative) = (expression, false);
    while let Expr::UnaryOp(unary) = operand
        && matches!(unary.op, UnaryOp::USub | UnaryOp::UAdd)
    {
        is_negative ^= unary.op == UnaryOp::USub;
        operand = &unary.operand;
    }
    let Expr::NumberLiteral(literal) = operand else {
        let found = description(expression, code);
        return Err(NoValue::Fault(ArgumentFault::NotLiteral(found), expression.range()));
    };
    match &literal.value {
        Number::Int(_) => {
            let int = int(&code[literal.range()]).ok_or(NoValue::RefusedByPython)?;
            let int = if is_negative { -int } else { int };
            Ok(Value::Int(Int::from_le_bytes(&int.to_signed_bytes_le())))
        }
        Number::Float(float) => Ok(Value::Float(if is_negative { -float } else { *float })),
        Number::Complex { .. } => Err(NoValue::Fault(ArgumentFault::Complex, expression.range())),
    }
}

/// The value of an int literal: `1_000`, `0xff`.
fn int(text: &str) -> Option<BigInt> {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        // Python allows leading zeros only in 0 itself.
        _ => match digits.trim_start_matches('0') {
            "" => return Some(BigInt::ZERO),
            digits if digits.len() > MAX_DIGITS => return None,
            digits => (10, digits),
        },
    };
    BigInt::parse_bytes(digits.as_bytes(), radix)
}

fn string<'a>(part: &'a StringLiteral, code: &str) -> Result<Cow<'a, str>, NoValue> {
    let text = &code[part.range()];
    if !part.flags.prefix().is_raw() && has_surrogate(text) {
        return Err(NoValue::Fault(ArgumentFault::Surrogate, part.range()));
    }
    match with_plain_line_ends(text) {
        Some(Expr::StringLiteral(literal)) => Ok(Cow::Owned(literal.value.to_str().to_owned())),
        _ => Ok(Cow::Borrowed(part.as_str())),
    }
}

fn bytes<'a>(part: &'a BytesLiteral, code: &str) -> Cow<'a, [u8]> {
    match with_plain_line_ends(&code[part.range()]) {
        Some(Expr::BytesLiteral(literal)) => Cow::Owned(literal.value.bytes().collect()),
        _ => Cow::Borrowed(&part.value),
    }
}

/// The literal with `\r
/// ` and `\r` replaced by `
/// `, as Python reads code. None if it has neither.
fn with_plain_line_ends(text: &str) -> Option<Expr> {
    let plain = text.contains('\r').then(|| text.replace("\r\n", "\n").replace('\r', "\n"))?;
    parse_expression(&plain).ok().map(|parsed| *parsed.into_syntax().body)
}

/// True if an escape in a string names a surrogate.
fn has_surrogate(text: &str) -> bool {
    let mut escapes = text.split('\\').skip(1);
    while let Some(escape) = escapes.next() {
        let digits = match escape.bytes().next() {
            None => {
                // An escaped backslash: skip the second one, so that the text after it is not read as an escape.
                escapes.next();
                continue;
            }
            Some(b'u') => escape.get(1..5),
            Some(b'U') => escape.get(1..9),
            Some(_) => None,
        };
        let code_point = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        if code_point.is_some_and(|code_point| (0xd800..0xe000).contains(&code_point)) {
            return true;
        }
    }
    false
}

/// A noun phrase that describes an expression.
pub(super) fn description(expression: &Expr, code: &str) -> String {
    let kind = match expression {
        Expr::Name(name) => return format!("the variable {}", name.id),
        Expr::UnaryOp(unary) if unary.op != UnaryOp::Not => return operand_description(&unary.operand, code),
        Expr::Starred(_) => "an unpacked iterable (*)",
        Expr::Call(_) => "a call",
        Expr::Attribute(_) => "an attribute",
        Expr::Subscript(_) | Expr::Slice(_) => "a subscript",
        Expr::FString(_) => "an f-string",
        Expr::TString(_) => "a t-string",
        Expr::Lambda(_) => "a lambda",
        Expr::Await(_) => "an await",
        Expr::Yield(_) | Expr::YieldFrom(_) => "a yield",
        Expr::Named(_) => "an assignment expression (:=)",
        Expr::If(_) => "a conditional expression",
        Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) => "a comprehension",
        Expr::Generator(_) => "a generator",
        Expr::EllipsisLiteral(_) => "`...`",
        _ => "an operation",
    };
    kind.to_owned()
}

fn operand_description(operand: &Expr, code: &str) -> String {
    match value(operand, code) {
        Ok(_) => "an operation".to_owned(),
        Err(_) => description(operand, code),
    }
}

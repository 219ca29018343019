//! How deep the tree of a piece of code can be, from its tokens alone, before anything is parsed: the tree is walked and
//! dropped by recursion.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// Levels that are parsed. Python itself gives up at some three times as many.
pub(super) const MAX_LEVELS: usize = 2000;
/// Open brackets that Python takes.
const MAX_BRACKETS: usize = 200;
/// Levels of indentation that Python takes.
const MAX_INDENTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Levels {
    Few,
    /// Over [`MAX_LEVELS`].
    TooMany,
    /// Python has a syntax error for it.
    RefusedByPython,
}

/// What a bracket, or a statement outside all brackets, holds.
#[derive(Clone, Copy, Default)]
struct Open {
    /// Operators since the last comma, pairs of brackets among them: in `a.b().c` and `- - -1` each is a level at most.
    chain: usize,
    /// Lambdas, whose parameters have commas too.
    lambdas: usize,
}

/// An upper bound: each operator adds one level at most, an operand none, and what a comma parts is side by side.
pub(super) fn of(code: &str) -> Levels {
    let mut lexer = lexer::lex(code, Mode::Module);
    let (mut open, mut indents, mut outer) = (vec![Open::default()], 0usize, 0);
    loop {
        let kind = lexer.next_token();
        let last = open.len() - 1;
        match kind {
            TokenKind::EndOfFile => return Levels::Few,
            TokenKind::Comment | TokenKind::NonLogicalNewline => continue,
            TokenKind::Newline | TokenKind::Semi => {
                open.truncate(1);
                open[0] = Open::default();
                outer = 0;
            }
            TokenKind::Indent => indents += 1,
            TokenKind::Dedent => indents = indents.saturating_sub(1),
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => {
                outer += open[last].chain + open[last].lambdas + 1;
                open.push(Open::default());
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace if last > 0 => {
                open.pop();
                outer -= open[last - 1].chain + open[last - 1].lambdas + 1;
                open[last - 1].chain += 1;
            }
            TokenKind::Comma => open[last].chain = 0,
            TokenKind::Lambda => open[last].lambdas += 1,
            _ if is_operand(kind) => {}
            _ => open[last].chain += 1,
        }
        if open.len() - 1 > MAX_BRACKETS || indents >= MAX_INDENTS {
            return Levels::RefusedByPython;
        }
        let innermost = open[open.len() - 1];
        if indents + outer + innermost.chain + innermost.lambdas > MAX_LEVELS {
            return Levels::TooMany;
        }
    }
}

/// What is between operators, or belongs to one that is counted: `else` to `if`.
fn is_operand(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringStart
            | TokenKind::FStringMiddle
            | TokenKind::FStringEnd
            | TokenKind::TStringStart
            | TokenKind::TStringMiddle
            | TokenKind::TStringEnd
            | TokenKind::Ellipsis
            | TokenKind::None
            | TokenKind::True
            | TokenKind::False
            | TokenKind::Else
            | TokenKind::Colon
    )
}

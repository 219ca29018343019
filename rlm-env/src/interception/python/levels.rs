//! An upper bound on the depth of a syntax tree, from the code's tokens alone. It is checked before parsing, because
//! the tree is walked and dropped recursively.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// Deepest tree that is parsed. Python's own limit is about three times as high.
pub(super) const MAX_LEVELS: usize = 2000;
/// Python's limit on nested brackets.
const MAX_BRACKETS: usize = 200;
/// Python's limit on levels of indentation.
const MAX_INDENTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Levels {
    Few,
    /// More than [`MAX_LEVELS`].
    TooMany,
    /// Python reports a syntax error.
    RefusedByPython,
}

/// Counts within a bracket, or within a statement outside all brackets.
#[derive(Clone, Copy, Default)]
struct Open {
    /// Operators since the last comma, counting pairs of brackets: in `a.b().c` and `- - -1` each adds at most one
    /// level.
    chain: usize,
    /// Lambdas, whose parameters also contain commas.
    lambdas: usize,
}

/// An upper bound: an operator adds at most one level, an operand none, and elements separated by commas are siblings.
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

/// True for operands, and for keywords that belong to an operator already counted: `else` to `if`.
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

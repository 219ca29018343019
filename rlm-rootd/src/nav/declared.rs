//! Names and signatures of definitions.

use rlm_core::text::{cut, one_line};
use tree_sitter::Node as Syntax;

/// Longest single name in bytes; anything longer is not a symbol.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Longest signature, in characters.
const SIGNATURE_CHARS: usize = 200;

/// The line of a symbol: that of its name.
pub(super) fn line(syntax: Syntax<'_>) -> usize {
    let named = syntax.child_by_field_name("name").or_else(|| syntax.child_by_field_name("declarator"));
    first_line(named.unwrap_or(syntax))
}

/// The names of a symbol: several if it is defined outside of its holder, `A::b`.
pub(super) fn names(source: &[u8], syntax: Syntax<'_>) -> Option<Vec<String>> {
    if let Some(name) = syntax.child_by_field_name("name") {
        return Some(parts(source, name));
    }
    if let Some(declarator) = declarators(syntax).last() {
        return Some(parts(source, declarator));
    }
    // `impl Trait for Type<T>`.
    let mut of_type = syntax.child_by_field_name("type")?;
    while let Some(inner) = of_type.child_by_field_name("type") {
        of_type = inner;
    }
    Some(vec![parts(source, of_type).pop()?])
}

fn parts(source: &[u8], name: Syntax<'_>) -> Vec<String> {
    let text = text(source, name);
    if name.kind() == "operator_cast" || name.kind() == "operator_name" || !text.contains("::") {
        return vec![text];
    }
    let plain = without_angles(&text);
    plain.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// A name's text on one line.
pub(super) fn text(source: &[u8], syntax: Syntax<'_>) -> String {
    let bytes = &source[syntax.byte_range()];
    one_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_NAME_BYTES)]))
}

pub(super) fn signature(source: &[u8], syntax: Syntax<'_>, outer: Syntax<'_>) -> String {
    let start = if outer.kind() == "decorated_definition" { syntax } else { outer }.start_byte();
    let value = || syntax.child_by_field_name("value");
    let body = syntax.child_by_field_name("body").or_else(|| value()?.child_by_field_name("body"));
    let end = body.map_or(outer.end_byte(), |body| body.start_byte()).max(start);
    let bytes = &source[start..end.min(start + 16 * SIGNATURE_CHARS)];
    let text = String::from_utf8_lossy(bytes);
    let is_many_lines = body.is_none() && !is_of_function(syntax);
    let text = if is_many_lines { text.lines().next().unwrap_or_default() } else { &text };
    let line = one_line(text);
    let line = line.strip_suffix("=>").unwrap_or(&line);
    cut(line.trim_end_matches([' ', '{', ':', ';', '=', '\\']), SIGNATURE_CHARS)
}

/// True if a declaration declares a function: if its declarator, within pointers and references, is one.
pub(super) fn is_of_function(syntax: Syntax<'_>) -> bool {
    match declarators(syntax).find(|declarator| declarator.kind() == "function_declarator") {
        // `int (*f)(void)` is a variable.
        Some(function) => function
            .child_by_field_name("declarator")
            .is_none_or(|inner| inner.kind() != "parenthesized_declarator"),
        None => syntax.child_by_field_name("parameters").is_some(),
    }
}

/// The declarator of a node, and those within it, from the outermost on.
fn declarators(syntax: Syntax<'_>) -> impl Iterator<Item = Syntax<'_>> {
    std::iter::successors(syntax.child_by_field_name("declarator"), |at| {
        let is_reference = at.kind() == "reference_declarator";
        at.child_by_field_name("declarator").or_else(|| is_reference.then(|| at.named_child(0))?)
    })
}

/// `A<B, C>::d` without the parts in angle brackets.
fn without_angles(text: &str) -> String {
    let mut depth = 0_usize;
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}

/// The first line of a node, from 1.
pub(super) fn first_line(syntax: Syntax<'_>) -> usize {
    syntax.start_position().row + 1
}

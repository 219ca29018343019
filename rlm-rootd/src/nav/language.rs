//! The table of languages: the extensions of their files, and the syntax nodes that are symbols.

use std::fmt;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

/// A language whose files have symbols.
pub(super) struct Language {
    /// The name of the language, in lower case.
    pub(super) name: &'static str,
    endings: &'static [&'static str],
    grammar: fn() -> tree_sitter::Language,
    nodes: &'static [(&'static str, Node)],
    compiled: OnceLock<Compiled>,
}

/// A grammar, with the meaning of each node kind by its number.
pub(super) struct Compiled {
    pub(super) grammar: tree_sitter::Language,
    nodes: Vec<Option<Node>>,
}

/// The meaning of a node kind. The children of other kinds are visited, but the nodes themselves mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A symbol of this kind that contains others.
    Holds(&'static str),
    /// A symbol of this kind that contains others, if it has a body: otherwise it is only a reference.
    HoldsIfBody(&'static str),
    /// A function; its contents are not listed. In a class it is a method.
    Function,
    /// A C declaration, which is a symbol if it declares a function.
    Prototype,
    /// A symbol of this kind without members.
    Leaf(&'static str),
    /// An assignment or a declarator: a variable, or a function or class assigned to one.
    Variable,
    /// A wrapper that belongs to the symbol in it: `export`, `template<…>`, decorators.
    Wrapper,
    /// A wrapper that belongs to the symbol in it, if that is the only one: `const (…)`.
    WrapperOfOne,
    /// A comment or an attribute, which belongs to the symbol after it.
    Leading,
    /// Skipped: symbols in it are not listed.
    Closed,
}

use Node::{Closed, Function, Holds, HoldsIfBody, Leading, Leaf, Prototype, Variable, Wrapper, WrapperOfOne};

impl Language {
    /// The language of a file, by its name.
    pub(super) fn of(path: &Path) -> Option<&'static Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        LANGUAGES.iter().find(|language| language.endings.contains(&ending.as_str()))
    }

    pub(super) fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| Compiled::new(self.grammar, self.nodes))
    }
}

impl fmt::Debug for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Compiled {
    fn new(grammar: fn() -> tree_sitter::Language, nodes: &[(&str, Node)]) -> Self {
        let grammar = grammar();
        let count = u16::try_from(grammar.node_kind_count()).unwrap_or(u16::MAX);
        let node = |id| {
            let name = grammar.node_kind_for_id(id).filter(|_| grammar.node_kind_is_named(id))?;
            nodes.iter().find_map(|(held, node)| (*held == name).then_some(*node))
        };
        let nodes = (0..count).map(node).collect();
        Self { grammar, nodes }
    }

    pub(super) fn node(&self, kind: u16) -> Option<Node> {
        self.nodes.get(usize::from(kind)).copied().flatten()
    }
}

fn language(
    name: &'static str,
    endings: &'static [&'static str],
    grammar: fn() -> tree_sitter::Language,
    nodes: &'static [(&'static str, Node)],
) -> Language {
    Language { name, endings, grammar, nodes, compiled: OnceLock::new() }
}

static LANGUAGES: LazyLock<Vec<Language>> = LazyLock::new(|| {
    vec![
        language("python", &["py", "pyi", "pyw"], || tree_sitter_python::LANGUAGE.into(), PYTHON),
        language("rust", &["rs"], || tree_sitter_rust::LANGUAGE.into(), RUST),
        language(
            "javascript",
            &["js", "jsx", "mjs", "cjs"],
            || tree_sitter_javascript::LANGUAGE.into(),
            JAVASCRIPT,
        ),
        language(
            "typescript",
            &["ts", "mts", "cts"],
            || tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            JAVASCRIPT,
        ),
        language("tsx", &["tsx"], || tree_sitter_typescript::LANGUAGE_TSX.into(), JAVASCRIPT),
        language("go", &["go"], || tree_sitter_go::LANGUAGE.into(), GO),
        language("java", &["java"], || tree_sitter_java::LANGUAGE.into(), JAVA),
        language("c", &["c"], || tree_sitter_c::LANGUAGE.into(), C),
        // Many headers are C++, whose grammar also accepts C.
        language("c", &["h"], || tree_sitter_cpp::LANGUAGE.into(), C),
        language(
            "c++",
            &["cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "ipp", "tpp"],
            || tree_sitter_cpp::LANGUAGE.into(),
            C,
        ),
    ]
});

const PYTHON: &[(&str, Node)] = &[
    ("class_definition", Holds("class")),
    ("function_definition", Function),
    ("decorated_definition", Wrapper),
    ("expression_statement", WrapperOfOne),
    ("assignment", Variable),
    ("type_alias_statement", Leaf("type")),
    ("comment", Leading),
    ("lambda", Closed),
];

const RUST: &[(&str, Node)] = &[
    ("struct_item", Leaf("struct")),
    ("enum_item", Leaf("enum")),
    ("union_item", Leaf("union")),
    ("trait_item", Holds("trait")),
    ("impl_item", Holds("impl")),
    ("mod_item", Holds("module")),
    ("function_item", Function),
    ("function_signature_item", Function),
    ("const_item", Leaf("constant")),
    ("static_item", Leaf("variable")),
    ("type_item", Leaf("type")),
    ("associated_type", Leaf("type")),
    ("macro_definition", Leaf("macro")),
    ("attribute_item", Leading),
    ("line_comment", Leading),
    ("block_comment", Leading),
    ("closure_expression", Closed),
];

/// Shared with TypeScript.
const JAVASCRIPT: &[(&str, Node)] = &[
    ("class_declaration", Holds("class")),
    ("abstract_class_declaration", Holds("class")),
    ("class", Holds("class")),
    ("interface_declaration", Holds("interface")),
    ("enum_declaration", Holds("enum")),
    ("internal_module", Holds("namespace")),
    ("module", Holds("namespace")),
    ("function_declaration", Function),
    ("generator_function_declaration", Function),
    ("function_signature", Function),
    ("method_definition", Function),
    ("method_signature", Function),
    ("abstract_method_signature", Function),
    ("type_alias_declaration", Leaf("type")),
    ("variable_declarator", Variable),
    ("export_statement", Wrapper),
    ("ambient_declaration", Wrapper),
    ("expression_statement", WrapperOfOne),
    ("lexical_declaration", WrapperOfOne),
    ("variable_declaration", WrapperOfOne),
    ("comment", Leading),
    ("decorator", Leading),
    ("arrow_function", Closed),
    ("function_expression", Closed),
    ("generator_function", Closed),
];

const GO: &[(&str, Node)] = &[
    ("function_declaration", Function),
    ("method_declaration", Function),
    ("type_spec", Holds("type")),
    ("type_alias", Leaf("type")),
    ("method_elem", Function),
    ("const_spec", Leaf("constant")),
    ("var_spec", Leaf("variable")),
    ("type_declaration", WrapperOfOne),
    ("const_declaration", WrapperOfOne),
    ("var_declaration", WrapperOfOne),
    ("comment", Leading),
    ("func_literal", Closed),
];

const JAVA: &[(&str, Node)] = &[
    ("class_declaration", Holds("class")),
    ("interface_declaration", Holds("interface")),
    ("enum_declaration", Holds("enum")),
    ("record_declaration", Holds("record")),
    ("annotation_type_declaration", Holds("annotation")),
    ("method_declaration", Function),
    ("constructor_declaration", Function),
    ("compact_constructor_declaration", Function),
    ("line_comment", Leading),
    ("block_comment", Leading),
    ("lambda_expression", Closed),
];

/// Shared with C++.
const C: &[(&str, Node)] = &[
    ("namespace_definition", Holds("namespace")),
    ("class_specifier", HoldsIfBody("class")),
    ("struct_specifier", HoldsIfBody("struct")),
    ("union_specifier", HoldsIfBody("union")),
    ("enum_specifier", HoldsIfBody("enum")),
    ("function_definition", Function),
    ("declaration", Prototype),
    ("field_declaration", Prototype),
    ("type_definition", Leaf("type")),
    ("alias_declaration", Leaf("type")),
    ("concept_definition", Leaf("concept")),
    ("preproc_def", Leaf("macro")),
    ("preproc_function_def", Leaf("macro")),
    ("template_declaration", Wrapper),
    ("comment", Leading),
    ("lambda_expression", Closed),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_of_the_table_is_one_of_a_grammar_that_has_it() {
        // Two languages share a table, so a node needs to exist in only one of their grammars.
        for language in LANGUAGES.iter() {
            for (name, node) in language.nodes {
                let is_known = |other: &Language| {
                    std::ptr::eq(other.nodes, language.nodes)
                        && (other.grammar)().id_for_node_kind(name, true) != 0
                };
                assert!(LANGUAGES.iter().any(is_known), "{language:?}: {name} {node:?}");
            }
        }
    }

    #[test]
    fn languages_are_known_by_endings() {
        let name = |path: &str| Language::of(Path::new(path)).map(|language| language.name);
        assert_eq!(name("a/b.PY"), Some("python"));
        assert_eq!(name("a.d.ts"), Some("typescript"));
        assert_eq!(name("a.h"), Some("c"));
        assert_eq!(name("a.hpp"), Some("c++"));
        assert_eq!((name("Makefile"), name(".py"), name("a.txt")), (None, None, None));
    }
}

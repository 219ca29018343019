//! The syntax tree of a bash cell.

use std::ops::Range;

use std::sync::LazyLock;

use tree_sitter::{Language, Parser};

static GRAMMAR: LazyLock<Language> = LazyLock::new(|| tree_sitter_bash::LANGUAGE.into());

/// A node. Nodes follow their parents.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: &'static str,
    pub(super) range: Range<usize>,
    pub(super) parent: Option<usize>,
    /// The field of its parent that holds it.
    pub(super) field: Option<&'static str>,
    pub(super) is_named: bool,
}

/// Nodes in source order, the root first.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// True if the parser had to recover from an error.
    pub(super) is_faulty: bool,
}

impl Tree {
    pub(super) fn of(code: &str) -> Self {
        let mut parser = Parser::new();
        parser.set_language(&GRAMMAR).expect("the grammar fits the library, as a test shows");
        let tree = parser.parse(code, None).expect("a language is set, and nothing ends the parsing");
        let mut cursor = tree.walk();
        let (mut nodes, mut path) = (Vec::new(), Vec::new());
        let mut is_faulty = tree.root_node().has_error();
        loop {
            let node = cursor.node();
            is_faulty |= node.is_error() || node.is_missing();
            let field = cursor.field_id().and_then(|id| GRAMMAR.field_name_for_id(id.get()));
            let kind = GRAMMAR.node_kind_for_id(node.kind_id()).unwrap_or("ERROR");
            let parent = path.last().copied();
            nodes.push(Node { kind, range: node.byte_range(), parent, field, is_named: node.is_named() });
            if cursor.goto_first_child() {
                path.push(nodes.len() - 1);
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return Self { nodes, is_faulty };
                }
                path.pop();
            }
        }
    }

    pub(super) fn parent(&self, at: usize) -> Option<usize> {
        self.nodes[at].parent
    }

    pub(super) fn kind(&self, at: usize) -> &'static str {
        self.nodes[at].kind
    }

    /// The node and its ancestors, up to the root.
    pub(super) fn path_up(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |at| self.parent(*at))
    }

    pub(super) fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        let end = self.nodes[at].range.end;
        let inside =
            (at + 1..self.nodes.len()).take_while(move |child| self.nodes[*child].range.start <= end);
        inside.filter(move |child| self.parent(*child) == Some(at))
    }

    pub(super) fn named_children(&self, at: usize) -> Vec<usize> {
        self.children(at).filter(|child| self.nodes[*child].is_named).collect()
    }
}

//! Uses of tools' names in Python code.

use std::collections::HashMap;

use ruff_python_ast::visitor::source_order::{SourceOrderVisitor, TraversalSignal};
use ruff_python_ast::{AnyNodeRef, Expr, ExprCall, ExprContext, ExprName, Identifier, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::interception::names::RESERVED_PREFIX;
use crate::interception::rejection::Place;

/// The uses of tools' names in a module.
#[derive(Debug)]
pub(super) struct Uses<'a> {
    /// Uses in source order.
    pub(super) list: Vec<Use<'a>>,
    /// Number of times that each name is bound, deleted or declared, in any scope; `*` for an import of all names.
    pub(super) bindings: HashMap<&'a str, usize>,
}

/// A use of a tool's name or of a reserved name.
#[derive(Debug)]
pub(super) struct Use<'a> {
    pub(super) name: &'a str,
    pub(super) range: TextRange,
    pub(super) kind: UseKind<'a>,
    /// The module's statement that contains it.
    pub(super) statement: &'a Stmt,
    /// The innermost statement that contains it.
    pub(super) innermost: AnyNodeRef<'a>,
}

#[derive(Debug)]
pub(super) enum UseKind<'a> {
    Call(CallSite<'a>),
    Reference,
    Binding,
    /// A binding by an import without `as`.
    Import,
    Reserved,
}

#[derive(Debug)]
pub(super) struct CallSite<'a> {
    pub(super) call: &'a ExprCall,
    /// The innermost construct because of which the call cannot be intercepted.
    pub(super) place: Option<Place>,
    /// The expression or statement that directly contains the call, if that matters.
    pub(super) parent: Option<AnyNodeRef<'a>>,
}

impl<'a> Uses<'a> {
    pub(super) fn of(body: &'a [Stmt], tools: &[&str]) -> Self {
        let mut uses = Self { list: Vec::new(), bindings: HashMap::new() };
        for statement in body {
            let mut collector = Collector { tools, statement, path: Vec::new(), uses: &mut uses };
            collector.visit_stmt(statement);
        }
        uses
    }

    /// The calls in a statement of the module.
    pub(super) fn calls_in(&self, statement: &Stmt) -> impl Iterator<Item = (&Use<'a>, &CallSite<'a>)> {
        let range = statement.range();
        let first = self.list.partition_point(|found| found.range.end() <= range.start());
        let inside = self.list[first..].iter().take_while(move |found| found.range.start() < range.end());
        inside.filter_map(|found| match &found.kind {
            UseKind::Call(site) => Some((found, site)),
            _ => None,
        })
    }
}

struct Collector<'a, 'u> {
    tools: &'u [&'u str],
    statement: &'a Stmt,
    /// The ancestors, from the statement down.
    path: Vec<AnyNodeRef<'a>>,
    uses: &'u mut Uses<'a>,
}

impl<'a> SourceOrderVisitor<'a> for Collector<'a, '_> {
    fn enter_node(&mut self, node: AnyNodeRef<'a>) -> TraversalSignal {
        if let AnyNodeRef::ExprName(name) = node {
            self.name(name);
        }
        self.path.push(node);
        TraversalSignal::Traverse
    }

    fn leave_node(&mut self, _node: AnyNodeRef<'a>) {
        self.path.pop();
    }

    fn visit_identifier(&mut self, identifier: &'a Identifier) {
        let name = identifier.as_str();
        let mut kind = UseKind::Binding;
        let bound = match self.path.last() {
            Some(
                AnyNodeRef::ExprAttribute(_)
                | AnyNodeRef::Keyword(_)
                | AnyNodeRef::PatternKeyword(_)
                | AnyNodeRef::StmtImportFrom(_),
            ) => return,
            // `import a.b as c` binds c, and `import a.b` binds a.
            Some(AnyNodeRef::Alias(alias)) => match &alias.asname {
                Some(asname) if asname.range() != identifier.range() => return,
                Some(_) => name,
                None => {
                    kind = UseKind::Import;
                    name.split('.').next().unwrap_or(name)
                }
            },
            _ => name,
        };
        self.bound(bound, identifier.range(), kind);
    }
}

impl<'a> Collector<'a, '_> {
    fn name(&mut self, name: &'a ExprName) {
        let id = name.id.as_str();
        if name.ctx != ExprContext::Load {
            return self.bound(id, name.range(), UseKind::Binding);
        }
        if id.starts_with(RESERVED_PREFIX) {
            self.push(id, name.range(), UseKind::Reserved);
        } else if self.tools.contains(&id) {
            let kind = match self.path.last() {
                Some(AnyNodeRef::ExprCall(call)) if call.func.range() == name.range() => {
                    UseKind::Call(self.call_site(call))
                }
                _ => UseKind::Reference,
            };
            self.push(id, name.range(), kind);
        }
    }

    fn bound(&mut self, name: &'a str, range: TextRange, kind: UseKind<'a>) {
        *self.uses.bindings.entry(name).or_default() += 1;
        if name.starts_with(RESERVED_PREFIX) {
            self.push(name, range, UseKind::Reserved);
        } else if self.tools.contains(&name) {
            self.push(name, range, kind);
        }
    }

    fn push(&mut self, name: &'a str, range: TextRange, kind: UseKind<'a>) {
        let innermost = self.path.iter().rev().find(|node| node.is_statement()).copied();
        let innermost = innermost.unwrap_or(AnyNodeRef::from(self.statement));
        self.uses.list.push(Use { name, range, kind, statement: self.statement, innermost });
    }

    fn call_site(&self, call: &'a ExprCall) -> CallSite<'a> {
        let above = &self.path[..self.path.len() - 1];
        let place = above.iter().rev().find_map(|node| place(node, call));
        CallSite { call, place, parent: above.last().copied() }
    }
}

/// The reason why calls in this node are not intercepted, if there is one.
fn place(node: &AnyNodeRef<'_>, call: &ExprCall) -> Option<Place> {
    let holds = |expression: &Expr| expression.range().contains_range(call.range());
    Some(match node {
        AnyNodeRef::ExprLambda(_) => Place::Lambda,
        AnyNodeRef::ExprListComp(_)
        | AnyNodeRef::ExprSetComp(_)
        | AnyNodeRef::ExprDictComp(_)
        | AnyNodeRef::ExprGenerator(_) => Place::Comprehension,
        AnyNodeRef::ExprFString(_) | AnyNodeRef::ExprTString(_) => Place::FString,
        AnyNodeRef::Decorator(_) => Place::Decorator,
        AnyNodeRef::Parameter(_) => Place::Annotation,
        AnyNodeRef::ParameterWithDefault(_) => Place::Default,
        AnyNodeRef::StmtAnnAssign(statement) if holds(&statement.annotation) => Place::Annotation,
        AnyNodeRef::StmtFunctionDef(function) if function.returns.as_deref().is_some_and(holds) => {
            Place::Annotation
        }
        AnyNodeRef::StmtFunctionDef(_) => Place::Function,
        AnyNodeRef::StmtClassDef(_) => Place::Class,
        AnyNodeRef::StmtIf(_) => Place::Block("if"),
        AnyNodeRef::StmtFor(_) => Place::Block("for"),
        AnyNodeRef::StmtWhile(_) => Place::Block("while"),
        AnyNodeRef::StmtWith(_) => Place::Block("with"),
        AnyNodeRef::StmtTry(_) => Place::Block("try"),
        AnyNodeRef::StmtMatch(_) => Place::Block("match"),
        _ => return None,
    })
}

/// True for a statement that can contain statements.
pub(super) fn is_block(statement: &Stmt) -> bool {
    has_body(AnyNodeRef::from(statement))
}

/// True for the node of a statement that can contain statements.
pub(super) fn has_body(node: AnyNodeRef<'_>) -> bool {
    matches!(
        node,
        AnyNodeRef::StmtIf(_)
            | AnyNodeRef::StmtFor(_)
            | AnyNodeRef::StmtWhile(_)
            | AnyNodeRef::StmtWith(_)
            | AnyNodeRef::StmtTry(_)
            | AnyNodeRef::StmtMatch(_)
            | AnyNodeRef::StmtFunctionDef(_)
            | AnyNodeRef::StmtClassDef(_)
    )
}

//! Errors that Python reports for code that parses: `return` outside a function, a duplicate parameter name.

use std::cell::Cell;
use std::collections::HashMap;

use ruff_python_ast::visitor::source_order::{
    SourceOrderVisitor, TraversalSignal, walk_body, walk_expr, walk_stmt,
};
use ruff_python_ast::{AnyNodeRef, Comprehension, ExceptHandler, Expr, PythonVersion, Stmt, StmtTry};
use ruff_python_parser::semantic_errors::{
    LazyImportContext, SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError,
};
use ruff_text_size::{Ranged, TextRange};

/// True if this version of Python refuses the module.
pub(super) fn are_refused(body: &[Stmt], code: &str, version: PythonVersion) -> bool {
    let context = Context {
        code,
        version,
        path: Vec::new(),
        globals: vec![Globals::of(body)],
        at: Cell::default(),
        is_refused: Cell::new(false),
    };
    let mut visitor = Visitor { checker: SemanticSyntaxChecker::new(), context };
    visitor.visit_body(body);
    visitor.context.is_refused.get()
}

struct Visitor<'a> {
    checker: SemanticSyntaxChecker,
    context: Context<'a>,
}

struct Context<'a> {
    code: &'a str,
    version: PythonVersion,
    /// The ancestors of the current node, from the module's statement down.
    path: Vec<AnyNodeRef<'a>>,
    /// The globals of the module, and of each function and class on the path.
    globals: Vec<Globals<'a>>,
    /// The current node's range.
    at: Cell<TextRange>,
    is_refused: Cell<bool>,
}

impl<'a> SourceOrderVisitor<'a> for Visitor<'a> {
    fn enter_node(&mut self, node: AnyNodeRef<'a>) -> TraversalSignal {
        match node {
            AnyNodeRef::StmtFunctionDef(function) => self.context.globals.push(Globals::of(&function.body)),
            AnyNodeRef::StmtClassDef(class) => self.context.globals.push(Globals::of(&class.body)),
            _ => {}
        }
        self.context.path.push(node);
        TraversalSignal::Traverse
    }

    fn leave_node(&mut self, node: AnyNodeRef<'a>) {
        self.context.path.pop();
        if matches!(node, AnyNodeRef::StmtFunctionDef(_) | AnyNodeRef::StmtClassDef(_)) {
            self.context.globals.pop();
        }
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.context.at.set(statement.range());
        self.checker.visit_stmt(statement, &self.context);
        if self.context.refuses(statement) {
            self.context.is_refused.set(true);
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        self.context.at.set(expression.range());
        self.checker.visit_expr(expression, &self.context);
        walk_expr(self, expression);
    }
}

/// True if `except:` comes before another `except`.
fn has_early_bare_except(statement: &StmtTry) -> bool {
    let bare = |ExceptHandler::ExceptHandler(handler): &ExceptHandler| handler.type_.is_none();
    statement.handlers.iter().rev().skip(1).any(bare)
}

impl<'a> Context<'a> {
    /// Checks that the library's checker does not make.
    fn refuses(&self, statement: &Stmt) -> bool {
        let is_used_before_global =
            |name: &str| self.global(name).is_some_and(|global| statement.start() < global.start());
        match statement {
            Stmt::Try(statement) => has_early_bare_except(statement),
            Stmt::Expr(statement) => statement.value.is_starred_expr(),
            Stmt::FunctionDef(function) => is_used_before_global(&function.name),
            Stmt::ClassDef(class) => is_used_before_global(&class.name),
            Stmt::Return(_) => self.leaves_except_star(|_| false),
            Stmt::Break(_) | Stmt::Continue(_) => {
                self.leaves_except_star(|above| is_loop_of(above, self.at.get()))
            }
            _ => false,
        }
    }

    /// True if the statement would leave an `except*` block.
    fn leaves_except_star(&self, is_left: impl Fn(AnyNodeRef<'a>) -> bool) -> bool {
        let at = self.at.get();
        let inside =
            self.path.iter().rev().take_while(|above| !is_scope_of(**above, at) && !is_left(**above));
        inside.into_iter().any(|above| match above {
            AnyNodeRef::StmtTry(statement) if statement.is_star => {
                statement.handlers.iter().any(|handler| handler.range().contains_range(at))
            }
            _ => false,
        })
    }

    /// The ancestors whose scope contains the current node, the innermost first.
    fn scopes(&self) -> impl Iterator<Item = AnyNodeRef<'a>> {
        let at = self.at.get();
        self.path.iter().rev().copied().filter(move |above| is_scope_of(*above, at))
    }

    /// The innermost function, class or lambda.
    fn block(&self) -> Option<AnyNodeRef<'a>> {
        self.scopes().find(|scope| !is_comprehension(*scope))
    }
}

/// True if names at this place belong to this scope; not so for its defaults, decorators and bases.
fn is_scope_of(above: AnyNodeRef<'_>, at: TextRange) -> bool {
    match above {
        AnyNodeRef::StmtFunctionDef(function) => is_in(&function.body, at),
        AnyNodeRef::StmtClassDef(class) => is_in(&class.body, at),
        AnyNodeRef::ExprLambda(lambda) => lambda.body.range().contains_range(at),
        _ => generators(above).is_some_and(|generators| {
            !generators.first().is_some_and(|first| first.iter.range().contains_range(at))
        }),
    }
}

fn is_in(body: &[Stmt], at: TextRange) -> bool {
    let (first, last) = (body.first(), body.last());
    first.is_some_and(|first| first.start() <= at.start()) && last.is_some_and(|last| at.end() <= last.end())
}

/// True if this is a loop and the place is in its body; `else` does not count.
fn is_loop_of(above: AnyNodeRef<'_>, at: TextRange) -> bool {
    match above {
        AnyNodeRef::StmtFor(statement) => is_in(&statement.body, at),
        AnyNodeRef::StmtWhile(statement) => is_in(&statement.body, at),
        _ => false,
    }
}

fn is_comprehension(node: AnyNodeRef<'_>) -> bool {
    generators(node).is_some()
}

fn generators(node: AnyNodeRef<'_>) -> Option<&[Comprehension]> {
    match node {
        AnyNodeRef::ExprListComp(comprehension) => Some(&comprehension.generators),
        AnyNodeRef::ExprSetComp(comprehension) => Some(&comprehension.generators),
        AnyNodeRef::ExprDictComp(comprehension) => Some(&comprehension.generators),
        AnyNodeRef::ExprGenerator(generator) => Some(&generator.generators),
        _ => None,
    }
}

impl SemanticSyntaxContext for Context<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        false
    }

    fn lazy_import_context(&self) -> Option<LazyImportContext> {
        match self.block() {
            Some(AnyNodeRef::StmtClassDef(_)) => Some(LazyImportContext::Class),
            Some(_) => Some(LazyImportContext::Function),
            None if self.path.iter().any(|above| above.is_stmt_try()) => {
                Some(LazyImportContext::TryExceptBlocks)
            }
            None => None,
        }
    }

    fn python_version(&self) -> PythonVersion {
        self.version
    }

    fn source(&self) -> &str {
        self.code
    }

    fn global(&self, name: &str) -> Option<TextRange> {
        if self.globals.iter().all(|globals| !globals.0.contains_key(name)) {
            return None;
        }
        let is_of_statements =
            |scope| matches!(scope, AnyNodeRef::StmtClassDef(_) | AnyNodeRef::StmtFunctionDef(_));
        // Lambdas and comprehensions have their own names.
        if self.scopes().next().is_some_and(|scope| !is_of_statements(scope)) {
            return None;
        }
        let depth = self.scopes().filter(|scope| is_of_statements(*scope)).count();
        self.globals.get(depth)?.0.get(name).copied()
    }

    /// Always true: only a symbol table would show which names the enclosing functions bind.
    fn has_nonlocal_binding(&self, _name: &str) -> bool {
        self.scopes().skip(1).any(|scope| scope.is_stmt_function_def())
    }

    fn in_async_context(&self) -> bool {
        match self.block() {
            Some(AnyNodeRef::StmtFunctionDef(function)) => function.is_async,
            Some(_) => false,
            None => true,
        }
    }

    fn in_await_allowed_context(&self) -> bool {
        !matches!(self.scopes().next(), Some(AnyNodeRef::StmtClassDef(_)))
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.scopes().next(), Some(AnyNodeRef::StmtFunctionDef(_) | AnyNodeRef::ExprLambda(_)))
    }

    fn in_sync_comprehension(&self) -> bool {
        let mut comprehensions =
            self.scopes().take_while(|scope| is_comprehension(*scope)).filter_map(generators);
        comprehensions.any(|generators| generators.iter().all(|generator| !generator.is_async))
    }

    fn in_class_body_comprehension(&self) -> bool {
        matches!(self.block(), Some(AnyNodeRef::StmtClassDef(_)))
    }

    fn in_module_scope(&self) -> bool {
        self.block().is_none()
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.scopes().next(), Some(AnyNodeRef::StmtFunctionDef(_)))
    }

    fn in_generator_context(&self) -> bool {
        matches!(self.scopes().next(), Some(AnyNodeRef::ExprGenerator(_)))
    }

    /// Allows `await` at the top level.
    fn in_notebook(&self) -> bool {
        true
    }

    fn report_semantic_error(&self, _error: SemanticSyntaxError) {
        self.is_refused.set(true);
    }

    fn in_loop_context(&self) -> bool {
        let at = self.at.get();
        let in_block = self.path.iter().rev().take_while(|above| !is_scope_of(**above, at));
        in_block.into_iter().any(|above| is_loop_of(*above, at))
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        match self.block() {
            Some(AnyNodeRef::StmtFunctionDef(function)) => function.parameters.includes(name),
            _ => false,
        }
    }
}

/// The last `global` statement of each name in one scope.
struct Globals<'a>(HashMap<&'a str, TextRange>);

impl<'a> Globals<'a> {
    fn of(body: &'a [Stmt]) -> Self {
        let mut found = Self(HashMap::new());
        walk_body(&mut found, body);
        found
    }
}

impl<'a> SourceOrderVisitor<'a> for Globals<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Global(global) => {
                self.0.extend(global.names.iter().map(|name| (name.as_str(), global.range())));
            }
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => {}
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, _expression: &'a Expr) {}
}

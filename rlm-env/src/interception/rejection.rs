//! Rejections: the calls that cannot be intercepted, why, and what to write instead.

use std::fmt;

use rlm_core::text::counted;

use super::names::RESERVED_PREFIX;

/// Number of rejections that are listed; further ones are counted.
pub(crate) const MAX_LISTED: usize = 20;

/// The rejections in a piece of code, in source order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejections {
    /// The rejections: at least one, at most [`MAX_LISTED`].
    pub listed: Vec<Rejection>,
    /// Number of further rejections.
    pub more: usize,
}

/// A use of a tool that cannot be intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The tool's name, or the reserved name.
    pub name: String,
    /// The reason.
    pub fault: Fault,
    /// Line of the statement to put `fixed` before. None: `fixed` replaces the statement.
    pub before: Option<usize>,
    /// The code to write instead, one or more lines. `...` in Python and `<literal>` in bash stand for a literal that
    /// the author must fill in. Empty if there is no proposal.
    pub fixed: String,
}

/// Why a use of a tool's name cannot be intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `tool()` without a name for its value.
    Unnamed,
    /// `print(tool())`: a call within a larger expression, or in a statement other than an assignment.
    Nested,
    /// A call that may not run exactly once, or is not at module level.
    Inside(Place),
    /// An argument whose value the host cannot know or represent.
    Argument {
        /// The argument's position or name: `argument 2` or `argument key`.
        argument: String,
        /// The reason.
        fault: ArgumentFault,
    },
    /// `a = b = tool()`
    SeveralTargets,
    /// `a, b = tool()`
    Unpacked,
    /// `a.b = tool()`, `a[0] = tool()`
    TargetNotName,
    /// `a: int = tool()`
    Annotated,
    /// `a += tool()`
    Augmented,
    /// `(a := tool())`
    Walrus,
    /// `await tool()`
    Awaited,
    /// `f = tool`: the session has no such function.
    Reference,
    /// `tool = 3`, `def tool()`, `import x as tool`, `del tool`
    Rebound,
    /// A name that begins with [`RESERVED_PREFIX`].
    Reserved,
    /// In bash: the line of `name=$(tool)` has something else on it, or the call spans several lines.
    SharesLine,
    /// In bash: a call that may mean something else, because of this property of the code.
    Uncertain(&'static str),
    /// In bash: `llm_batch` without an argument; its standard input is not known before the code runs.
    NoPrompt,
    /// In bash: words that are not those of a call, for this reason.
    Words(String),
    /// Code that is nested too deeply to be parsed.
    TooDeep {
        /// The limit.
        levels: usize,
    },
}

/// A construct in which calls are not intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The body of a function.
    Function,
    /// A class.
    Class,
    /// A lambda.
    Lambda,
    /// A comprehension or a generator.
    Comprehension,
    /// An f-string or a t-string.
    FString,
    /// A decorator.
    Decorator,
    /// The default of a parameter.
    Default,
    /// An annotation.
    Annotation,
    /// A statement with a body: `if`, `for`, `while`, `with`, `try`, `match`.
    Block(&'static str),
}

/// Why an argument's value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentFault {
    /// The value is not a literal: it is or contains this, `the variable path`.
    NotLiteral(String),
    /// The value contains one that Python cannot hash where it must: a list as a dict key.
    Unhashable(&'static str),
    /// The value is or contains a complex number.
    Complex,
    /// In bash: the value is an option of the tool's command.
    Option(String),
    /// In bash: the value names a file, `@path`.
    File(String),
    /// The value contains a lone surrogate, which is not a character.
    Surrogate,
}

impl fmt::Display for Rejections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.listed.iter().peekable();
        while let Some(rejection) = rest.next() {
            rejection.write_fault(formatter)?;
            match rest.peek() {
                // Rejections with the same fix share it.
                Some(next) if next.fixed == rejection.fixed => {}
                _ => rejection.write_fixed(formatter)?,
            }
            if rest.peek().is_some() {
                formatter.write_str("\n")?;
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(formatter, "\nand {} like these", counted(more as u64, "more place")),
        }
    }
}

/// Line, column, name and reason, with the fixed lines below, indented.
impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_fault(formatter)?;
        self.write_fixed(formatter)
    }
}

impl Rejection {
    fn write_fault(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: {} {}", self.line, self.column, self.name, self.fault)
    }

    fn write_fixed(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fixed.is_empty() {
            return Ok(());
        }
        match self.before {
            Some(line) => {
                write!(formatter, "\n  write before line {line}, at the top level, and use the name:")?
            }
            None => formatter.write_str("\n  write instead:")?,
        }
        self.fixed.lines().try_for_each(|line| write!(formatter, "\n    {line}"))
    }
}

/// A predicate; the subject is the tool's name.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => f.write_str("is called, but its value is not assigned to a name"),
            Self::Nested => f.write_str("is called inside another expression or statement"),
            Self::Inside(place) => {
                write!(f, "is called in {place}; tools can only be called at the top level")
            }
            Self::Argument { argument, fault } => fault.write_about(argument, f),
            Self::NoPrompt => f.write_str("is called without a prompt; give each prompt as an argument"),
            Self::Words(reason) => write!(f, "is not called with the words that it takes: {reason}"),
            Self::SeveralTargets => f.write_str("is called with several assignment targets"),
            Self::Unpacked => f.write_str("is called and its value unpacked in one statement"),
            Self::TargetNotName => f.write_str("is called with a target that is not a simple name"),
            Self::Annotated => f.write_str("is called with an annotated target"),
            Self::Augmented => f.write_str("is called in an augmented assignment"),
            Self::Walrus => f.write_str("is called in an assignment expression (:=)"),
            Self::Awaited => f.write_str("is awaited; a tool is not a coroutine"),
            Self::Reference => f.write_str("is used as a value; a tool can only be called"),
            Self::Rebound => f.write_str("is the name of a tool and cannot be bound or deleted"),
            Self::Reserved => write!(f, "is reserved, as is every name that begins with {RESERVED_PREFIX}"),
            Self::SharesLine => f.write_str("is called on a line that is not just `name=$(…)`"),
            Self::Uncertain(reason) => {
                write!(f, "is named in code that {reason}; make this call first, in a separate piece of code")
            }
            Self::TooDeep { levels } => {
                write!(f, "is named in code that is nested more than {levels} levels deep")
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Function => "a function",
            Self::Class => "a class",
            Self::Lambda => "a lambda",
            Self::Comprehension => "a comprehension",
            Self::FString => "an f-string",
            Self::Decorator => "a decorator",
            Self::Default => "the default of a parameter",
            Self::Annotation => "an annotation",
            Self::Block(keyword) => {
                let article = if *keyword == "if" { "an" } else { "a" };
                return write!(formatter, "{article} `{keyword}` statement");
            }
        })
    }
}

impl ArgumentFault {
    /// A predicate, as for [`Fault`].
    fn write_about(&self, argument: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: &str = match self {
            Self::NotLiteral(found) => {
                return write!(formatter, "needs a literal as {argument} (found: {found})");
            }
            Self::Unhashable(kind) => &format!("has an unhashable {kind} in a set or as the key of a dict"),
            Self::Complex => "is or contains a complex number, which tools do not accept",
            Self::Option(option) => &format!("is an option ({option}), which is not supported here"),
            Self::File(file) => &format!("stands for a file ({file}), which is not supported here"),
            Self::Surrogate => "contains a lone surrogate, which is not a character",
        };
        write!(formatter, "is called with {argument} that {what}")
    }
}

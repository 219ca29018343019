//! What is not intercepted, why, and what to write instead.

use std::fmt;

use rlm_core::text::counted;

use super::names::RESERVED_PREFIX;

/// Rejections that are listed; the rest is counted.
pub(crate) const MAX_LISTED: usize = 20;

/// What is wrong with a piece of code, in the order of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejections {
    /// At least one, at most [`MAX_LISTED`].
    pub listed: Vec<Rejection>,
    /// How many more there are.
    pub more: usize,
}

/// A place in the code that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The tool, or the reserved name.
    pub name: String,
    /// What is wrong.
    pub fault: Fault,
    /// Line of the statement that `fixed` goes before, where it does not take the place of what is there.
    pub before: Option<usize>,
    /// What to write instead: one line or more, where `...` in Python and `<literal>` in bash stand for a
    /// literal that is still to be written. Empty where
    /// there is nothing to propose.
    pub fixed: String,
}

/// What is wrong with a use of a tool's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Fault {
    /// `tool()`, whose value has no name.
    Unnamed,
    /// `print(tool())`: a call that is part of a larger expression or of another statement than an assignment.
    Nested,
    /// A call that does not run exactly once, or not at module level.
    Inside(Place),
    /// An argument that the host cannot know or hold.
    Argument {
        /// Which: `argument 2` or `argument key`.
        argument: String,
        /// Why.
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
    /// `f = tool`: there is no such function in the session.
    Reference,
    /// `tool = 3`, `def tool()`, `import x as tool`, `del tool`
    Rebound,
    /// A name that begins with [`RESERVED_PREFIX`].
    Reserved,
    /// In bash: something else is on the line of `name=$(tool)`, or it is of more lines than one.
    SharesLine,
    /// In bash: a call that may not be what it seems, and what the code has or is.
    Uncertain(&'static str),
    /// Code of so many levels that it is not read.
    TooDeep {
        /// The most that is read.
        levels: usize,
    },
}

/// Where a call is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum ArgumentFault {
    /// It is no literal, since it is or contains this: `the variable path`.
    NotLiteral(String),
    /// It has a part that Python cannot hash where it must: a list as the key of a dict.
    Unhashable(&'static str),
    /// It is a complex number.
    Complex,
    /// In bash: it is an option of the tool's command.
    Option(String),
    /// In bash: it names a file, `@path`.
    File(String),
    /// It has a lone surrogate, which is no character.
    Surrogate,
}

impl fmt::Display for Rejections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.listed.iter().peekable();
        while let Some(rejection) = rest.next() {
            rejection.write_fault(formatter)?;
            match rest.peek() {
                // Said once for all that it puts right.
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

/// Where, what, why, and the fixed lines beneath, indented.
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

/// What is said of the name.
impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => formatter.write_str("is called, but its value gets no name"),
            Self::Nested => formatter.write_str("is called inside another expression or statement"),
            Self::Inside(place) => {
                write!(formatter, "is called in {place}; a tool is called at the top level only, once")
            }
            Self::Argument { argument, fault } => write!(formatter, "is called with {argument} {fault}"),
            Self::SeveralTargets => formatter.write_str("is called with several targets for its value"),
            Self::Unpacked => formatter.write_str("is called and its value unpacked in one statement"),
            Self::TargetNotName => formatter.write_str("is called with a target that is no simple name"),
            Self::Annotated => formatter.write_str("is called with a target that has an annotation"),
            Self::Augmented => formatter.write_str("is called in an augmented assignment"),
            Self::Walrus => formatter.write_str("is called in an assignment expression (:=)"),
            Self::Awaited => formatter.write_str("is awaited; a tool is no coroutine"),
            Self::Reference => formatter.write_str("is used as a value; a tool can only be called"),
            Self::Rebound => formatter.write_str("is the name of a tool and cannot be bound or deleted"),
            Self::Reserved => {
                write!(formatter, "is reserved, as is every name that begins with {RESERVED_PREFIX}")
            }
            Self::SharesLine => formatter.write_str("is called on a line that is not just `name=$(…)`"),
            Self::Uncertain(reason) => {
                write!(
                    formatter,
                    "is named in code that {reason}; make the call in a code of its own, before this one"
                )
            }
            Self::TooDeep { levels } => {
                write!(formatter, "is named in code that is nested more than {levels} levels deep")
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

/// What is said of the argument.
impl fmt::Display for ArgumentFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLiteral(found) => write!(formatter, "that is no literal ({found})"),
            Self::Unhashable(kind) => {
                write!(formatter, "in which a {kind}, which is unhashable, is in a set or the key of a dict")
            }
            Self::Complex => formatter.write_str("that is or contains a complex number, which no tool takes"),
            Self::Option(option) => {
                write!(formatter, "that is an option ({option}), which is not taken here")
            }
            Self::File(file) => write!(formatter, "that stands for a file ({file}), which is not taken here"),
            Self::Surrogate => formatter.write_str("that contains a lone surrogate, which is no character"),
        }
    }
}

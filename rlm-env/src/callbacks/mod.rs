//! Root tools of a session, called in either of the ways that [`Callbacks`](crate::terms::Callbacks) names.

mod interceptor;
mod root_tools;
mod value;

pub(crate) use self::interceptor::{Interceptor, InterceptorConfig, InterceptorError};
pub use self::root_tools::{RootTools, RootToolsError};

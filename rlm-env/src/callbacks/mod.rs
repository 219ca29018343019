//! Root tools of a session, called in one of the modes of [`Callbacks`](crate::terms::Callbacks).

mod interceptor;
mod root_tools;
mod value;

pub(crate) use self::interceptor::{Interceptor, InterceptorConfig, InterceptorError};
pub use self::root_tools::{RootTools, RootToolsError};

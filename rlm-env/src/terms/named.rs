//! Enums whose variants have names that users write.

/// Implements `Display` and `FromStr` for an enum, with an error that lists the names.
macro_rules! named {
    ($kind:ident, $unknown:ident, $what:literal, { $($variant:ident = $name:literal),* $(,)? }) => {
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $name,)* })
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $unknown;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$variant),)*
                    other => Err($unknown(other.to_owned())),
                }
            }
        }

        #[doc = concat!("An unknown ", $what, ".")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $unknown(String);

        impl std::fmt::Display for $unknown {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let names = [$(concat!("`", $name, "`")),*];
                let (last, others) = names.split_last().expect("an enum has values");
                write!(f, "unknown {} `{}`: expected {} or {last}", $what, self.0, others.join(", "))
            }
        }

        impl std::error::Error for $unknown {}
    };
}

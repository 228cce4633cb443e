//! The link between a message, its number and its answer.

use skep_types::record;
use skep_types::{Decode, Encode};

/// A request that can be sent, with the type of its answer.
pub trait Message: Encode + Decode {
    /// Number in the frame header. Never reused.
    const KIND: u16;
    /// What the answer's body is.
    type Reply: Encode + Decode;
}

record! {
    /// An answer without content.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Empty {}
}

/// Declares a request record with its number and reply type.
#[macro_export]
macro_rules! message {
    ($(#[$meta:meta])* $name:ident = $kind:literal -> $reply:ty { $($body:tt)* }) => {
        skep_types::record! {
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name { $($body)* }
        }
        impl $crate::Message for $name {
            const KIND: u16 = $kind;
            type Reply = $reply;
        }
    };
}

/// Declares the enum of all requests that one service answers.
#[macro_export]
macro_rules! family {
    ($(#[$meta:meta])* $name:ident { $($variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("See [`", stringify!($variant), "`].")] $variant($variant)),*
        }

        impl $name {
            /// Number and name of every request.
            pub const KINDS: &'static [(u16, &'static str)] =
                &[$((<$variant as $crate::Message>::KIND, stringify!($variant))),*];

            /// Reads the body of message number `kind`; `None` for a number of another service.
            pub fn decode(kind: u16, body: &mut skep_types::Reader<'_>) -> Result<Option<Self>, skep_types::DecodeError> {
                Ok(match kind {
                    $(<$variant as $crate::Message>::KIND => {
                        Some(Self::$variant(<$variant as skep_types::Decode>::decode(body)?))
                    })*
                    _ => None,
                })
            }

            /// Its number in the frame header.
            pub fn kind(&self) -> u16 {
                match self { $(Self::$variant(_) => <$variant as $crate::Message>::KIND),* }
            }

            /// Its name, for logs and statistics.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($variant)),* }
            }

            /// Appends the body.
            pub fn encode_body(&self, out: &mut skep_types::codec::Buffer) {
                match self { $(Self::$variant(m) => skep_types::Encode::encode(m, out)),* }
            }
        }

        $(impl From<$variant> for $name {
            fn from(m: $variant) -> Self { Self::$variant(m) }
        })*
    };
}

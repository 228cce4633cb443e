//! The link between a message, its number and its answer.

use skep_types::codec::Record;
use skep_types::record;

/// A request that can be sent, with the type of its answer. Both are records: both can grow by tagged fields.
pub trait Message: Record {
    /// Number in the frame header. Never reused.
    const KIND: u16;
    /// What the answer's body is.
    type Reply: Record;
}

/// Is shown every request of a service: for what holds of all of them.
pub trait Visitor {
    /// One of them.
    fn message<M: Message>(&mut self, name: &'static str);
}

record! {
    /// An answer without content.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Empty {}
}

/// Declares a request record with its number and reply type. What a later release adds is a tagged field, as in
/// [`skep_types::record!`]:
///
/// ```
/// skep_wire::message! {
///     /// Asks how it is.
///     Ask = 0x7f01 -> skep_wire::Empty {
///         /// Whom.
///         pub whom: u32,
///     } tags {
///         /// How loud, since version 2.
///         1 => pub volume: Option<u32>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! message {
    ($(#[$meta:meta])* $name:ident = $kind:literal -> $reply:ty { $($body:tt)* } $(tags { $($tags:tt)* })?) => {
        skep_types::record! {
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name { $($body)* } $(tags { $($tags)* })?
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

            /// Shows every request to `visitor`.
            pub fn visit(visitor: &mut impl $crate::Visitor) {
                $(visitor.message::<$variant>(stringify!($variant));)*
            }

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

//! What goes back: JSON for programs, errors that say what, where and what to do.

use serde::Serialize;

/// Content type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Content type.
    pub kind: &'static str,
    /// One more header.
    pub header: Option<(&'static str, String)>,
    /// The content.
    pub body: String,
}

/// What an error is in JSON, below the key `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorDocument {
    /// The error.
    pub error: ErrorText,
}

/// Says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorText {
    /// What is wrong.
    pub what: String,
    /// With which part of the request or of the cluster.
    pub place: String,
    /// What to do about it.
    pub advice: String,
}

impl Reply {
    /// Text of any type.
    pub fn text(status: u16, kind: &'static str, body: String) -> Self {
        Self { status, kind, header: None, body }
    }

    /// A document.
    pub fn json(value: &impl Serialize) -> Self {
        match serde_json::to_string_pretty(value) {
            Ok(body) => Self::text(200, JSON, body + "\n"),
            Err(e) => Self::error(500, &e.to_string(), "the answer", "report this as a bug"),
        }
    }

    pub fn error(status: u16, what: &str, place: &str, advice: &str) -> Self {
        let text = ErrorText { what: what.to_owned(), place: place.to_owned(), advice: advice.to_owned() };
        // Three texts can always be written.
        let body = serde_json::to_string_pretty(&ErrorDocument { error: text }).unwrap_or_default();
        Self::text(status, JSON, body + "\n")
    }

    /// No such path.
    pub fn not_found(path: &str) -> Self {
        Self::error(404, "there is no such path", path, "see docs/admin/http.md for those that there are")
    }

    /// The path does not take this method.
    pub fn wrong_method(path: &str, allowed: &str) -> Self {
        let reply = Self::error(405, "the path does not take this method", path, &format!("use {allowed}"));
        Self { header: Some(("allow", allowed.to_owned())), ..reply }
    }

    /// No token, or a wrong one.
    pub fn unauthorized(what: &str) -> Self {
        let advice = "send the header \"Authorization: Bearer TOKEN\" with what `skep key token` prints";
        let reply = Self::error(401, what, "the Authorization header", advice);
        Self { header: Some(("www-authenticate", "Bearer".to_owned())), ..reply }
    }
}

//! The administration plane over HTTP: `/metrics` and `/healthz` of every daemon, the API of mgmtd.
//!
//! It has a thread of its own, on which hyper and tokio stay; nothing of it is ever between a program
//! and its files. Everything that a stranger can send is limited, and a port that cannot be had is a
//! warning: a daemon serves without it.

mod get;
mod reply;
mod server;

pub use get::get;
pub use reply::{ErrorDocument, ErrorText, Reply};
pub use server::start;

use crate::metrics::Exposition;

/// A request, read whole.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `GET`, `POST`, ...
    pub method: String,
    /// Without the query, which nothing here has.
    pub path: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// At most [`BODY_MAX`] bytes.
    pub body: Vec<u8>,
}

/// Longest body of a request.
pub const BODY_MAX: usize = 64 << 10;

/// What a daemon shows. Called on threads where it may block for a while.
pub trait Pages: Send + Sync + 'static {
    /// Name of the service.
    fn service(&self) -> &'static str;

    /// Adds what is measured.
    fn metrics(&self, out: &mut Exposition);

    /// Does it serve? If not: what is wrong.
    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }

    /// Answers a request below `/v1/`; only mgmtd has an API.
    fn api(&self, _request: &Request) -> Option<Reply> {
        None
    }
}

/// Answers any request: the paths that every daemon has, then the API.
fn answer(pages: &dyn Pages, request: &Request) -> Reply {
    let read = matches!(request.method.as_str(), "GET" | "HEAD");
    match request.path.as_str() {
        "/metrics" | "/healthz" | "/" if !read => Reply::wrong_method(&request.path, "GET, HEAD"),
        "/metrics" => {
            let mut out = Exposition::default();
            crate::metrics::process::expose(pages.service(), &mut out);
            pages.metrics(&mut out);
            Reply::text(200, crate::metrics::CONTENT_TYPE, out.into_text())
        }
        "/healthz" => match pages.healthy() {
            Ok(()) => Reply::text(200, reply::PLAIN, "ok\n".to_owned()),
            Err(what) => Reply::text(503, reply::PLAIN, format!("{what}\n")),
        },
        "/" => Reply::text(200, reply::PLAIN, front_page(pages)),
        _ => pages.api(request).unwrap_or_else(|| Reply::not_found(&request.path)),
    }
}

fn front_page(pages: &dyn Pages) -> String {
    let service = pages.service();
    let api = match pages.api(&Request { path: "/v1/".to_owned(), ..Request::default() }) {
        Some(_) => "/v1/...   the API: docs/admin/http.md\n",
        None => "",
    };
    format!(
        "skep {service} {}\n/metrics  for Prometheus\n/healthz  does it serve?\n{api}",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests;

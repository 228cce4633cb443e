//! The API of mgmtd: what the commands of administrators do, for programs.
//!
//! A request is carried out as a command would do it: over a connection of its own to the same mgmtd,
//! with the administrator's role. So both can do the same, and show it in the same words.

mod routes;

pub use routes::{AliasBody, Done, MapDocument, NewPoolBody, PoolBody, StateBody};

use routes::Route;
use serde::de::DeserializeOwned;
use skep_base::access::Cluster;
use skep_base::http::{BODY_MAX, Reply, Request};
use skep_base::{Failure, Outcome};
use skep_net::{Endpoint, Keyring, choose, machine_id};
use skep_wire::mgmt::{Address, StatusReply};
use std::sync::Arc;
use std::time::Duration;

/// Where everything of the API is.
const ROOT: &str = "/v1/";
/// Longest time that one question to mgmtd may take.
const ASK_LIMIT: Duration = Duration::from_secs(20);
/// Scheme of the `Authorization` header.
const BEARER: &str = "Bearer";

pub struct Api {
    keyring: Arc<Keyring>,
    own: Vec<Endpoint>,
}

/// A request as a route sees it.
pub struct Call<'a> {
    /// The cluster, reached as an administrator.
    pub cluster: Cluster,
    /// Parts of the path, in the order of their `{}`.
    pub parts: Vec<&'a str>,
    /// What was sent.
    pub body: &'a [u8],
}

/// An answer, or the error instead of it.
pub type Answer = Result<Reply, Reply>;

impl Api {
    /// Of the mgmtd that listens at these addresses.
    pub fn new(keyring: Keyring, addresses: &[Address]) -> Self {
        let own = choose(addresses, machine_id(), machine_id());
        Self { keyring: Arc::new(keyring), own }
    }

    /// Everything that mgmtd knows.
    pub fn status(&self) -> Outcome<StatusReply> {
        self.cluster().status()
    }

    fn cluster(&self) -> Cluster {
        Cluster::at(self.keyring.clone(), self.own.clone(), "mgmtd", ASK_LIMIT)
    }

    /// Answers what is below [`ROOT`].
    pub fn answer(&self, request: &Request) -> Option<Reply> {
        let below = request.path.starts_with(ROOT);
        below.then(|| self.admit(request).and_then(|()| self.dispatch(request)).unwrap_or_else(|error| error))
    }

    /// Only administrators, for reading too: names of hosts and files are nobody else's business.
    fn admit(&self, request: &Request) -> Result<(), Reply> {
        // Whoever reaches an insecure cluster is trusted, here as everywhere.
        if self.keyring.is_insecure() {
            return Ok(());
        }
        let Some(header) = &request.authorization else {
            return Err(Reply::unauthorized("the request has no token"));
        };
        let is_ours = |token: &str| self.keyring.verify_http_token(token.trim());
        match header.split_once(' ').is_some_and(|(scheme, token)| {
            // In any case, as RFC 9110 has it.
            scheme.eq_ignore_ascii_case(BEARER) && is_ours(token)
        }) {
            true => Ok(()),
            false => Err(Reply::unauthorized("the token is not that of this cluster")),
        }
    }

    fn dispatch(&self, request: &Request) -> Answer {
        let method = if request.method == "HEAD" { "GET" } else { &request.method };
        let fitting: Vec<(&Route, Vec<&str>)> =
            routes::ALL.iter().filter_map(|route| Some((route, route.parts(&request.path)?))).collect();
        let Some((route, parts)) = fitting.iter().find(|(route, _)| route.method == method) else {
            let allowed: Vec<_> = fitting.iter().map(|(route, _)| route.method).collect();
            return Err(match allowed.is_empty() {
                true => Reply::not_found(&request.path),
                false => Reply::wrong_method(&request.path, &allowed.join(", ")),
            });
        };
        (route.run)(Call { cluster: self.cluster(), parts: parts.clone(), body: &request.body })
    }
}

impl Call<'_> {
    /// Everything that mgmtd knows.
    pub fn status(&mut self) -> Result<StatusReply, Reply> {
        self.cluster.status().map_err(|failure| failed(&failure))
    }

    /// The body as this document.
    pub fn document<T: DeserializeOwned>(&self) -> Result<T, Reply> {
        serde_json::from_slice(self.body).map_err(|e| {
            let advice = format!("send the JSON that docs/admin/http.md shows, at most {BODY_MAX} bytes");
            Reply::error(400, &e.to_string(), "the body", &advice)
        })
    }
}

/// A command failed: the text says what, where and what to do already.
pub fn failed(failure: &Failure) -> Reply {
    let text = failure.to_string();
    let (status, advice) = match () {
        () if text.contains("there is no ") => (404, "take a name or number from the list"),
        () if failure.is_unreachable() => (503, "look into the log of mgmtd; ask again later"),
        () => (409, "change what it says, then ask again"),
    };
    Reply::error(status, &text, "mgmtd", advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_net::KeyFile;

    fn request(method: &str, path: &str, authorization: Option<String>) -> Request {
        Request { method: method.into(), path: path.into(), authorization, ..Request::default() }
    }

    fn api() -> (Api, String) {
        let keyring = Keyring::new(&KeyFile::generate().unwrap());
        let token = keyring.http_token().unwrap();
        (Api::new(keyring, &[]), format!("{BEARER} {token}"))
    }

    /// Goal: nobody without the token learns anything, not even which paths there are.
    #[test]
    fn the_token_is_needed() {
        let (api, token) = api();
        let status = |authorization: Option<String>, path: &str| {
            api.answer(&request("GET", path, authorization)).map(|reply| reply.status)
        };
        for path in ["/v1/nodes", "/v1/nothing", "/v1/"] {
            for wrong in [
                None,
                Some(String::new()),
                Some(BEARER.into()),
                Some(format!("{token}0")),
                Some(token[7..].into()),
            ] {
                assert_eq!(status(wrong, path), Some(401), "{path}");
            }
        }
        assert_eq!(status(Some(token.clone()), "/v1/nothing"), Some(404));
        assert_eq!(status(Some(token.replace("Bearer", "bEARER")), "/v1/nothing"), Some(404), "in any case");
        assert_eq!(status(Some(token), "/v2/nodes"), None);
        let (other, _) = self::api();
        let (_, foreign) = self::api();
        assert_eq!(other.answer(&request("GET", "/v1/nodes", Some(foreign))).unwrap().status, 401);
    }

    /// Goal: a wrong method is told the right ones; a mgmtd that does not answer is 503, with advice.
    #[test]
    fn errors_say_what_to_do() {
        let (api, token) = api();
        let reply = api.answer(&request("PATCH", "/v1/nodes", Some(token.clone()))).unwrap();
        assert_eq!((reply.status, reply.header), (405, Some(("allow", "GET".to_owned()))));
        let reply = api.answer(&request("HEAD", "/v1/nodes", Some(token))).unwrap();
        assert_eq!(reply.status, 503, "{}", reply.body);
        let document: skep_base::http::ErrorDocument = serde_json::from_str(&reply.body).unwrap();
        assert!(document.error.advice.contains("log"), "{}", reply.body);
    }
}

//! The server: one thread, hyper on tokio, every limit named.

use super::{BODY_MAX, Pages, Reply, Request, answer};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at once; one more is closed at once.
pub const CONNECTIONS_MAX: usize = 64;
/// A connection ends after this time, whatever it is doing: nobody keeps a place for ever.
pub const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// The head of a request must be here within this time, of the first as of later ones.
pub const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// ... and its body within this.
pub const BODY_LIMIT: Duration = Duration::from_secs(5);
/// An answer is made within this time, or is an error.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest head of a request.
pub const HEAD_MAX: usize = 16 << 10;
/// Most header lines.
pub const HEADERS_MAX: usize = 64;
/// Answers that are made at the same time, each by a thread that ends when it is idle.
pub const ANSWERS_AT_ONCE: usize = 4;
/// Pause of accepting when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Connections that the kernel keeps waiting.
const BACKLOG: u32 = 64;

/// Serves `pages` on a thread of its own until the process ends. The address is the one that is
/// listened on; none when there shall be none or it cannot be had.
pub fn start(address: Option<SocketAddr>, pages: Arc<dyn Pages>) -> Option<SocketAddr> {
    let address = address?;
    match spawn(address, pages) {
        Ok(bound) => {
            info!("metrics at http://{bound}/metrics");
            Some(bound)
        }
        Err(e) => {
            warning!("http = \"{address}\": {e}; no metrics here: set another address, or \"\" for none");
            None
        }
    }
}

fn spawn(address: SocketAddr, pages: Arc<dyn Pages>) -> std::io::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(ANSWERS_AT_ONCE)
        .thread_name("http-answer")
        .build()?;
    let listener = runtime.block_on(async {
        let socket = if address.is_ipv4() {
            tokio::net::TcpSocket::new_v4()
        } else {
            tokio::net::TcpSocket::new_v6()
        }?;
        // A restarted daemon takes its port again at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    })?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new()
        .name("http".into())
        .spawn(move || runtime.block_on(accept(listener, pages)))?;
    Ok(bound)
}

async fn accept(listener: TcpListener, pages: Arc<dyn Pages>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let pages = pages.clone();
                tokio::spawn(async move {
                    // Its end is its end, however it came.
                    let _ = tokio::time::timeout(CONNECTION_LIFE, connection(stream, pages)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, pages: Arc<dyn Pages>) {
    let service = service_fn(move |request| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(response(serve(request, pages).await)) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // What a stranger does wrong is his affair: the log is not for it.
    drop(served);
}

/// Reads the request and has it answered by a thread that may block.
async fn serve(request: hyper::Request<Incoming>, pages: Arc<dyn Pages>) -> Reply {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let mut whole = Request {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        authorization: authorization.map(str::to_owned),
        body: Vec::new(),
    };
    match tokio::time::timeout(BODY_LIMIT, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => whole.body = body.to_bytes().to_vec(),
        Ok(Err(_)) => {
            let what = format!("the body is broken or longer than {BODY_MAX} bytes");
            return Reply::error(413, &what, &whole.path, "send a shorter one");
        }
        Err(_) => return Reply::error(408, "the body took too long", &whole.path, "send it at once"),
    }
    let path = whole.path.clone();
    let answering = tokio::task::spawn_blocking(move || answer(&*pages, &whole));
    match tokio::time::timeout(ANSWER_LIMIT, answering).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => Reply::error(500, "no answer could be made", &path, "look into the log of the daemon"),
        Err(_) => Reply::error(504, "the answer took too long", &path, "look into the log of the daemon"),
    }
}

fn response(reply: Reply) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(Bytes::from(reply.body)));
    // Our own codes are all valid ones.
    *response.status_mut() =
        hyper::StatusCode::from_u16(reply.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some((name, value)) = reply.header
        && let Ok(value) = HeaderValue::from_str(&value)
    {
        headers.insert(HeaderName::from_static(name), value);
    }
    response
}

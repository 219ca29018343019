//! The page, served from a loopback address to whoever has the token, and kept up to date by server-sent events.
//!
//! | path | what |
//! | --- | --- |
//! | `/runs` | the recorded runs, as JSON |
//! | `/run/ID`, `/file/NAME` | the page of a recorded run, or of the file that was given |
//! | `…/events` | its rows, as they change |
//! | `…/body?at=N` | a rollout, as HTML |
//! | `…/search?words=W` | the numbers of the rollouts that have all these words |

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path as UrlPath, Query, Request, State};
use axum::http::header::{CONNECTION, SET_COOKIE};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Json, Redirect, Response};
use axum::routing::get;
use futures_util::stream::{Stream, unfold};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rlm_core::ids::is_rollout_id;
use rlm_core::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::access::{Access, HEADERS, Refusal};
use super::html;
use super::live::{Live, yield_to_others};
use super::row::rows;
use crate::environment::Environment;
use crate::lock::lock;
use crate::runs::Runs;
use crate::tell;
use crate::text;
use crate::usage::Usage;

/// The port, unless another program has it: pages that are open find the next server.
const PORT: u16 = 7569;

/// Least time between two messages to a page.
const PAUSE: Duration = Duration::from_millis(300);

/// Most time between two messages to a page, where there is news.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Making messages may take one part in this many of the time.
const PART_OF_TIME: u32 = 10;

/// Time between comments on a stream without news, which show that a page has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Time for which a trajectory is known after the last page that shows it: a tab that is not seen has no stream.
const KEPT: Duration = Duration::from_secs(120);

/// Connections at once: a browser has some six for all of its tabs. Further ones wait, without a descriptor of this process.
const MOST_CONNECTIONS: usize = 64;

/// Time in which a request's head comes, and in which a browser takes a part of an answer.
const STALLED: Duration = Duration::from_secs(10);

/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time in which open pages get the end of a run.
const CATCH_UP: Duration = Duration::from_secs(2);

/// The trajectory that is shown first.
#[derive(Debug)]
pub(crate) enum Shown {
    Run(String),
    File(PathBuf),
}

/// A server that listens at its address.
#[derive(Debug)]
pub(crate) struct Server {
    listener: std::net::TcpListener,
    page: Arc<Page>,
}

/// A page that is being served.
#[derive(Debug)]
pub(crate) struct Serving(Arc<Page>);

#[derive(Debug)]
struct Page {
    access: Access,
    runs: Option<Runs>,
    file: Option<PathBuf>,
    /// The path of the trajectory that was asked for.
    first: String,
    lengths: text::Lengths,
    lives: Mutex<HashMap<PathBuf, Weak<Live>>>,
}

impl Server {
    /// Takes this port; for 0 the usual one, or any if another program has that.
    pub(crate) fn new(
        port: u16,
        shown: Shown,
        lengths: text::Lengths,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let bind = |port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            0 => bind(PORT).or_else(|_| bind(0)).context("cannot listen on 127.0.0.1")?,
            port => bind(port).map_err(|error| {
                Usage::new(format!("--serve={port}: {error}; without a number, a free port is taken"))
            })?,
        };
        listener.set_nonblocking(true)?;
        let access = Access::new(listener.local_addr()?.port(), environment)?;
        let (path, file) = match shown {
            Shown::Run(id) => (format!("run/{id}"), None),
            Shown::File(file) => (format!("file/{}", name_of(&file)), Some(file)),
        };
        let first = format!("{}/{path}", access.base);
        let page =
            Page { access, runs: Runs::of(environment), file, first, lengths, lives: Mutex::default() };
        Ok(Self { listener, page: Arc::new(page) })
    }

    /// The address to open, which holds the token.
    pub(crate) fn address(&self) -> io::Result<String> {
        let (host, page) = (self.listener.local_addr()?, &self.page);
        Ok(format!("http://{host}{}?token={}", page.first, page.access.token()))
    }

    /// Serves until the process ends, on a thread that leaves the processors to others.
    pub(crate) fn start(self) -> anyhow::Result<Serving> {
        let serving = Serving(self.page.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            yield_to_others();
            if let Err(error) = runtime.block_on(serve(self)) {
                tell(format_args!("rlm: the page is served no more: {error}"));
            }
        };
        std::thread::Builder::new()
            .name("page".to_owned())
            .spawn(serve)
            .context("no thread can be started")?;
        Ok(serving)
    }
}

/// The name of a file in paths. It never stands for another file.
fn name_of(file: &Path) -> String {
    hex(&Sha256::digest(file.as_os_str().as_encoded_bytes())[..8])
}

impl Serving {
    /// Waits until open pages have what was written last; does nothing if there are none.
    pub(crate) async fn catch_up(&self) {
        let is_read = lock(&self.0.lives).values().any(|live| live.strong_count() > 0);
        if is_read {
            tokio::time::sleep(CATCH_UP).await;
        }
    }
}

async fn serve(Server { listener, page }: Server) -> io::Result<()> {
    let below = Router::new()
        .route("/runs", get(runs))
        .route("/{kind}/{name}", get(whole))
        .route("/{kind}/{name}/events", get(events))
        .route("/{kind}/{name}/body", get(body))
        .route("/{kind}/{name}/search", get(search));
    let app = Router::new()
        .nest(&page.access.base, below)
        .layer(from_fn_with_state(page.clone(), check))
        .with_state(page);
    let listener = TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let permit = connections.clone().acquire_owned().await.expect("it is never closed");
        let Ok((stream, _peer)) = listener.accept().await else {
            // There may be no free descriptor.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(STALLED));
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(STALLED).max_header_size(HEAD_BYTES);
        let served =
            server.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(app.clone()));
        tokio::spawn(async move {
            // A browser that goes away is not an error.
            _ = served.await;
            drop(permit);
        });
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
}

/// Lets a request through if it has the token, and comes from this page or from no page.
async fn check(
    State(page): State<Arc<Page>>,
    Query(Token { token }): Query<Token>,
    request: Request,
    next: Next,
) -> Response {
    // The connection of a refused request is closed, so that it takes nobody's place.
    const CLOSE: [(HeaderName, &str); 1] = [(CONNECTION, "close")];
    let answer = match page.access.allows(request.headers()) {
        Err(refusal) => (CLOSE, refusal).into_response(),
        Ok(_) if token.as_ref().is_some_and(|token| page.access.is_token(token)) => {
            // The address without the token can be shown and copied.
            let path = match request.uri().path() {
                "/" => page.first.clone(),
                path => format!("/{}", path.trim_start_matches('/')),
            };
            ([(SET_COOKIE, page.access.cookie())], Redirect::to(&path)).into_response()
        }
        Ok(false) => {
            let words = "This page needs the token that rlm printed: open that address.\n";
            (CLOSE, Refusal(StatusCode::UNAUTHORIZED, words.to_owned())).into_response()
        }
        Ok(true) => next.run(request).await,
    };
    (HEADERS, answer).into_response()
}

impl Page {
    /// The file of a path, with the page's title.
    fn file(&self, kind: &str, name: &str) -> Result<(PathBuf, String), Refusal> {
        let found = match kind {
            "run" if is_rollout_id(name) => {
                let of_run = self.runs.as_ref().map(|runs| runs.trajectory(name));
                of_run.filter(|file| file.is_file()).map(|file| (file, name.to_owned()))
            }
            "file" => self.file.clone().filter(|file| name == name_of(file)).map(|file| {
                let title = text::word(&file.display().to_string());
                (file, title)
            }),
            _ => None,
        };
        found.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("no run {name} is recorded\n")))
    }

    /// A trajectory, read by one thread, however many pages show it.
    fn live(&self, kind: &str, name: &str) -> Result<Arc<Live>, Refusal> {
        let (file, _) = self.file(kind, name)?;
        let mut lives = lock(&self.lives);
        lives.retain(|_, live| live.strong_count() > 0);
        if let Some(live) = lives.get(&file).and_then(Weak::upgrade) {
            return Ok(live);
        }
        let live = Live::follow(&file, self.lengths)
            .map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")))?;
        lives.insert(file, Arc::downgrade(&live));
        Ok(live)
    }

    /// A trajectory that is read up to its present end.
    async fn read(&self, kind: &str, name: &str) -> Result<Arc<Live>, Refusal> {
        let live = self.live(kind, name)?;
        let mut changes = live.changes();
        let is_incomplete = |live: Arc<Live>| blocking(move || live.so_far().is_incomplete());
        while is_incomplete(live.clone()).await {
            // The channel's sender is a part of `live`.
            _ = changes.changed().await;
        }
        Ok(live)
    }
}

type Place = UrlPath<(String, String)>;

async fn whole(State(page): State<Arc<Page>>, UrlPath((kind, name)): Place) -> Result<Html<String>, Refusal> {
    let (_, title) = page.file(&kind, &name)?;
    Ok(Html(html::live_page(&title)))
}

#[derive(Serialize)]
struct Listed {
    path: String,
    words: String,
}

async fn runs(State(page): State<Arc<Page>>) -> Result<Json<Vec<Listed>>, Refusal> {
    let of_file = page
        .file
        .iter()
        .map(|file| Listed { path: page.first.clone(), words: text::word(&file.display().to_string()) });
    let recorded = page.runs.as_ref().map(Runs::described).unwrap_or_default();
    let of_runs = recorded.into_iter().map(|(id, words)| Listed {
        path: format!("{}/run/{id}", page.access.base),
        words: text::word(&words),
    });
    Ok(Json(of_file.chain(of_runs).collect()))
}

/// The messages to one page.
struct Messages {
    live: Arc<Live>,
    changes: watch::Receiver<()>,
    /// The reading and the entry up to which the page knows its rows.
    known: Option<(String, u64)>,
    told: Option<String>,
    /// The pause before the next message.
    pause: Duration,
}

impl Drop for Messages {
    fn drop(&mut self) {
        let live = self.live.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            drop(live);
        });
    }
}

#[derive(Serialize)]
struct Changes<'a, T> {
    instance: &'a str,
    rows: T,
}

impl Messages {
    /// The parts that the page does not know; None if it knows all.
    fn news(&mut self) -> Option<Event> {
        let so_far = self.live.so_far();
        if so_far.trouble != self.told {
            let trouble = so_far.trouble.clone();
            drop(so_far);
            self.told.clone_from(&trouble);
            // As JSON: a browser leaves out an event without data.
            return Some(Event::default().event("trouble").data(html::json(&trouble)));
        }
        let stamp = so_far.rollouts.stamp;
        let since = match &self.known {
            Some((instance, known)) if *instance == so_far.instance => Some(*known),
            _ => None,
        };
        // There is no news before everything that was there is read: the page would look for what has yet to come.
        if since == Some(stamp) || so_far.is_incomplete() {
            return None;
        }
        let changes =
            Changes { instance: &so_far.instance, rows: rows(&so_far.rollouts, since.unwrap_or(0)) };
        let event = Event::default().event("rows").data(html::json(&changes));
        let known = (so_far.instance.clone(), stamp);
        drop(so_far);
        self.known = Some(known);
        Some(event)
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        tokio::time::sleep(self.pause).await;
        loop {
            self.changes.mark_unchanged();
            let begun = Instant::now();
            let event;
            (self, event) = blocking(move || {
                let event = self.news();
                (self, event)
            })
            .await;
            if let Some(event) = event {
                // News that comes before the next message goes together.
                self.pause = (begun.elapsed() * PART_OF_TIME).clamp(PAUSE, LONGEST_PAUSE);
                return Some((Ok(event), self));
            }
            self.changes.changed().await.ok()?;
        }
    }
}

async fn events(
    State(page): State<Arc<Page>>,
    UrlPath((kind, name)): Place,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let live = page.live(&kind, &name)?;
    let changes = live.changes();
    let messages = Messages { live, changes, known: None, told: None, pause: Duration::ZERO };
    Ok(Sse::new(unfold(messages, Messages::next)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

#[derive(Deserialize)]
struct At {
    at: usize,
}

async fn body(
    State(page): State<Arc<Page>>,
    UrlPath((kind, name)): Place,
    Query(At { at }): Query<At>,
) -> Result<Html<String>, Refusal> {
    let live = page.read(&kind, &name).await?;
    let found = blocking(move || live.so_far().rollouts.list.get(at).map(html::body)).await;
    found.map(Html).ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("no rollout {at}\n")))
}

#[derive(Deserialize)]
struct Wanted {
    words: String,
}

async fn search(
    State(page): State<Arc<Page>>,
    UrlPath((kind, name)): Place,
    Query(Wanted { words }): Query<Wanted>,
) -> Result<Json<Vec<usize>>, Refusal> {
    let live = page.read(&kind, &name).await?;
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let wanted = CancellationToken::new();
    let _ends_with_the_request = wanted.clone().drop_guard();
    let find = move || {
        let mut hits = Vec::new();
        for at in 0.. {
            // The lock is taken for each rollout, so that others wait for one at most.
            let so_far = live.so_far();
            match so_far.rollouts.list.get(at) {
                Some(rollout) if !wanted.is_cancelled() => {
                    hits.extend(rollout.has_words(&words).then_some(rollout.at));
                }
                _ => break,
            }
        }
        hits
    };
    Ok(Json(blocking(find).await))
}

/// Runs work that may take long, without holding up the requests of others.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let work = move || {
        yield_to_others();
        work()
    };
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

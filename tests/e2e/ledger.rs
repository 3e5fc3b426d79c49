//! A client that knows which of its writes were acknowledged: numbered values, redirections followed.
//! Never waits for a write that failed: it says so and goes on with the next.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use crate::tls_client;
use crate::world::Login;

const SLOTS: u32 = 16_384;

/// Longer than a healthy server takes on a busy machine, shorter than any outage that is measured.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Between two writes of one writer.
const CADENCE: Duration = Duration::from_millis(5);

/// After a write that failed.
const RETRY: Duration = Duration::from_millis(10);

/// Whoever insists gives up after so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Of each writer, so that a hand-over meets many slots.
const KEYS: u64 = 20;

/// A redirection may point at another one while slots move.
const REDIRECTIONS_MAX: usize = 4;

/// Addresses where somebody may answer, shared by all writers.
type Seeds = Arc<Mutex<BTreeSet<String>>>;

/// How members of a TLS cluster are found and checked: they are known by their host names.
pub(crate) struct Secure {
    /// The authorities that are trusted, in PEM.
    pub(crate) authorities: Mutex<String>,
    /// The members' addresses by host name; what members tell of others is added.
    pub(crate) addresses: Mutex<BTreeMap<String, IpAddr>>,
    /// Who writes, where somebody is bound.
    pub(crate) login: Mutex<Option<Login>>,
    /// Members that could not prove their names.
    pub(crate) unproven: AtomicU64,
}

impl Secure {
    pub(crate) fn new(authorities: String, addresses: BTreeMap<String, IpAddr>) -> Self {
        Self {
            authorities: Mutex::new(authorities),
            addresses: Mutex::new(addresses),
            login: Mutex::new(None),
            unproven: AtomicU64::new(0),
        }
    }
}

/// A connection, with or without TLS.
trait Link: Read + Write + Send {}

impl Link for TcpStream {}

impl Link for tls_client::Stream {}

/// Writers, one for each equal part of the slots, until they are stopped.
pub(crate) struct Ledger {
    seeds: Seeds,
    secure: Option<Arc<Secure>>,
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<Account>>,
}

/// What one writer knows at its end.
#[derive(Debug, Default)]
struct Account {
    /// The last acknowledged number of each key.
    acknowledged: BTreeMap<String, u64>,
    /// Numbers that were sent after it and that nobody answered for.
    in_doubt: BTreeMap<String, BTreeSet<u64>>,
    writes: u64,
    failures: u64,
    longest_gap: Duration,
}

/// What all writers together saw.
#[derive(Debug)]
pub(crate) struct Report {
    /// Writes that were acknowledged.
    pub(crate) writes: u64,
    /// Writes that were not.
    pub(crate) failures: u64,
    /// The longest that one part of the slots took no write.
    pub(crate) longest_gap: Duration,
    /// Keys whose acknowledged value is not there, and what is.
    pub(crate) lost: BTreeMap<String, String>,
}

impl Ledger {
    /// Starts `parts` writers; `seeds` are addresses of the cluster.
    pub(crate) fn start(parts: u32, seeds: impl IntoIterator<Item = String>) -> Self {
        Self::start_with(parts, seeds.into_iter().collect(), None)
    }

    /// The same through TLS.
    pub(crate) fn start_secure(parts: u32, secure: Arc<Secure>) -> Self {
        let seeds = lock(&secure.addresses).keys().cloned().collect();
        Self::start_with(parts, seeds, Some(secure))
    }

    fn start_with(parts: u32, seeds: BTreeSet<String>, secure: Option<Arc<Secure>>) -> Self {
        let seeds: Seeds = Arc::new(Mutex::new(seeds));
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..parts).map(|part| {
            let (client, stop) = (Client::new(seeds.clone(), secure.clone()), stop.clone());
            thread::spawn(move || write(part, parts, client, &stop))
        });
        Self {
            writers: writers.collect(),
            seeds,
            secure,
            stop,
        }
    }

    /// Stops writing once each part of the slots takes writes, or has taken none for long, and reads back all
    /// that was acknowledged; `seeds` are addresses of now.
    pub(crate) fn stop(self, seeds: impl IntoIterator<Item = String>) -> Report {
        lock(&self.seeds).extend(seeds);
        self.stop.store(true, Ordering::Relaxed);
        let accounts: Vec<Account> = self
            .writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer ends"))
            .collect();
        let mut client = Client::new(self.seeds, self.secure);
        let lost = accounts
            .iter()
            .flat_map(|account| account.lost(&mut client));
        Report {
            lost: lost.collect(),
            writes: accounts.iter().map(|account| account.writes).sum(),
            failures: accounts.iter().map(|account| account.failures).sum(),
            longest_gap: accounts
                .iter()
                .map(|account| account.longest_gap)
                .max()
                .unwrap_or_default(),
        }
    }
}

impl Account {
    fn lost(&self, client: &mut Client) -> BTreeMap<String, String> {
        let mut lost = BTreeMap::new();
        for (key, number) in &self.acknowledged {
            let found = client.insist(&["GET", key]);
            let known = found.as_ref().and_then(|found| found.parse().ok());
            let doubtful = self.in_doubt.get(key);
            let there = known.is_some_and(|known| {
                known == *number || doubtful.is_some_and(|numbers| numbers.contains(&known))
            });
            if !there {
                let story = format!("is {found:?}, acknowledged was {number}");
                lost.insert(key.clone(), story);
            }
        }
        lost
    }
}

fn write(part: u32, parts: u32, mut client: Client, stop: &AtomicBool) -> Account {
    let keys = keys(part, parts);
    let (mut account, mut last) = (Account::default(), Instant::now());
    let mut waits = false;
    for number in 1.. {
        // An outage that is not over has a length too, and one that is about to be is not cut short.
        if stop.load(Ordering::Relaxed) && (!waits || last.elapsed() > PATIENCE) {
            break;
        }
        let key = &keys[usize::try_from(number % KEYS).expect("a small number")];
        let doubtful = account.in_doubt.entry(key.clone()).or_default();
        doubtful.insert(number);
        waits = client.call(&["SET", key, &number.to_string()]).is_err();
        account.longest_gap = account.longest_gap.max(last.elapsed());
        if waits {
            account.failures += 1;
            thread::sleep(RETRY);
        } else {
            doubtful.clear();
            account.acknowledged.insert(key.clone(), number);
            account.writes += 1;
            last = Instant::now();
            thread::sleep(CADENCE);
        }
    }
    account
}

/// Keys of this part of the slots.
fn keys(part: u32, parts: u32) -> Vec<String> {
    let names = (0..).map(|number: u32| format!("ledger-{number}"));
    let here = names.filter(|name| slot(name) * parts / SLOTS == part);
    here.take(usize::try_from(KEYS).expect("a small number"))
        .collect()
}

/// CRC16 of the XMODEM kind, as Valkey's `keyHashSlot` without hash tags.
pub(crate) fn slot(key: &str) -> u32 {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    u32::from(crc) % SLOTS
}

/// A client of a cluster: it remembers who has which slot and follows redirections.
pub(crate) struct Client {
    seeds: Seeds,
    secure: Option<Arc<Secure>>,
    links: BTreeMap<String, BufReader<Box<dyn Link>>>,
    homes: BTreeMap<u32, String>,
}

impl Client {
    fn new(seeds: Seeds, secure: Option<Arc<Secure>>) -> Self {
        Self {
            seeds,
            secure,
            links: BTreeMap::new(),
            homes: BTreeMap::new(),
        }
    }

    /// A client that begins at these addresses.
    pub(crate) fn at(seeds: impl IntoIterator<Item = String>) -> Self {
        Self::new(Arc::new(Mutex::new(seeds.into_iter().collect())), None)
    }

    /// A command whose second word is its key; nothing where there is none.
    pub(crate) fn call(&mut self, words: &[&str]) -> Result<Option<String>, String> {
        let slot = slot(words[1]);
        for _ in 0..REDIRECTIONS_MAX {
            let home = match self.homes.get(&slot) {
                Some(home) => home.clone(),
                None => self.anybody()?,
            };
            match self.ask(&home, words) {
                Ok(found) => {
                    self.homes.insert(slot, home);
                    return Ok(found);
                }
                Err(told) => {
                    let moved = told
                        .strip_prefix("MOVED ")
                        .and_then(|told| told.split_once(' ')?.1.rsplit_once(':'));
                    let Some((address, _)) = moved else {
                        self.homes.remove(&slot);
                        return Err(told);
                    };
                    let address = address.to_owned();
                    if self.is_unheard_of(&address)
                        && let Ok(Some(table)) = self.ask(&home, &["CLUSTER", "NODES"])
                    {
                        self.learn(&table);
                    }
                    lock(&self.seeds).insert(address.clone());
                    self.homes.insert(slot, address);
                }
            }
        }
        Err("redirected again and again".to_owned())
    }

    /// A write that a replica has too when this returns, tried until it has.
    pub(crate) fn keep(&mut self, key: &str, value: &str) {
        let start = Instant::now();
        while let Err(told) = self.set_waited(key, value) {
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "SET {key}: {told}");
            thread::sleep(RETRY);
        }
    }

    fn set_waited(&mut self, key: &str, value: &str) -> Result<(), String> {
        self.call(&["SET", key, value])?;
        // On the link of the write, which is what it waits for.
        let home = self.homes.get(&slot(key)).cloned().ok_or("no home")?;
        match self.ask(&home, &["WAIT", "1", "1000"])?.as_deref() {
            Some("1") => Ok(()),
            told => Err(format!("{told:?} replicas have it")),
        }
    }

    /// A command like that of `call`, tried until it is answered.
    pub(crate) fn insist(&mut self, words: &[&str]) -> Option<String> {
        let start = Instant::now();
        loop {
            match self.call(words) {
                Ok(found) => return found,
                Err(told) => assert!(start.elapsed() < PATIENCE, "{words:?}: {told}"),
            }
            thread::sleep(RETRY);
        }
    }

    /// Somebody to ask about a slot of which nothing is known; the first time he tells of all.
    fn anybody(&mut self) -> Result<String, String> {
        if let Some(address) = self.links.keys().next() {
            return Ok(address.clone());
        }
        let seeds: Vec<String> = lock(&self.seeds).iter().cloned().collect();
        for seed in seeds {
            if let Ok(Some(table)) = self.ask(&seed, &["CLUSTER", "NODES"]) {
                self.learn(&table);
                return Ok(seed);
            }
        }
        Err("nobody answers".to_owned())
    }

    /// A host name of which no address is known.
    fn is_unheard_of(&self, host: &str) -> bool {
        let secure = self.secure.as_ref();
        secure.is_some_and(|secure| !lock(&secure.addresses).contains_key(host))
    }

    fn learn(&mut self, table: &str) {
        for line in table.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            // `ip:port@bus,host`
            let place = words.get(1).copied().unwrap_or_default();
            let address = match &self.secure {
                None => place.split(':').next(),
                Some(secure) => {
                    let host = place.split(',').nth(1);
                    let ip = place.split(':').next().and_then(|ip| ip.parse().ok());
                    if let (Some(host), Some(ip)) = (host, ip) {
                        lock(&secure.addresses).insert(host.to_owned(), ip);
                    }
                    host
                }
            };
            let Some(address) = address.filter(|address| !address.is_empty()) else {
                continue;
            };
            if words.get(2).is_some_and(|flags| flags.contains("fail")) {
                continue;
            }
            lock(&self.seeds).insert(address.to_owned());
            for range in words.iter().skip(8) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let slots = first.parse().unwrap_or(0)..=last.parse().unwrap_or(0);
                self.homes
                    .extend(slots.map(|slot| (slot, address.to_owned())));
            }
        }
    }

    fn ask(&mut self, address: &str, words: &[&str]) -> Result<Option<String>, String> {
        let asked = self.link(address).and_then(|link| exchange(link, words));
        match asked {
            Ok(Reply::Text(text)) => Ok(Some(text)),
            Ok(Reply::Nothing) => Ok(None),
            Ok(Reply::Refusal(told)) => Err(told),
            Err(error) => {
                // As good clients do: nothing more is asked there before somebody points there again.
                self.links.remove(address);
                self.homes.retain(|_, home| home != address);
                lock(&self.seeds).remove(address);
                Err(format!("{address}: {error}"))
            }
        }
    }

    fn link(&mut self, address: &str) -> std::io::Result<&mut BufReader<Box<dyn Link>>> {
        if !self.links.contains_key(address) {
            let link = BufReader::new(self.connect(address)?);
            self.links.insert(address.to_owned(), link);
        }
        let link = self.links.get_mut(address);
        link.ok_or_else(|| std::io::Error::other("no link"))
    }
}

impl Client {
    fn connect(&self, address: &str) -> std::io::Result<Box<dyn Link>> {
        if let Some(secure) = &self.secure {
            let ip = lock(&secure.addresses).get(address).copied();
            let ip = ip.ok_or_else(|| std::io::Error::other("nobody has that name"))?;
            let place = SocketAddr::new(ip, 6379);
            let authorities = lock(&secure.authorities).clone();
            let stream = tls_client::connect(place, address, &authorities, DEADLINE);
            // So rustls marks what it was told and does not accept.
            let untrue = |error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidData;
            if stream.as_ref().is_err_and(untrue) {
                secure.unproven.fetch_add(1, Ordering::Relaxed);
            }
            let link: Box<dyn Link> = Box::new(stream?);
            return logged_in(link, lock(&secure.login).clone());
        }
        let ip = address.parse().map_err(std::io::Error::other)?;
        let stream = TcpStream::connect_timeout(&SocketAddr::new(ip, 6379), DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// Says who writes, before anything else.
fn logged_in(link: Box<dyn Link>, login: Option<Login>) -> std::io::Result<Box<dyn Link>> {
    let Some(Login { user, password }) = login else {
        return Ok(link);
    };
    let mut link = BufReader::new(link);
    match exchange(&mut link, &["AUTH", &user, &password])? {
        // Nothing was sent that could have been read ahead of its turn.
        Reply::Text(_) => Ok(link.into_inner()),
        Reply::Nothing => Err(std::io::Error::other("no answer to a login")),
        Reply::Refusal(told) => Err(std::io::Error::other(told)),
    }
}

enum Reply {
    Text(String),
    Nothing,
    Refusal(String),
}

fn exchange(link: &mut BufReader<Box<dyn Link>>, words: &[&str]) -> std::io::Result<Reply> {
    let said = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let sent = format!("*{}\r\n{}", words.len(), said.collect::<String>());
    link.get_mut().write_all(sent.as_bytes())?;
    let mut head = String::new();
    if link.read_line(&mut head)? == 0 {
        return Err(std::io::Error::other("closed"));
    }
    let (kind, rest) = head.trim_end().split_at(1);
    match kind {
        "-" => Ok(Reply::Refusal(rest.to_owned())),
        "$" if rest.starts_with('-') => Ok(Reply::Nothing),
        "$" => {
            let length: usize = rest.parse().map_err(std::io::Error::other)?;
            let mut text = vec![0; length + 2];
            link.read_exact(&mut text)?;
            text.truncate(length);
            Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned()))
        }
        _ => Ok(Reply::Text(rest.to_owned())),
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A rust-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and `/floodsub/1.0.0` with StrictSign.
//!
//! With --gossipsub it speaks GossipSub with all who have it, and with --degree N has N peers in a mesh.
//!
//! It listens on 127.0.0.1, prints one line when it is ready, then takes one JSON object a line and answers each with one.
//! The language is told in tests/interop/foreign.py. Commands are carried out one after the other. Logs go to stderr.
//!
//! What to know of rust-libp2p:
//! - The crate libp2p-floodsub cannot talk to the others: it neither signs nor checks, its sequence numbers are 20 random bytes,
//!   an RPC may have 2,048 bytes at most, and it reads one RPC from a stream and then lets it go, while all others keep
//!   one stream for all. So floodsub is spoken here by its gossipsub, which knows the protocol and signs. It offers /meshsub
//!   first; a peer that has nothing but floodsub gets floodsub.
//! - A sequence number must have 8 bytes. js-libp2p's floodsub sends fewer in one message of 256, and that one is lost.
//! - Sequence numbers count up from the clock in nanoseconds. A message carries no `key` where `from` holds it.
//! - Pings are sent by the clock and not on demand: `ping` answers with the next one.
//!
//! What to know of its gossipsub:
//! - It speaks /meshsub/1.3.0, 1.2.0, 1.1.0 and 1.0.0; floodsub only where it is told to.
//! - A message's id is by default the text of its author's peer id and its sequence number in decimal, other than in all
//!   others. Here it is as in Go.
//! - The first heartbeat comes after 5 s. Who subscribes is grafted at once while the mesh has fewer than its least.
//! - What waits for a peer for more than 1 s, or 5 s if it was published here, is dropped. Here it may wait for a minute.
//! - IDONTWANT goes out for messages of more than 1,000 bytes, never for its own.
//! - A frame may have 64 KiB, and 16 KiB of subscriptions and control; longer ones end the stream.
//! - Nothing but its log, at the level of debug, shows each RPC that comes and goes: what is counted is read from there.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, SwarmBuilder, identify, noise, ping, tcp, yamux};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

type Failure = Box<dyn Error + Send + Sync>;

#[derive(NetworkBehaviour)]
struct Behaviour {
    gossipsub: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

/// What the command at hand waits for.
enum Wait {
    Dial(PeerId),
    Ping(PeerId),
    Identify(PeerId),
    Peers(IdentTopic, usize),
}

struct Node {
    swarm: Swarm<Behaviour>,
    wait: Option<Wait>,
    identified: HashMap<PeerId, identify::Info>,
    pinged: HashMap<PeerId, Duration>,
}

/// (peer, "sent" or "received", kind) -> count
static COUNTS: LazyLock<Mutex<HashMap<(String, &str, &str), usize>>> = LazyLock::new(Mutex::default);

const KINDS: [(&str, &str); 5] = [
    ("graft", "Graft {"),
    ("prune", "Prune {"),
    ("ihave", "IHave {"),
    ("iwant", "IWant {"),
    ("idontwant", "IDontWant {"),
];

/// Where the log goes: to stderr, and on its way what it tells of control messages is counted. One call, one line.
struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        for (way, before) in [("sent", "Sending Rpc peer_id="), ("received", "Received gossipsub message peer=")] {
            if let Some((peer, rpc)) = text.split_once(before).and_then(|(_, rest)| rest.split_once(' ')) {
                count(peer, way, rpc);
            }
        }
        io::stderr().write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn count(peer: &str, way: &'static str, rpc: &str) {
    let mut counts = COUNTS.lock().unwrap();
    for (kind, mark) in KINDS {
        for said in rpc.split(mark).skip(1) {
            let ids = said.split("message_ids: [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
            let more = if kind == "graft" || kind == "prune" { 1 } else { ids.matches("MessageId(").count() };
            *counts.entry((peer.to_string(), way, kind)).or_default() += more;
        }
    }
}

fn counted(peer: &str, way: &'static str) -> Value {
    let counts = COUNTS.lock().unwrap();
    let of = |kind| counts.get(&(peer.to_string(), way, kind)).copied().unwrap_or(0);
    KINDS.iter().map(|(kind, _)| (kind.to_string(), Value::from(of(*kind)))).collect()
}

fn say(line: Value) {
    println!("{line}");
}

fn text<'a>(command: &'a Value, field: &str) -> Result<&'a str, Failure> {
    command[field].as_str().ok_or_else(|| format!("no {field}").into())
}

impl Node {
    fn connect(&mut self, command: &Value) -> Result<PeerId, Failure> {
        let addr: Multiaddr = text(command, "addr")?.parse()?;
        let Some(Protocol::P2p(peer)) = addr.iter().last() else {
            return Err("the address names no peer".into());
        };
        if !self.swarm.is_connected(&peer) {
            self.swarm.dial(addr)?;
        }
        Ok(peer)
    }

    /// False when it is time to end.
    fn obey(&mut self, line: &str) -> bool {
        let command: Value = serde_json::from_str(line).unwrap_or_default();
        if command["do"] == "quit" {
            return false;
        }
        if let Err(failure) = self.begin(&command) {
            say(json!({"event": "error", "do": command["do"], "text": failure.to_string()}));
        }
        true
    }

    fn begin(&mut self, command: &Value) -> Result<(), Failure> {
        match command["do"].as_str() {
            Some("dial") => self.wait = Some(Wait::Dial(self.connect(command)?)),
            Some("ping") => {
                let peer = self.connect(command)?;
                self.pinged.remove(&peer);
                self.wait = Some(Wait::Ping(peer));
            }
            Some("identify") => self.wait = Some(Wait::Identify(text(command, "peer")?.parse()?)),
            Some("subscribe") => {
                let topic = IdentTopic::new(text(command, "topic")?);
                self.swarm.behaviour_mut().gossipsub.subscribe(&topic)?;
                say(json!({"event": "subscribed"}));
            }
            Some("unsubscribe") => {
                self.swarm.behaviour_mut().gossipsub.unsubscribe(&IdentTopic::new(text(command, "topic")?));
                say(json!({"event": "unsubscribed"}));
            }
            Some("mesh") => {
                let hash = IdentTopic::new(text(command, "topic")?).hash();
                let peers = self.swarm.behaviour().gossipsub.mesh_peers(&hash);
                say(json!({"event": "mesh", "peers": peers.map(|peer| peer.to_string()).collect::<Vec<_>>()}));
            }
            Some("control") => {
                let peer = text(command, "peer")?;
                say(json!({"event": "control", "sent": counted(peer, "sent"), "received": counted(peer, "received")}));
            }
            Some("peers") => {
                let count = command["count"].as_u64().ok_or("no count")?;
                self.wait = Some(Wait::Peers(IdentTopic::new(text(command, "topic")?), count as usize));
            }
            Some("publish") => {
                let topic = IdentTopic::new(text(command, "topic")?);
                let data = command["data"].as_array().ok_or("no data")?;
                for one in data {
                    let one = one.as_str().ok_or("data is not text")?;
                    self.swarm.behaviour_mut().gossipsub.publish(topic.clone(), one)?;
                }
                say(json!({"event": "published", "count": data.len()}));
            }
            _ => return Err("no such command".into()),
        }
        Ok(())
    }

    /// The answer to the command at hand, when what it waits for has come.
    fn answer(&self) -> Option<Value> {
        match self.wait.as_ref()? {
            Wait::Dial(peer) => self
                .swarm
                .is_connected(peer)
                .then(|| json!({"event": "dialled", "peer": peer.to_string()})),
            Wait::Ping(peer) => self
                .pinged
                .get(peer)
                .map(|time| json!({"event": "pinged", "ms": time.as_secs_f64() * 1000.0})),
            Wait::Identify(peer) => self.identified.get(peer).map(|info| {
                json!({
                    "event": "identified",
                    "peer": peer.to_string(),
                    "agent": info.agent_version,
                    "protocols": info.protocols.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
                    "addrs": info.listen_addrs.iter().map(|addr| addr.to_string()).collect::<Vec<_>>(),
                })
            }),
            Wait::Peers(topic, count) => {
                let hash = topic.hash();
                let peers = self.swarm.behaviour().gossipsub.all_peers();
                let subscribed = peers.filter(|(_, topics)| topics.contains(&&hash)).count();
                (subscribed >= *count).then(|| json!({"event": "peers"}))
            }
        }
    }

    fn note(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::OutgoingConnectionError { error, .. } if matches!(self.wait, Some(Wait::Dial(_) | Wait::Ping(_))) => {
                self.wait = None;
                say(json!({"event": "error", "do": "dial", "text": error.to_string()}));
            }
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                self.identified.insert(peer_id, info);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Ping(ping::Event { peer, result: Ok(time), .. })) => {
                self.pinged.insert(peer, time);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(gossipsub::Event::Message { message, .. })) => {
                say(json!({
                    "event": "message",
                    "topic": message.topic.into_string(),
                    "from": message.source.map(|peer| peer.to_string()),
                    "data": String::from_utf8_lossy(&message.data),
                }));
            }
            _ => {}
        }
    }
}

/// The id that a message has in Go.
fn id(message: &gossipsub::Message) -> MessageId {
    let author = message.source.map(|peer| peer.to_bytes()).unwrap_or_default();
    MessageId::from([author, message.sequence_number.unwrap_or(0).to_be_bytes().to_vec()].concat())
}

fn build(degree: Option<usize>) -> Result<Swarm<Behaviour>, Failure> {
    Ok(SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key| {
            let mut config = gossipsub::ConfigBuilder::default();
            config
                .support_floodsub()
                .validation_mode(ValidationMode::Strict)
                .message_id_fn(id)
                .publish_queue_duration(Duration::from_secs(60))
                .forward_queue_duration(Duration::from_secs(60));
            if let Some(n) = degree {
                config.mesh_n(n).mesh_n_low(n).mesh_n_high(n).mesh_outbound_min(0).retain_scores(n).flood_publish(false);
            }
            Ok(Behaviour {
                gossipsub: gossipsub::Behaviour::new(MessageAuthenticity::Signed(key.clone()), config.build()?)?,
                identify: identify::Behaviour::new(identify::Config::new("ipfs/0.1.0".into(), key.public())),
                ping: ping::Behaviour::new(ping::Config::new().with_interval(Duration::from_millis(500))),
            })
        })?
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(3600)))
        .build())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let degree = arguments.iter().position(|one| one == "--degree").and_then(|at| arguments.get(at + 1));
    let filter = tracing_subscriber::EnvFilter::from_default_env().add_directive("libp2p_gossipsub=debug".parse()?);
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Log).init();
    let mut swarm = build(degree.map(|text| text.parse()).transpose()?)?;
    swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    let addr = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            break address;
        }
    };
    let peer = *swarm.local_peer_id();
    say(json!({"event": "ready", "peer": peer.to_string(), "addrs": [format!("{addr}/p2p/{peer}")]}));
    let mut node = Node { swarm, wait: None, identified: HashMap::new(), pinged: HashMap::new() };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        if let Some(answer) = node.answer() {
            node.wait = None;
            say(answer);
        }
        tokio::select! {
            event = node.swarm.select_next_some() => node.note(event),
            line = lines.next_line(), if node.wait.is_none() => match line? {
                Some(line) if node.obey(&line) => {}
                _ => std::process::exit(0),  // the thread that reads stdin would keep the runtime alive
            },
        }
    }
}

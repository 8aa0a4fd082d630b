//! A rust-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and `/floodsub/1.0.0` with StrictSign.
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

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, ValidationMode};
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

fn build() -> Result<Swarm<Behaviour>, Failure> {
    Ok(SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key| {
            let config = gossipsub::ConfigBuilder::default()
                .support_floodsub()
                .validation_mode(ValidationMode::Strict)
                .build()?;
            Ok(Behaviour {
                gossipsub: gossipsub::Behaviour::new(MessageAuthenticity::Signed(key.clone()), config)?,
                identify: identify::Behaviour::new(identify::Config::new("ipfs/0.1.0".into(), key.public())),
                ping: ping::Behaviour::new(ping::Config::new().with_interval(Duration::from_millis(500))),
            })
        })?
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(3600)))
        .build())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut swarm = build()?;
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

// A js-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and floodsub with StrictSign.
// With --gossipsub it speaks GossipSub in place of floodsub, and with --degree N has N peers in a mesh, and none else to publish to.
// With --dht PREFIX it is a server of a Kademlia DHT as well.
//
// It listens on 127.0.0.1, prints one line when it is ready, then takes one JSON object a line and answers each with one.
// The language is told in tests/interop/foreign.py. Commands are carried out one after the other. Logs go to stderr (DEBUG=...).
//
// What to know of js-libp2p's floodsub:
// - Sequence numbers are random 64-bit numbers, so they do not rise from one message to the next.
// - They go out without leading zero bytes: one message in 256 carries fewer than 8. An arriving one is made into a number and
//   back before its signature is checked, so a message whose 8-byte number begins with a zero byte (a counter from 0 or 1
//   rather than a clock in nanoseconds) is dropped as forged. Only the log tells.
// - Every message carries `key`, also where `from` holds the key. An arriving one need not; but a `key` that is there and empty
//   cannot be parsed, and the message is dropped.
// - It publishes to all whose subscription it has heard, but drops without a word what is for a peer to which its own stream is
//   not yet open: `peers` waits for both.
// - It takes one inbound floodsub stream of a connection and resets a second one.
// - Up to 10 arriving messages are checked at a time: they may reach the application in another order.
//
// What to know of js-libp2p's gossipsub:
// - It speaks /meshsub/1.2.0, 1.1.0, 1.0.0 and /floodsub/1.0.0.
// - A message's id is by default its author's key and sequence number, other than in Go and Python, so what one announces
//   the other never wants. Here it is as in Go: the author's peer id and the sequence number.
// - Unlike its floodsub, it counts sequence numbers up from the clock and sends 8 bytes, and takes no message with fewer.
// - Who subscribes is grafted at once while the mesh has fewer than Dlo; a stream of its own must be open, else a heartbeat later.
// - A D of 0 means all: with an empty mesh, what it publishes goes to all who are in the topic. What it forwards goes to the mesh.
// - It publishes to all in the topic (flood publishing), and where there are none, throws. Here it does not throw.
// - IDONTWANT goes out for messages of 512 bytes and more, before they are validated but after their signature was; never
//   for its own. What it publishes itself goes even to those who have said IDONTWANT.
// - Of one peer in a heartbeat it reads 10 IHAVE and 10 IWANT, and 512 ids of IDONTWANT.
//
// What to know of js-libp2p's kad-dht:
// - Its answer to FIND_NODE carries no key.
// - A key with providers must be a multihash of SHA-256, for it is read as a CID: of any other the stream is reset.
// - What comes with PUT_VALUE is stored without a look at what is there: the selector chooses among what a get has found.
// - A new contact that does not answer one ping stays out of the table until a query names it again; and the ping fails when
//   both have dialled at once and the other closes one of the two connections, as weft does.
// - Queries wait for a first contact in the table and for the first lookup of its own id, which begins a second after the start.

import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { floodsub } from '@libp2p/floodsub'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht'
import { peerIdFromString } from '@libp2p/peer-id'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { CID } from 'multiformats/cid'
import * as raw from 'multiformats/codecs/raw'
import { sha256 } from 'multiformats/hashes/sha2'

const encoder = new TextEncoder()
const decoder = new TextDecoder()
const { values: options } = parseArgs({
  options: { dht: { type: 'string' }, gossipsub: { type: 'boolean' }, degree: { type: 'string' } }
})
const identified = new Map() // peer in base58 -> what identify told

function router () {
  if (!options.gossipsub) return floodsub({ globalSignaturePolicy: 'StrictSign' })
  const degree = Number(options.degree)
  return gossipsub({
    globalSignaturePolicy: 'StrictSign',
    msgIdFn: goId,
    allowPublishToZeroTopicPeers: true,
    ...(options.degree == null ? {} : { D: degree, Dlo: degree, Dhi: degree, Dscore: degree, Dout: 0, floodPublish: false })
  })
}

function goId ({ from, sequenceNumber }) {
  const number = Buffer.alloc(8)
  number.writeBigUInt64BE(sequenceNumber)
  return Buffer.concat([from.toMultihash().bytes, number])
}

const node = await createLibp2p({
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  // The monitor pings each connection, and closes those that are slow to answer, as all are on a busy machine.
  connectionMonitor: { enabled: false },
  services: {
    identify: identify(),
    ping: ping(),
    pubsub: router(),
    ...(options.dht == null
      ? {}
      : {
          dht: kadDHT({
            protocol: `${options.dht}/kad/1.0.0`,
            clientMode: false,
            peerInfoMapper: passthroughMapper, // by default private addresses are left out
            validators: { weft: () => {} },
            selectors: { weft: (key, values) => values.indexOf(values.toSorted(Buffer.compare).at(-1)) }
          })
        })
  }
})
const { dht, pubsub } = node.services

function say (event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
}

async function pause () {
  await new Promise(resolve => setTimeout(resolve, 20))
}

async function until (happened) {
  for (let result = happened(); ; result = happened()) {
    if (result) return result
    await pause()
  }
}

function reachable (topic) {
  return pubsub.getSubscribers(topic).filter(peer =>
    options.gossipsub ? pubsub.streamsOutbound.has(peer.toString()) : pubsub.peers.get(peer)?.outboundPb != null)
}

async function cid (text) {
  return CID.createV1(raw.code, await sha256.digest(encoder.encode(text)))
}

function texts (addrs) {
  return addrs.map(addr => addr.toString())
}

async function first (events, name) {
  for await (const event of events) {
    if (event.name === name) return event
  }
  throw new Error(`the query ended without ${name}`)
}

const commands = {
  async dial ({ addr }) {
    const connection = await node.dial(multiaddr(addr))
    say('dialled', { peer: connection.remotePeer.toString() })
  },
  async ping ({ addr }) {
    const start = performance.now()
    await node.services.ping.ping(multiaddr(addr))
    say('pinged', { ms: performance.now() - start })
  },
  async identify ({ peer }) {
    const name = peerIdFromString(peer).toString()
    const known = await until(() => identified.get(name))
    say('identified', {
      peer: name,
      agent: known.agentVersion,
      protocols: known.protocols,
      addrs: known.listenAddrs.map(addr => addr.toString())
    })
  },
  async subscribe ({ topic }) {
    pubsub.subscribe(topic)
    say('subscribed')
  },
  async unsubscribe ({ topic }) {
    pubsub.unsubscribe(topic)
    say('unsubscribed')
  },
  async peers ({ topic, count }) {
    await until(() => reachable(topic).length >= count)
    say('peers')
  },
  async publish ({ topic, data }) {
    for (const text of data) await pubsub.publish(topic, encoder.encode(text))
    say('published', { count: data.length })
  }
}

const KINDS = ['graft', 'prune', 'ihave', 'iwant', 'idontwant']
const counts = { sent: new Map(), received: new Map() } // peer in base58 -> kind -> count

function count (counted, peer, { control }) {
  if (control == null) return
  const kinds = counted.get(peer) ?? Object.fromEntries(KINDS.map(kind => [kind, 0]))
  counted.set(peer, kinds)
  for (const kind of KINDS) {
    for (const one of control[kind] ?? []) kinds[kind] += one.messageIDs?.length ?? 1
  }
}

// All that it says goes through these two, and all that it hears through the third.
function countControl () {
  const { sendRpc, sendRpcInBatch, handleReceivedRpc } = pubsub
  pubsub.sendRpc = (peer, rpc) => {
    const sent = sendRpc.call(pubsub, peer, rpc) // which adds to it what was waiting
    if (sent) count(counts.sent, peer, rpc)
    return sent
  }
  pubsub.sendRpcInBatch = (peers, rpc) => {
    sendRpcInBatch.call(pubsub, peers, rpc) // which takes out whom it cannot reach
    for (const peer of peers) count(counts.sent, peer, rpc)
  }
  pubsub.handleReceivedRpc = async (from, rpc) => {
    count(counts.received, from.toString(), rpc)
    await handleReceivedRpc.call(pubsub, from, rpc)
  }
}

const gossipsubCommands = {
  async control ({ peer }) {
    const name = peerIdFromString(peer).toString()
    say('control', { sent: counts.sent.get(name) ?? {}, received: counts.received.get(name) ?? {} })
  },
  async mesh ({ topic }) {
    say('mesh', { peers: pubsub.getMeshPeers(topic) })
  }
}
if (options.gossipsub) {
  Object.assign(commands, gossipsubCommands)
  countControl()
}

const dhtCommands = {
  async dht_peers ({ count }) {
    while (dht.routingTable.size < count) {
      for await (const _ of dht.getClosestPeers(node.peerId.toMultihash().bytes)) {} // who answers gets into the table
      await pause()
    }
    say('dht_peers')
  },
  async dht_find_peer ({ peer }) {
    for (;;) {
      try {
        const { peer: found } = await first(dht.findPeer(peerIdFromString(peer), { useCache: false }), 'FINAL_PEER')
        return say('dht_peer', { peer: found.id.toString(), addrs: texts(found.multiaddrs) })
      } catch (error) {
        console.error(error)
        await pause()
      }
    }
  },
  async dht_put ({ key, value }) {
    for await (const event of dht.put(encoder.encode(key), encoder.encode(value))) {
      if (event.name === 'QUERY_ERROR') throw event.error
    }
    say('dht_put')
  },
  async dht_get ({ key }) {
    const { value } = await first(dht.get(encoder.encode(key)), 'VALUE')
    say('dht_value', { value: decoder.decode(value) })
  },
  async dht_provide ({ key }) {
    for await (const event of dht.provide(await cid(key))) {
      if (event.name === 'QUERY_ERROR') throw event.error
    }
    say('dht_provided')
  },
  async dht_find_providers ({ key }) {
    const found = []
    for await (const event of dht.findProviders(await cid(key))) {
      if (event.name === 'PROVIDER') found.push(...event.providers)
    }
    say('dht_providers', { peers: found.map(({ id }) => id.toString()), addrs: found.map(({ multiaddrs }) => texts(multiaddrs)) })
  }
}
if (dht != null) Object.assign(commands, dhtCommands)

node.addEventListener('peer:identify', ({ detail }) => identified.set(detail.peerId.toString(), detail))
pubsub.addEventListener('message', ({ detail }) => {
  say('message', { topic: detail.topic, from: detail.from.toString(), data: decoder.decode(detail.data) })
})
say('ready', { peer: node.peerId.toString(), addrs: node.getMultiaddrs().map(addr => addr.toString()) })

for await (const line of createInterface({ input: process.stdin })) {
  let command = {}
  try {
    command = JSON.parse(line)
    if (command.do === 'quit') break
    if (!Object.hasOwn(commands, command.do)) throw new Error('no such command')
    await commands[command.do](command)
  } catch (error) {
    console.error(error)
    say('error', { do: command.do, text: String(error) })
  }
}
await node.stop()
process.exit(0)

// A js-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and floodsub with StrictSign.
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

import { createInterface } from 'node:readline'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { floodsub } from '@libp2p/floodsub'
import { identify } from '@libp2p/identify'
import { peerIdFromString } from '@libp2p/peer-id'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const encoder = new TextEncoder()
const decoder = new TextDecoder()
const identified = new Map() // peer in base58 -> what identify told

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
    pubsub: floodsub({ globalSignaturePolicy: 'StrictSign' })
  }
})
const pubsub = node.services.pubsub

function say (event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
}

async function until (happened) {
  for (let result = happened(); ; result = happened()) {
    if (result) return result
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

function reachable (topic) {
  return pubsub.getSubscribers(topic).filter(peer => pubsub.peers.get(peer)?.outboundPb != null)
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
  async peers ({ topic, count }) {
    await until(() => reachable(topic).length >= count)
    say('peers')
  },
  async publish ({ topic, data }) {
    for (const text of data) await pubsub.publish(topic, encoder.encode(text))
    say('published', { count: data.length })
  }
}

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

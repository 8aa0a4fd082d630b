// js-libp2p's GossipSub in `weft bench live`: all nodes in this process; run by a Node that finds its packages, and none of weft.
//
//     node --input-type=module --eval "$(cat js_libp2p_live.mjs)" PLAN
//
// where node_modules is. The plan is that of bench/perf/live_side.py, and so are the parts, the counting and the answer.
//
// Noise, Yamux, Ed25519, StrictSign, and GossipSub as it comes: /meshsub/1.2.0, the usual degrees (6, 4, 12), flood publishing,
// a heartbeat a second. Links are those of the plan's graph. Its queues have no bounds that a burst would reach. But the
// connection monitor, which closes connections that are slow to answer its pings, is off: with it, of two runs with 20 nodes on
// a busy machine one lost nothing, and in the other publish() threw, since a node had no subscriber left. And all nodes have one
// address, from which only five connections a second are taken unless it is told otherwise.
// A copy's signature is checked before it is known that the message was here already; a third of its time goes there.

import { readFileSync } from 'node:fs'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

const TOPIC = 'bench'
const NUMBER = 4
const PATIENCE_MS = 10_000
const POLL_MS = 100
const LIMIT_MS = 280_000

class Tally {
  constructor (nodes, first, count) {
    Object.assign(this, { nodes, first, count, due: count * (nodes - 1), deliveries: 0, doubled: 0, ms: [], full: () => {} })
    this.got = new Uint8Array(nodes * count)
    this.sentAt = new Float64Array(count)
  }

  took (node, data) {
    const number = Buffer.from(data.buffer, data.byteOffset, NUMBER).readUInt32BE()
    const place = number - this.first
    if (number % this.nodes === node || place < 0 || place >= this.count) return
    const at = place * this.nodes + node
    if (this.got[at]) {
      this.doubled++
      return
    }
    this.got[at] = 1
    this.ms.push(performance.now() - this.sentAt[place])
    if (++this.deliveries === this.due) this.full()
  }
}

class Clock {
  constructor (tally) {
    this.tally = tally
    this.allSent = false
    this.done = new Promise(resolve => {
      tally.full = () => {
        this.note()
        this.full = true
        resolve()
      }
    })
    this.began = [performance.now(), cpuSeconds()]
  }

  async watch () {
    for (let seen = -1, quiet = 0; quiet < PATIENCE_MS && !this.full; quiet += POLL_MS) {
      if (this.tally.deliveries !== seen || !this.allSent) {
        seen = this.tally.deliveries
        quiet = 0
        this.note()
      }
      await Promise.race([this.done, pause(POLL_MS)])
    }
  }

  note () {
    const [wall, cpu] = this.began
    this.wall_s = (performance.now() - wall) / 1000
    this.cpu_s = cpuSeconds() - cpu
  }
}

class Run {
  constructor (plan, nodes) {
    Object.assign(this, { plan, nodes, next: 0, tally: new Tally(nodes.length, 0, 0) })
  }

  async part (count, everyMs) {
    const tally = this.tally = new Tally(this.nodes.length, this.next, count)
    this.next += count
    const clock = new Clock(tally)
    const watching = clock.watch()
    await this.send(tally, everyMs)
    clock.allSent = true
    await watching
    const { due, deliveries, doubled, ms } = tally
    return { due, deliveries, doubled, cpu_s: clock.cpu_s, wall_s: clock.wall_s, ms, samples: {} }
  }

  async send (tally, everyMs) {
    const began = performance.now()
    for (let place = 0; place < tally.count; place++) {
      if (everyMs) await pause(began + place * everyMs - performance.now())
      const number = tally.first + place
      const data = new Uint8Array(this.plan.size)
      new DataView(data.buffer).setUint32(0, number)
      tally.sentAt[place] = performance.now()
      await this.nodes[number % tally.nodes].services.pubsub.publish(TOPIC, data)
    }
  }
}

async function openNode () {
  return await createLibp2p({
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionMonitor: { enabled: false },
    connectionManager: { inboundConnectionThreshold: Infinity },
    services: { identify: identify(), pubsub: gossipsub({ globalSignaturePolicy: 'StrictSign' }) }
  })
}

function degree (number, edges) {
  return edges.filter(edge => edge.includes(number)).length
}

// Until each knows that all its neighbours subscribe, and has a mesh of as many as it wants at least.
async function meshed (nodes, edges) {
  for (const [number, { services: { pubsub } }] of nodes.entries()) {
    const due = degree(number, edges)
    while (pubsub.getSubscribers(TOPIC).length < due || pubsub.getMeshPeers(TOPIC).length < Math.min(due, pubsub.opts.Dlo)) {
      await pause(POLL_MS)
    }
  }
}

function cpuSeconds () {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

function rssKb () {
  return Number(readFileSync('/proc/self/status', 'utf8').match(/^VmRSS:\s+(\d+)/m)[1])
}

async function pause (ms) {
  await new Promise(resolve => setTimeout(resolve, Math.max(0, ms)))
}

async function main (plan) {
  const base = rssKb()
  const began = performance.now()
  const nodes = []
  for (let number = 0; number < plan.nodes; number++) nodes.push(await openNode())
  const run = new Run(plan, nodes)
  for (const [number, { services: { pubsub } }] of nodes.entries()) {
    pubsub.addEventListener('message', ({ detail }) => run.tally.took(number, detail.data))
    pubsub.subscribe(TOPIC)
  }
  for (const [one, other] of plan.edges) await nodes[other].dial(nodes[one].getMultiaddrs())
  await meshed(nodes, plan.edges)
  const said = { up_s: (performance.now() - began) / 1000 }
  for (let count = 0; count < plan.warmup; count++) await run.part(1, 0)
  Object.assign(said, { base_kb: base, rss_kb: rssKb() })
  said.paced = await run.part(plan.paced, 1000 / plan.rate)
  said.burst = await run.part(plan.burst, 0)
  process.stdout.write(JSON.stringify(said) + '\n', () => process.exit(0))
}

function fail (text) {
  console.error(text)
  process.exit(1)
}

setTimeout(() => fail(`not done in ${LIMIT_MS / 1000} s`), LIMIT_MS)
main(JSON.parse(process.argv.at(-1))).catch(error => fail(String(error)))

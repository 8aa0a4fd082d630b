// A go-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and floodsub with StrictSign.
// With --gossipsub it speaks GossipSub in place of floodsub, and with --degree N has N peers in a mesh.
// With --trace PREFIX it writes the library's own traces to PREFIX.json and PREFIX.pb.
// With --dht PREFIX it is a server of a Kademlia DHT as well.
//
// It listens on 127.0.0.1, prints one line when it is ready, then takes one JSON object a line and answers each with one.
// The language is told in tests/interop/foreign.py. Commands are carried out one after the other. Logs go to stderr.
//
// What to know of go-libp2p-pubsub:
//   - It opens its stream to a peer only after identify has named /floodsub/1.0.0, and takes any byte or end on that stream for
//     the end of the peer.
//   - 32 messages may wait for a peer, for a subscriber, and for validation; what is over that is dropped, and Publish says
//     nothing. Here the bounds are raised.
//   - Sequence numbers count up from the clock in nanoseconds. A message carries no `key` where `from` holds it.
//   - A publisher hears its own messages. Here they are left out.
//   - Its GossipSub speaks /meshsub/1.3.0, 1.2.0, 1.1.0, 1.0.0 and /floodsub/1.0.0. Meshes are mended in the heartbeat alone,
//     so one who subscribes is grafted up to a second later; joining a topic grafts at once who is known to be in it.
//   - What it publishes goes to the mesh alone. With an empty one nobody gets it, but by gossip.
//   - IDONTWANT goes out for messages of 1,024 bytes and more, its own too; of one that arrives it reads 10 ids.
//   - A degree of 0 is for those who only introduce others: it grafts all who are known when it joins, refuses every GRAFT but of
//     a peer that it has dialled, and prunes all in the heartbeat.
//   - Scores are off unless they are asked for.
//   - A tracer sees each RPC as it is handed to the queue of the peer, and as it arrives.
//
// What to know of go-libp2p-kad-dht:
//   - Its answer to FIND_NODE carries no key.
//   - The key of PUT_VALUE must be that of its record, and its value no worse than what is there: otherwise the stream is reset.
//   - A peer gets into the table after it has answered a FIND_NODE for its own id.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const (
	poll  = 20 * time.Millisecond
	queue = 1 << 16
)

type fields map[string]any

type command struct {
	Do    string
	Addr  string
	Peer  string
	Topic string
	Count int
	Data  []string
	Key   string
	Value string
}

type node struct {
	ctx    context.Context
	host   host.Host
	pubsub *pubsub.PubSub
	dht    *dht.IpfsDHT // nil without --dht
	topics map[string]*pubsub.Topic
	heard  map[string]*pubsub.Subscription
	tracer *tracer // nil without --gossipsub

	mutex      sync.Mutex
	identified map[peer.ID]event.EvtPeerIdentificationCompleted
	stdout     *json.Encoder
}

func (n *node) say(name string, what fields) {
	line := fields{"event": name}
	for key, value := range what {
		line[key] = value
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if err := n.stdout.Encode(line); err != nil {
		panic(err)
	}
}

func (n *node) connect(addr string) (peer.ID, error) {
	info, err := peer.AddrInfoFromString(addr)
	if err != nil {
		return "", err
	}
	return info.ID, n.host.Connect(n.ctx, *info)
}

func (n *node) dial(c command) error {
	id, err := n.connect(c.Addr)
	if err == nil {
		n.say("dialled", fields{"peer": id.String()})
	}
	return err
}

func (n *node) ping(c command) error {
	id, err := n.connect(c.Addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	result := <-ping.Ping(ctx, n.host, id)
	if result.Error == nil {
		n.say("pinged", fields{"ms": float64(result.RTT) / float64(time.Millisecond)})
	}
	return result.Error
}

func (n *node) identify(c command) error {
	id, err := peer.Decode(c.Peer)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(poll) {
		n.mutex.Lock()
		known, found := n.identified[id]
		n.mutex.Unlock()
		if !found {
			continue
		}
		addrs := []string{}
		for _, addr := range known.ListenAddrs {
			addrs = append(addrs, addr.String())
		}
		n.say("identified", fields{"peer": id.String(), "agent": known.AgentVersion, "protocols": known.Protocols, "addrs": addrs})
		return nil
	}
}

func (n *node) keepIdentified(events <-chan any) {
	for e := range events {
		known := e.(event.EvtPeerIdentificationCompleted)
		n.mutex.Lock()
		n.identified[known.Peer] = known
		n.mutex.Unlock()
	}
}

func (n *node) join(name string) (*pubsub.Topic, error) {
	if topic, found := n.topics[name]; found {
		return topic, nil
	}
	topic, err := n.pubsub.Join(name)
	if err == nil {
		n.topics[name] = topic
	}
	return topic, err
}

func (n *node) subscribe(c command) error {
	topic, err := n.join(c.Topic)
	if err != nil {
		return err
	}
	if n.heard[c.Topic] == nil {
		subscription, err := topic.Subscribe(pubsub.WithBufferSize(queue))
		if err != nil {
			return err
		}
		n.heard[c.Topic] = subscription
		go n.read(subscription)
	}
	n.say("subscribed", nil)
	return nil
}

func (n *node) unsubscribe(c command) error {
	if subscription := n.heard[c.Topic]; subscription != nil {
		subscription.Cancel()
		delete(n.heard, c.Topic)
	}
	n.say("unsubscribed", nil)
	return nil
}

func (n *node) read(subscription *pubsub.Subscription) {
	for {
		message, err := subscription.Next(n.ctx)
		if err != nil {
			return
		}
		if message.GetFrom() != n.host.ID() {
			n.say("message", fields{"topic": message.GetTopic(), "from": message.GetFrom().String(), "data": string(message.Data)})
		}
	}
}

func (n *node) peers(c command) error {
	for len(n.pubsub.ListPeers(c.Topic)) < c.Count {
		time.Sleep(poll)
	}
	n.say("peers", nil)
	return nil
}

func (n *node) publish(c command) error {
	topic, err := n.join(c.Topic)
	if err != nil {
		return err
	}
	for _, text := range c.Data {
		if err := topic.Publish(n.ctx, []byte(text)); err != nil {
			return err
		}
	}
	n.say("published", fields{"count": len(c.Data)})
	return nil
}

// tracer counts what of control goes to a peer and comes from it, and keeps the meshes.
type tracer struct {
	mutex    sync.Mutex
	sent     map[peer.ID]counts
	received map[peer.ID]counts
	meshes   map[string]map[peer.ID]bool
}

type counts map[string]int

func newTracer() *tracer {
	return &tracer{sent: map[peer.ID]counts{}, received: map[peer.ID]counts{}, meshes: map[string]map[peer.ID]bool{}}
}

func (t *tracer) count(all map[peer.ID]counts, id peer.ID, said *pb.ControlMessage) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if all[id] == nil {
		all[id] = counts{}
	}
	all[id]["graft"] += len(said.GetGraft())
	all[id]["prune"] += len(said.GetPrune())
	for _, one := range said.GetIhave() {
		all[id]["ihave"] += len(one.GetMessageIDs())
	}
	for _, one := range said.GetIwant() {
		all[id]["iwant"] += len(one.GetMessageIDs())
	}
	for _, one := range said.GetIdontwant() {
		all[id]["idontwant"] += len(one.GetMessageIDs())
	}
}

func (t *tracer) SendRPC(rpc *pubsub.RPC, id peer.ID) { t.count(t.sent, id, rpc.GetControl()) }
func (t *tracer) RecvRPC(rpc *pubsub.RPC)             { t.count(t.received, rpc.From(), rpc.GetControl()) }

func (t *tracer) Graft(id peer.ID, topic string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.meshes[topic] == nil {
		t.meshes[topic] = map[peer.ID]bool{}
	}
	t.meshes[topic][id] = true
}

func (t *tracer) Prune(id peer.ID, topic string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.meshes[topic], id)
}

func (t *tracer) Leave(topic string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.meshes, topic)
}

func (t *tracer) OnClosedOutboundStream(id peer.ID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, mesh := range t.meshes {
		delete(mesh, id)
	}
}

func (t *tracer) OnNewOutboundStream(peer.ID, protocol.ID) {}
func (t *tracer) Join(string)                              {}
func (t *tracer) ValidateMessage(*pubsub.Message)          {}
func (t *tracer) DeliverMessage(*pubsub.Message)           {}
func (t *tracer) RejectMessage(*pubsub.Message, string)    {}
func (t *tracer) DuplicateMessage(*pubsub.Message)         {}
func (t *tracer) ThrottlePeer(peer.ID)                     {}
func (t *tracer) DropRPC(*pubsub.RPC, peer.ID)             {}
func (t *tracer) UndeliverableMessage(*pubsub.Message)     {}

func (n *node) control(c command) error {
	id, err := peer.Decode(c.Peer)
	if err != nil {
		return err
	}
	n.tracer.mutex.Lock()
	defer n.tracer.mutex.Unlock()
	n.say("control", fields{"sent": n.tracer.sent[id], "received": n.tracer.received[id]})
	return nil
}

func (n *node) mesh(c command) error {
	n.tracer.mutex.Lock()
	defer n.tracer.mutex.Unlock()
	peers := []string{}
	for id := range n.tracer.meshes[c.Topic] {
		peers = append(peers, id.String())
	}
	n.say("mesh", fields{"peers": peers})
	return nil
}

// last takes every value; of several the last in the order of bytes is the best.
type last struct{}

func (last) Validate(key string, value []byte) error { return nil }

func (last) Select(key string, values [][]byte) (int, error) {
	best := 0
	for at, value := range values {
		if bytes.Compare(value, values[best]) > 0 {
			best = at
		}
	}
	return best, nil
}

func newDHT(h host.Host, prefix string) (*dht.IpfsDHT, error) {
	return dht.New(h,
		dht.Mode(dht.ModeServer),
		dht.ProtocolPrefix(protocol.ID(prefix)),
		dht.NamespacedValidator("weft", last{}),
	)
}

func cidOf(text string) (cid.Cid, error) {
	return cid.V1Builder{Codec: cid.Raw, MhType: 0x12}.Sum([]byte(text)) // 0x12 is SHA-256
}

func texts(info peer.AddrInfo) []string {
	addrs := []string{}
	for _, addr := range info.Addrs {
		addrs = append(addrs, addr.String())
	}
	return addrs
}

func (n *node) dhtPeers(c command) error {
	for ; n.dht.RoutingTable().Size() < c.Count; time.Sleep(poll) {
		_, _ = n.dht.GetClosestPeers(n.ctx, string(n.host.ID())) // who answers gets into the table
	}
	n.say("dht_peers", nil)
	return nil
}

func (n *node) dhtFindPeer(c command) error {
	id, err := peer.Decode(c.Peer)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(poll) {
		found, err := n.dht.FindPeer(n.ctx, id)
		if err == nil {
			n.say("dht_peer", fields{"peer": found.ID.String(), "addrs": texts(found)})
			return nil
		}
		fmt.Fprintln(os.Stderr, err)
	}
}

func (n *node) dhtPut(c command) error {
	err := n.dht.PutValue(n.ctx, c.Key, []byte(c.Value))
	if err == nil {
		n.say("dht_put", nil)
	}
	return err
}

func (n *node) dhtGet(c command) error {
	value, err := n.dht.GetValue(n.ctx, c.Key)
	if err == nil {
		n.say("dht_value", fields{"value": string(value)})
	}
	return err
}

func (n *node) dhtProvide(c command) error {
	key, err := cidOf(c.Key)
	if err != nil {
		return err
	}
	if err = n.dht.Provide(n.ctx, key, true); err == nil {
		n.say("dht_provided", nil)
	}
	return err
}

func (n *node) dhtFindProviders(c command) error {
	key, err := cidOf(c.Key)
	if err != nil {
		return err
	}
	found, err := n.dht.FindProviders(n.ctx, key)
	if err != nil {
		return err
	}
	peers, addrs := []string{}, [][]string{}
	for _, info := range found {
		peers, addrs = append(peers, info.ID.String()), append(addrs, texts(info))
	}
	n.say("dht_providers", fields{"peers": peers, "addrs": addrs})
	return nil
}

func (n *node) run() error {
	commands := map[string]func(command) error{
		"dial": n.dial, "ping": n.ping, "identify": n.identify,
		"subscribe": n.subscribe, "unsubscribe": n.unsubscribe, "peers": n.peers, "publish": n.publish,
	}
	if n.tracer != nil {
		commands["control"], commands["mesh"] = n.control, n.mesh
	}
	if n.dht != nil {
		for name, do := range map[string]func(command) error{
			"dht_peers": n.dhtPeers, "dht_find_peer": n.dhtFindPeer, "dht_put": n.dhtPut, "dht_get": n.dhtGet,
			"dht_provide": n.dhtProvide, "dht_find_providers": n.dhtFindProviders,
		} {
			commands[name] = do
		}
	}
	for stdin := bufio.NewReader(os.Stdin); ; {
		line, err := stdin.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var c command
		if err = json.Unmarshal(line, &c); err == nil {
			if c.Do == "quit" {
				return nil
			}
			if do, found := commands[c.Do]; found {
				err = do(c)
			} else {
				err = errors.New("no such command")
			}
		}
		if err != nil {
			n.say("error", fields{"do": c.Do, "text": err.Error()})
		}
	}
}

// files hands each event to both tracers of the library that write files.
type files struct {
	json *pubsub.JSONTracer
	pb   *pubsub.PBTracer
}

func newFiles(prefix string) (*files, error) {
	json, err := pubsub.NewJSONTracer(prefix + ".json")
	if err != nil {
		return nil, err
	}
	pb, err := pubsub.NewPBTracer(prefix + ".pb")
	return &files{json, pb}, err
}

func (f *files) Trace(e *pb.TraceEvent) {
	f.json.Trace(e)
	f.pb.Trace(e)
}

// close leaves them the time to write what they hold; they do not say when they have.
func (f *files) close() {
	f.json.Close()
	f.pb.Close()
	time.Sleep(10 * poll)
}

func newPubSub(ctx context.Context, h host.Host, gossip *tracer, degree int, traced *files) (*pubsub.PubSub, error) {
	options := []pubsub.Option{
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithPeerOutboundQueueSize(queue),
		pubsub.WithValidateQueueSize(queue),
	}
	if traced != nil {
		options = append(options, pubsub.WithEventTracer(traced))
	}
	if gossip == nil {
		return pubsub.NewFloodSub(ctx, h, options...)
	}
	if degree >= 0 {
		params := pubsub.DefaultGossipSubParams()
		params.D, params.Dlo, params.Dhi, params.Dscore, params.Dout = degree, degree, degree, degree, 0
		options = append(options, pubsub.WithGossipSubParams(params))
	}
	return pubsub.NewGossipSub(ctx, h, append(options, pubsub.WithRawTracer(gossip))...)
}

func start(prefix string, gossip bool, degree int, trace string) error {
	h, err := libp2p.New(
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
	)
	if err != nil {
		return err
	}
	defer h.Close()
	identified, err := h.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted))
	if err != nil {
		return err
	}
	ctx := context.Background()
	var traced *tracer
	if gossip {
		traced = newTracer()
	}
	var written *files
	if trace != "" {
		if written, err = newFiles(trace); err != nil {
			return err
		}
		defer written.close()
	}
	router, err := newPubSub(ctx, h, traced, degree, written)
	if err != nil {
		return err
	}
	var table *dht.IpfsDHT
	if prefix != "" {
		if table, err = newDHT(h, prefix); err != nil {
			return err
		}
		defer table.Close()
	}
	n := &node{
		ctx: ctx, host: h, pubsub: router, dht: table, tracer: traced,
		topics:     map[string]*pubsub.Topic{},
		heard:      map[string]*pubsub.Subscription{},
		identified: map[peer.ID]event.EvtPeerIdentificationCompleted{},
		stdout:     json.NewEncoder(os.Stdout),
	}
	go n.keepIdentified(identified.Out())
	addrs := []string{}
	for _, addr := range h.Addrs() {
		addrs = append(addrs, fmt.Sprintf("%s/p2p/%s", addr, h.ID()))
	}
	n.say("ready", fields{"peer": h.ID().String(), "addrs": addrs})
	return n.run()
}

func main() {
	prefix := flag.String("dht", "", "be a server of the Kademlia DHT whose protocol is this and /kad/1.0.0")
	gossip := flag.Bool("gossipsub", false, "speak GossipSub in place of floodsub")
	degree := flag.Int("degree", -1, "the peers in a mesh; by default, as the library has it")
	trace := flag.String("trace", "", "write the library's traces to this and .json, and this and .pb")
	flag.Parse()
	if err := start(*prefix, *gossip, *degree, *trace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

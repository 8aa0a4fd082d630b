// go-libp2p-pubsub's GossipSub in `weft bench live`: all nodes in this process, with none of weft.
//
//	go_libp2p_live PLAN
//
// The plan is that of bench/perf/live_side.py, and so are the parts, the counting and the answer.
//
// Noise, Yamux, Ed25519, StrictSign, and GossipSub as it comes: /meshsub/1.3.0, no flood publishing, no scores, a heartbeat a
// second. Links are those of the plan's graph. The queues are as good as unbounded: as it comes, 32 messages may wait for a peer, for
// validation and for a subscriber, what is over that is dropped, and Publish says nothing. Of a burst of 500 among 20 nodes
// 94 and 97 % came then, with 1 KiB 99 %; of 1,000 messages 96 %.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const (
	name      = "bench"
	number    = 4
	unbounded = 1 << 20
	patience  = 10 * time.Second
	poll      = 100 * time.Millisecond
	limit     = 280 * time.Second
)

type plan struct {
	Nodes  int
	Edges  [][2]int
	Size   int
	Warmup int
	Burst  int
	Rate   float64
	Paced  int
}

// tally has who got which message, from number `first` on; each counts once.
type tally struct {
	mutex      sync.Mutex
	nodes      int
	first      int
	count      int
	due        int
	deliveries int
	doubled    int
	ms         []float64
	got        []bool
	sentAt     []time.Time
	full       chan struct{}
	began      time.Time
	beganCPU   float64
	cpu        float64
	wall       float64
}

func newTally(nodes, first, count int) *tally {
	return &tally{
		nodes: nodes, first: first, count: count, due: count * (nodes - 1),
		ms: []float64{}, got: make([]bool, nodes*count), sentAt: make([]time.Time, count),
		full: make(chan struct{}), began: time.Now(), beganCPU: cpuSeconds(),
	}
}

func (t *tally) took(node int, data []byte) {
	sent := int(binary.BigEndian.Uint32(data))
	place := sent - t.first
	if sent%t.nodes == node || place < 0 || place >= t.count {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	at := place*t.nodes + node
	if t.got[at] {
		t.doubled++
		return
	}
	t.got[at] = true
	t.ms = append(t.ms, time.Since(t.sentAt[place]).Seconds()*1000)
	t.deliveries++
	if t.deliveries == t.due {
		t.note()
		close(t.full)
	}
}

func (t *tally) sends(place int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sentAt[place] = time.Now()
}

func (t *tally) note() {
	t.wall, t.cpu = time.Since(t.began).Seconds(), cpuSeconds()-t.beganCPU
}

// look says how many have come; the time is noted where those are more than `seen`, or not all is sent.
func (t *tally) look(seen int, allSent bool) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.deliveries < t.due && (t.deliveries != seen || !allSent) {
		t.note()
	}
	return t.deliveries
}

// watch ends when all have come, or after all is sent none has for a while.
func (t *tally) watch(sent <-chan struct{}) {
	allSent, seen, quiet := false, -1, time.Duration(0)
	for quiet < patience {
		found := t.look(seen, allSent)
		if found != seen || !allSent {
			seen, quiet = found, 0
		}
		select {
		case <-t.full:
			return
		case <-sent:
			allSent, sent = true, nil
		case <-time.After(poll):
			quiet += poll
		}
	}
}

type node struct {
	host  host.Host
	topic *pubsub.Topic
	heard *pubsub.Subscription
	mesh  *mesh
}

type run struct {
	ctx   context.Context
	plan  plan
	nodes []*node
	next  int

	mutex sync.Mutex
	tally *tally
}

func (r *run) current() *tally {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.tally
}

func (r *run) part(count int, every time.Duration) (map[string]any, error) {
	t := newTally(r.plan.Nodes, r.next, count)
	r.next += count
	r.mutex.Lock()
	r.tally = t
	r.mutex.Unlock()
	sent, watched := make(chan struct{}), make(chan struct{})
	go func() {
		t.watch(sent)
		close(watched)
	}()
	if err := r.send(t, every); err != nil {
		return nil, err
	}
	close(sent)
	<-watched
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return map[string]any{
		"due": t.due, "deliveries": t.deliveries, "doubled": t.doubled,
		"cpu_s": t.cpu, "wall_s": t.wall, "ms": t.ms, "samples": map[string]int{},
	}, nil
}

func (r *run) send(t *tally, every time.Duration) error {
	began := time.Now()
	for place := range t.count {
		time.Sleep(time.Until(began.Add(time.Duration(place) * every)))
		data := make([]byte, r.plan.Size)
		binary.BigEndian.PutUint32(data, uint32(t.first+place))
		t.sends(place)
		if err := r.nodes[(t.first+place)%t.nodes].topic.Publish(r.ctx, data); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) take(place int) {
	for {
		message, err := r.nodes[place].heard.Next(r.ctx)
		if err != nil {
			return
		}
		if len(message.Data) >= number {
			r.current().took(place, message.Data)
		}
	}
}

// mesh is a tracer that keeps who is in the mesh: there is no other way to ask.
type mesh struct {
	mutex sync.Mutex
	peers map[peer.ID]bool
}

func (m *mesh) size() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.peers)
}

func (m *mesh) Graft(id peer.ID, topic string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.peers[id] = true
}

func (m *mesh) Prune(id peer.ID, topic string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.peers, id)
}

func (m *mesh) OnClosedOutboundStream(id peer.ID)        { m.Prune(id, name) }
func (m *mesh) OnNewOutboundStream(peer.ID, protocol.ID) {}
func (m *mesh) Join(string)                              {}
func (m *mesh) Leave(string)                             {}
func (m *mesh) ValidateMessage(*pubsub.Message)          {}
func (m *mesh) DeliverMessage(*pubsub.Message)           {}
func (m *mesh) RejectMessage(*pubsub.Message, string)    {}
func (m *mesh) DuplicateMessage(*pubsub.Message)         {}
func (m *mesh) ThrottlePeer(peer.ID)                     {}
func (m *mesh) RecvRPC(*pubsub.RPC)                      {}
func (m *mesh) SendRPC(*pubsub.RPC, peer.ID)             {}
func (m *mesh) DropRPC(*pubsub.RPC, peer.ID)             {}
func (m *mesh) UndeliverableMessage(*pubsub.Message)     {}

func openNode(ctx context.Context) (*node, error) {
	h, err := libp2p.New(
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
	)
	if err != nil {
		return nil, err
	}
	grafted := &mesh{peers: map[peer.ID]bool{}}
	router, err := pubsub.NewGossipSub(ctx, h,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithPeerOutboundQueueSize(unbounded),
		pubsub.WithValidateQueueSize(unbounded),
		pubsub.WithRawTracer(grafted),
	)
	if err != nil {
		return nil, err
	}
	topic, err := router.Join(name)
	if err != nil {
		return nil, err
	}
	heard, err := topic.Subscribe(pubsub.WithBufferSize(unbounded))
	return &node{host: h, topic: topic, heard: heard, mesh: grafted}, err
}

// meshed waits until each knows that all its neighbours subscribe, and has a mesh of as many as it wants at least.
func meshed(nodes []*node, edges [][2]int) {
	for place, n := range nodes {
		degree := 0
		for _, edge := range edges {
			if edge[0] == place || edge[1] == place {
				degree++
			}
		}
		for len(n.topic.ListPeers()) < degree || n.mesh.size() < min(degree, pubsub.GossipSubDlo) {
			time.Sleep(poll)
		}
	}
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func rssKb() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		panic(err)
	}
	return kb
}

func (r *run) open() error {
	for range r.plan.Nodes {
		n, err := openNode(r.ctx)
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	for place := range r.nodes {
		go r.take(place)
	}
	for _, edge := range r.plan.Edges {
		there := r.nodes[edge[0]].host
		if err := r.nodes[edge[1]].host.Connect(r.ctx, peer.AddrInfo{ID: there.ID(), Addrs: there.Addrs()}); err != nil {
			return err
		}
	}
	meshed(r.nodes, r.plan.Edges)
	return nil
}

func (r *run) measure() (map[string]any, error) {
	base, began := rssKb(), time.Now()
	if err := r.open(); err != nil {
		return nil, err
	}
	said := map[string]any{"up_s": time.Since(began).Seconds()}
	for range r.plan.Warmup {
		if _, err := r.part(1, 0); err != nil {
			return nil, err
		}
	}
	said["base_kb"], said["rss_kb"] = base, rssKb()
	paced, err := r.part(r.plan.Paced, time.Duration(float64(time.Second)/r.plan.Rate))
	if err != nil {
		return nil, err
	}
	said["paced"] = paced
	said["burst"], err = r.part(r.plan.Burst, 0)
	return said, err
}

func start() error {
	r := &run{ctx: context.Background(), tally: newTally(1, 0, 0)}
	if err := json.Unmarshal([]byte(os.Args[len(os.Args)-1]), &r.plan); err != nil {
		return err
	}
	said, err := r.measure()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}

func main() {
	time.AfterFunc(limit, func() { fail(fmt.Sprintf("not done in %s", limit)) })
	if err := start(); err != nil {
		fail(err)
	}
}

package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"clustermaster/cluster/level"
	"clustermaster/test/knownbug"
	"clustermaster/transport/peer/peerpb"
)

const (
	// beatsInFlight bounds the unanswered heartbeats of one peer.
	beatsInFlight = 4
	// beatSize is the padding of a heartbeat, in bytes: more than a packet of Ethernet's usual size
	// holds, so that it fails where large packets get lost and small ones do not.
	beatSize = 2000
)

// padLevel is the level of a cluster whose members all pad heartbeats.
var padLevel = level.OfField("clustermaster.peer.BeatRequest", "padding")

// RegisterRPC adds the heartbeat service to the server behind RPCListener; without it the other
// members consider this one down.
func (p *Port) RegisterRPC(s grpc.ServiceRegistrar) {
	peerpb.RegisterHeartbeatServer(s, &beatServer{boot: p.boot[:]})
}

var zeros [beatSize]byte

type beatServer struct {
	peerpb.UnimplementedHeartbeatServer
	boot []byte
}

func (b *beatServer) Beat(ctx context.Context, r *peerpb.BeatRequest) (*peerpb.BeatReply, error) {
	if _, ok := PeerNode(ctx); !ok {
		return nil, status.Error(codes.PermissionDenied, "heartbeats come through the peer port")
	}
	return &peerpb.BeatReply{Boot: b.boot, Padding: zeros[:min(len(r.GetPadding()), beatSize)]}, nil
}

// Watch starts heartbeats to these members, so that Alive has an answer early. Conn and Alive also
// start them, for the member that they name. They end when the member is dropped or no longer
// pinned. Watch skips unknown names.
func (p *Port) Watch(nodes ...string) {
	for _, node := range nodes {
		_, _ = p.linkTo(node) // not pinned: nothing to watch
	}
}

// Alive reports whether a member answered a heartbeat within DownAfter. This master itself is
// alive; a member that never answered is not.
func (p *Port) Alive(node string) bool {
	l, err := p.linkTo(node)
	if err != nil {
		return false
	}
	if l.self {
		return true
	}
	return l.up()
}

// sawPeer tells the link of a member that the member dialled us.
func (p *Port) sawPeer(node string) {
	if l := p.linkOf(node); l != nil {
		notify(l.seen)
	}
}

// LastHeard returns when a member last answered a heartbeat, or the zero time if never since this
// process began. For this master itself it returns now.
func (p *Port) LastHeard(node string) time.Time {
	l, err := p.linkTo(node)
	if err != nil {
		return time.Time{}
	}
	if l.self {
		return time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// DisownedAt returns when a member last proved its own key and refused ours, as a member does that
// does not (or no longer) have this master as a member. The zero time means never, or that it has
// answered a heartbeat since.
func (p *Port) DisownedAt(node string) time.Time {
	l, err := p.linkTo(node)
	if err != nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.disowned
}

// noteDisowned notes that a member refused our key.
func (p *Port) noteDisowned(node string) {
	l := p.linkOf(node)
	if l == nil {
		return
	}
	p.m.disowned.Inc()
	l.mu.Lock()
	l.disowned = time.Now()
	l.mu.Unlock()
	notify(l.refused)
}

// OnDown registers f to be called each time a member that was alive stops
// answering, is found to be another process than before (OnUp follows at
// once), or is dropped. A member that never answered is not reported. Calls
// for one member come in order; f must not block.
func (p *Port) OnDown(f func(node string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onDown = append(p.onDown, f)
}

// OnUp registers f to be called each time a member begins to answer. f must
// not block.
func (p *Port) OnUp(f func(node string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onUp = append(p.onUp, f)
}

func (p *Port) tellDown(node string) {
	p.m.downs.Inc()
	p.mu.Lock()
	fs := p.onDown[:len(p.onDown):len(p.onDown)]
	p.mu.Unlock()
	for _, f := range fs {
		f(node)
	}
}

func (p *Port) tellUp(node string) {
	p.mu.Lock()
	fs := p.onUp[:len(p.onUp):len(p.onUp)]
	p.mu.Unlock()
	for _, f := range fs {
		f(node)
	}
}

// answer is the outcome of one heartbeat.
type answer struct {
	boot    []byte
	process process
	took    time.Duration
	err     error
}

// heartbeat sends a heartbeat to the peer of l every HeartbeatEvery until the link is closed. Beats
// overlap, so one slow answer delays no other.
func (p *Port) heartbeat(l *link) {
	ctx, cancel := context.WithCancel(context.Background())
	answers := make(chan answer, beatsInFlight)
	inFlight := 0
	defer func() {
		cancel()
		for ; inFlight > 0; inFlight-- {
			<-answers
		}
		p.heartbeatEnded(l)
	}()
	client := peerpb.NewHeartbeatClient(l.beat)
	send := func() {
		if inFlight == beatsInFlight {
			return
		}
		inFlight++
		go func() { answers <- p.ask(ctx, client) }()
	}

	tick := time.NewTicker(p.cfg.HeartbeatEvery)
	defer tick.Stop()
	silent := time.NewTimer(p.cfg.DownAfter)
	defer silent.Stop()
	// Silence counts only while this master was running: one that was itself stopped or starved
	// must not consider all others down.
	woke := time.Now()
	slept := func() bool {
		gap := time.Since(woke)
		woke = time.Now()
		if gap <= 2*p.cfg.HeartbeatEvery { // at most one while all is well
			return false
		}
		silent.Reset(p.cfg.DownAfter)
		return true
	}
	line := detours{port: p, link: l}
	raftEnded := false // since the peer went down
	send()
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			slept()
			line.check(now)
			if down := l.downFor(now); down < userTimeout {
				raftEnded = false
			} else if !raftEnded {
				raftEnded = true
				p.conns.kill(l.node, "down", func(c *conn) bool { return c.dialled && c.proto == protoRaft })
			}
			if _, ok := p.cfg.Pins.SPKIOf(l.node); !ok {
				p.Drop(l.node)
				return
			}
			send()
		case a := <-answers:
			slept()
			inFlight--
			if a.err == nil {
				p.m.beats.Observe(a.took.Seconds())
				silent.Reset(p.cfg.DownAfter)
				select {
				case <-l.refused: // older than this answer
				default:
				}
				p.cameUp(l, a)
			}
		case <-l.seen:
			// A peer that dials us is up: when it returns it need not wait for our back-off.
			if !l.up() {
				l.beatGap.reset()
				send()
			}
		case <-l.refused:
			p.wentDown(l, "refuses connections")
		case <-silent.C:
			if !slept() {
				p.wentDown(l, "silent")
			}
		}
	}
}

func (p *Port) ask(ctx context.Context, client peerpb.HeartbeatClient) answer {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DownAfter)
	defer cancel()
	request := &peerpb.BeatRequest{}
	if p.atLevel(padLevel) && !knownbug.Is(knownbug.SmallBeats) {
		request.Padding = zeros[:]
	}
	begin := time.Now()
	var from grpcpeer.Peer
	r, err := client.Beat(ctx, request, grpc.WaitForReady(true), grpc.Peer(&from))
	id, _ := from.AuthInfo.(identity)
	return answer{boot: r.GetBoot(), process: id.process, took: time.Since(begin), err: err}
}

func (p *Port) cameUp(l *link, a answer) {
	up, restarted := l.noteUp(a, time.Now())
	// A copy may have got connections while the member did not answer.
	p.conns.kill(l.node, "superseded", func(c *conn) bool { return c.process != a.process })
	switch {
	case up:
		l.beatGap.reset()
		l.rpcGap.reset()
		l.rpc.Connect()
		p.cfg.Log.Info("peer answers", "peer", l.node)
		p.tellUp(l.node)
	case restarted:
		p.cfg.Log.Info("peer was restarted", "peer", l.node)
		p.tellDown(l.node)
		p.tellUp(l.node)
	}
}

// wentDown fails the running RPCs to the peer by closing their transport, and the heartbeat's too,
// so that a stuck connection does not outlive the fault. Raft has its own timers and keeps its
// streams for userTimeout, because a leader must not drop followers for a moment's silence. Then
// they end too: on a line that loses large packets only, a leader's heartbeats would arrive and its
// entries would not, and it would lead without being able to change anything.
func (p *Port) wentDown(l *link, why string) {
	wasUp, changed := l.noteDown(time.Now())
	if !changed {
		return
	}
	p.conns.kill(l.node, "down", func(c *conn) bool { return c.dialled && c.proto == protoRPC })
	if wasUp {
		p.cfg.Log.Warn("peer does not answer; its calls fail until it does", "peer", l.node,
			"reason", why)
		p.tellDown(l.node)
	}
}

// heartbeatEnded reports a dropped peer as down, except at the end of this port.
func (p *Port) heartbeatEnded(l *link) {
	wasUp, _ := l.noteDown(time.Now())
	select {
	case <-p.closing:
	default:
		if wasUp {
			p.tellDown(l.node)
		}
	}
}

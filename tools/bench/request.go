package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// kind is one sort of request.
type kind struct {
	name  string // as figures show it
	about string
	// file says that the kind needs a file of the file server.
	file bool
	// unasked kinds only run when named.
	unasked bool
	// prepare, if not nil, is called once before the kind is checked.
	prepare func(ctx context.Context, g *Generator) error
	send    func(ctx context.Context, s *session, l *line, j *job) error
}

// kinds are measured in this order.
func kinds() []kind {
	return []kind{
		{name: "_auth", about: "sign-in of an accepted minion that has not seen this master before",
			send: sendAuth},
		{name: "_auth+token", about: "sign-in with the token of a minion that has", unasked: true,
			send: sendAuthToken},
		{name: "_return",
			about: "the return of test.ping, each with a new jid that was never published",
			send:  sendReturn},
		{name: "_return+job",
			about: "the same, but each jid is that of all minions once (Salt's own master wants such a jid published)", unasked: true, send: sendJobReturn},
		{name: "_minion_event", about: "one event of 100 bytes", send: sendEvent},
		{name: "_pillar", about: "the pillar, with grains of a usual size", send: sendPillar},
		{name: "_pillar+grains", about: "the same, with a grain that changes each time",
			unasked: true, send: sendPillarGrains},
		{name: "_pillar+40sls", about: "the pillar of 40 SLS files with Jinja; with --self",
			unasked: true, send: sendPillarMany},
		{name: "_pillar+40sls+grains", about: "the same, with a grain that changes each time",
			unasked: true, send: sendPillarManyGrains},
		{name: "_mine", about: "what one mine function returned, 100 bytes", send: sendMine},
		{name: "_mine_get", about: "a mine function of ten minions", prepare: fillMine,
			send: sendMineGet},
		{name: "_file_list", about: "the list of all files of an environment", send: sendFileList},
		{name: "_file_hash", about: "the hash of one file", file: true, send: sendFileHash},
		{name: "_serve_file", about: "the first MiB of one file", file: true, send: sendFile},
		{name: "_serve_file+1mib", about: "a file of 8 MiB, a MiB in each answer; with --self",
			unasked: true, send: sendLargeFile},
	}
}

// choose picks the kinds of a list such as "return,event"; "" is all that the means allow. The
// leading underscore may be left out.
func choose(only, file string) ([]kind, error) {
	var out []kind
	if only == "" {
		for _, k := range kinds() {
			if !k.unasked && (file != "" || !k.file) {
				out = append(out, k)
			}
		}
		return out, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		name = "_" + strings.TrimLeft(strings.TrimSpace(name), "_")
		i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown request %q; there are %s", name, kindNames())
		}
		k := kinds()[i]
		if k.file && file == "" {
			return nil, fmt.Errorf("%s needs --file, a path below the master's file_roots", name)
		}
		out = append(out, k)
	}
	return out, nil
}

func kindNames() string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return strings.Join(names, " ")
}

// job is what the requests of one run have in common.
type job struct {
	saltenv, file string
	asked         atomic.Uint64 // files that were asked for
	mine          []any         // ids whose mine is asked for
	lastJID       atomic.Int64  // microseconds since the epoch

	mu     sync.Mutex // guards shared
	shared []string   // the jids of jobs that all minions return for, in turn
}

// numbers stands in a file's name for the numbers from 1 to the one in it.
var numbers = regexp.MustCompile(`\{([1-9][0-9]{0,5})\}`)

// path is the file that is asked for next. Of a name with numbers all files come in turn, spread
// over the folders by a stride that is a prime.
func (j *job) path() string {
	if !strings.Contains(j.file, "{") {
		return j.file
	}
	n := j.asked.Add(1) * 7919
	return numbers.ReplaceAllStringFunc(j.file, func(s string) string {
		most, _ := strconv.ParseUint(s[1:len(s)-1], 10, 32)
		one := n%most + 1
		n /= most
		return strconv.FormatUint(one, 10)
	})
}

// sharedJID is the jid of a minion's nth return for jobs of all, from 0.
func (j *job) sharedJID(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n >= len(j.shared) {
		j.shared = append(j.shared, j.jid())
	}
	return j.shared[n]
}

// jid makes a jid that this run has not used: the time, or the next free microsecond.
func (j *job) jid() string {
	for {
		last := j.lastJID.Load()
		now := max(time.Now().UnixMicro(), last+1)
		if j.lastJID.CompareAndSwap(last, now) {
			return wire.JID(time.UnixMicro(now))
		}
	}
}

// crew is one worker: a connection and the minions that take turns on it.
type crew struct {
	line     line
	sessions []*session
	turn     int
	job      *job
	kind     kind
}

// Request sends the next minion's request.
func (c *crew) Request(ctx context.Context) error {
	s := c.sessions[c.turn%len(c.sessions)]
	c.turn++
	return c.kind.send(ctx, s, &c.line, c.job)
}

// sendAuth signs in as on first contact. The answer's signature and nonce are checked, but
// its keys are not decrypted: that is the minion's work, and on one machine it would
// take from the master's time more than the master itself needs.
func sendAuth(ctx context.Context, s *session, l *line, _ *job) error {
	auth, err := s.authRequest()
	if err != nil {
		return err
	}
	auth.Master = nil
	return checkAuth(ctx, s, l, auth)
}

// benchToken is what a minion with a cached master key wants to have back. A minion
// makes a random one; here nobody looks.
var benchToken = bytes.Repeat([]byte("t"), 76)

func sendAuthToken(ctx context.Context, s *session, l *line, _ *job) error {
	auth, err := s.authRequest()
	if err != nil {
		return err
	}
	auth.Token = benchToken
	return checkAuth(ctx, s, l, auth)
}

func checkAuth(ctx context.Context, s *session, l *line, auth wire.AuthRequest) error {
	packed, err := auth.Pack()
	if err != nil {
		return err
	}
	reply, err := l.do(ctx, packed)
	if err != nil {
		return err
	}
	outer, err := value.UnpackRawMap(reply)
	if err != nil {
		return fmt.Errorf("_auth answered %.60q: %w", reply, err)
	}
	signed := outer.Bytes("load")
	if err := s.master.Verify(wire.SigSHA1, signed, outer.Bytes("sig")); err != nil {
		return fmt.Errorf("_auth: %w", err)
	}
	inner, err := value.UnpackRawMap(signed)
	if err != nil {
		return fmt.Errorf("_auth: %w", err)
	}
	switch {
	case inner.String("nonce") != auth.Nonce:
		return fmt.Errorf("_auth: %w", wire.ErrNonce)
	case len(inner.Bytes("aes")) != keySize/8 || len(inner.Bytes("session")) != keySize/8:
		return fmt.Errorf("_auth: %w", errPending)
	case auth.Token != nil && len(inner.Bytes("token")) != keySize/8:
		return fmt.Errorf("_auth: %w", wire.ErrToken)
	}
	return nil
}

func sendReturn(ctx context.Context, s *session, l *line, j *job) error {
	return returnPing(ctx, s, l, j.jid())
}

func sendJobReturn(ctx context.Context, s *session, l *line, j *job) error {
	jid := j.sharedJID(s.returned)
	s.returned++
	return returnPing(ctx, s, l, jid)
}

func returnPing(ctx context.Context, s *session, l *line, jid string) error {
	return returnValue(ctx, s, l, jid, "test.ping", true)
}

func returnValue(ctx context.Context, s *session, l *line, jid, fun string, val any) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "cmd", Value: "_return"}, {Key: "id", Value: s.id}, {Key: "success", Value: true},
		{Key: "return", Value: val},
		{Key: "retcode", Value: 0}, {Key: "jid", Value: jid}, {Key: "fun", Value: fun},
		{Key: "fun_args", Value: []any{}},
		{Key: "user", Value: "root"}, {Key: "_stamp", Value: wire.Stamp(time.Now())},
	})
	if err != nil {
		return fmt.Errorf("_return: %w", err)
	}
	if !v.IsNil() {
		return fmt.Errorf("_return answered %.60q, not nil", v)
	}
	return nil
}

var eventText = strings.Repeat("0123456789", 10)

func sendEvent(ctx context.Context, s *session, l *line, _ *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "id", Value: s.id}, {Key: "cmd", Value: "_minion_event"}, {Key: "pretag", Value: nil},
		{Key: "data", Value: value.Map{{Key: "text", Value: eventText}}},
		{Key: "tag", Value: "clustermaster/tools/bench"},
	})
	if err != nil {
		return fmt.Errorf("_minion_event: %w", err)
	}
	if len(v) != 1 { // nil or true, by release
		return fmt.Errorf("_minion_event answered %.60q", v)
	}
	return nil
}

// pillarLoad is the request of session s.
func (s *session) pillarLoad(grains value.Map) value.Map {
	return value.Map{
		{Key: "id", Value: s.id}, {Key: "grains", Value: grains}, {Key: "saltenv", Value: nil},
		{Key: "pillarenv", Value: nil},
		{Key: "pillar_override", Value: value.Map{}},
		{Key: "extra_minion_data", Value: value.Map{}},
		{Key: "ver", Value: "2"}, {Key: "cmd", Value: "_pillar"},
	}
}

// Packed pillars are larger than this: the small one, and the one of manySLS files.
const (
	smallPillar = 64
	manyPillar  = 8000
)

// many is the grain for which the top file has manySLS files.
var many = value.Pair{Key: manyGrain, Value: "many"}

// sendPillar checks the answer's shape only: opening it is a private operation with the
// minion's key. Every minion has opened its first pillar while it was set up.
func sendPillar(ctx context.Context, s *session, l *line, _ *job) error {
	return sendPillarOf(ctx, s, l, s.pillarLoad(grains(s.id)), smallPillar)
}

// changedGrains make the master keep other grains, on its disks, before it answers.
func changedGrains(id string, j *job) value.Map {
	return append(grains(id), value.Pair{Key: "changed", Value: j.jid()})
}

func sendPillarGrains(ctx context.Context, s *session, l *line, j *job) error {
	return sendPillarOf(ctx, s, l, s.pillarLoad(changedGrains(s.id, j)), smallPillar)
}

func sendPillarMany(ctx context.Context, s *session, l *line, _ *job) error {
	return sendPillarOf(ctx, s, l, s.pillarLoad(append(grains(s.id), many)), manyPillar)
}

func sendPillarManyGrains(ctx context.Context, s *session, l *line, j *job) error {
	return sendPillarOf(ctx, s, l, s.pillarLoad(append(changedGrains(s.id, j), many)), manyPillar)
}

func sendPillarOf(ctx context.Context, s *session, l *line, load value.Map, least int) error {
	_, reply, err := s.send(ctx, l, load)
	if err != nil {
		return fmt.Errorf("_pillar: %w", err)
	}
	m, err := value.UnpackRawMap(reply)
	if err != nil || len(m.Bytes("key")) != keySize/8 || len(m.Bytes("pillar")) < least {
		s.crypt = nil
		return fmt.Errorf("_pillar answered %.60q: %w", reply, wire.ErrAuthentication)
	}
	return nil
}

// openPillar fetches the pillar once with all checks.
func openPillar(ctx context.Context, s *session, l *line, _ *job) error {
	nonce, reply, err := s.send(ctx, l, s.pillarLoad(grains(s.id)))
	if err == nil {
		_, err = wire.OpenPrivate(s.key.private, s.master, s.sender, reply, "pillar", nonce)
	}
	if err != nil {
		return fmt.Errorf("_pillar: %w", err)
	}
	return nil
}

// mineFunction is the one whose values the minions send.
const mineFunction = "bench.value"

func sendMine(ctx context.Context, s *session, l *line, _ *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "cmd", Value: "_mine"}, {Key: "data",
			Value: value.Map{{Key: mineFunction, Value: eventText}}}, {Key: "id", Value: s.id},
	})
	if err != nil {
		return fmt.Errorf("_mine: %w", err)
	}
	if len(v) != 1 || v[0] != 0xc3 { // msgpack's true
		return fmt.Errorf("_mine answered %.60q, not true", v)
	}
	return nil
}

// mineMinions is how many minions' values _mine_get asks for, if there are so many.
const mineMinions = 10

// fillMine gives the first minions grains, for a mine knows only minions that have some, and a
// value in the mine.
func fillMine(ctx context.Context, g *Generator) error {
	g.job.mine = nil
	for _, c := range g.crews {
		for _, s := range c.sessions {
			if len(g.job.mine) == mineMinions {
				return nil
			}
			for _, send := range []func(context.Context, *session, *line, *job) error{openPillar,
				sendMine} {
				if err := send(ctx, s, &c.line, &g.job); err != nil {
					return fmt.Errorf("fill the mine: %w", err)
				}
			}
			g.job.mine = append(g.job.mine, s.id)
		}
	}
	return nil
}

func sendMineGet(ctx context.Context, s *session, l *line, j *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "cmd", Value: "_mine_get"}, {Key: "tgt", Value: j.mine},
		{Key: "fun", Value: mineFunction}, {Key: "tgt_type", Value: "list"},
		{Key: "id", Value: s.id},
	})
	if err != nil {
		return fmt.Errorf("_mine_get: %w", err)
	}
	m, err := value.UnpackRawMap(v)
	if err != nil {
		return fmt.Errorf("_mine_get answered %.60q: %w", v, err)
	}
	for _, id := range j.mine {
		if got := m.String(id.(string)); got != eventText {
			return fmt.Errorf("_mine_get answered %.60q, which lacks %s", v, id)
		}
	}
	return nil
}

func sendFileList(ctx context.Context, s *session, l *line, j *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "saltenv", Value: j.saltenv}, {Key: "prefix", Value: ""},
		{Key: "cmd", Value: "_file_list"},
	})
	if err != nil {
		return fmt.Errorf("_file_list: %w", err)
	}
	if c := v[0]; c>>4 != 0x9 && c != 0xdc && c != 0xdd { // msgpack's arrays
		return fmt.Errorf("_file_list answered %.60q, not a list", v)
	}
	return nil
}

var errNoFile = errors.New("the master has no such file")

func sendFileHash(ctx context.Context, s *session, l *line, j *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "path", Value: j.path()}, {Key: "saltenv", Value: j.saltenv},
		{Key: "cmd", Value: "_file_hash"},
	})
	if err == nil {
		var m value.RawMap
		if m, err = value.UnpackRawMap(v); err != nil || m.String("hsum") == "" {
			err = errNoFile
		}
	}
	if err != nil {
		return fmt.Errorf("_file_hash of %s: %w", j.file, err)
	}
	return nil
}

func sendFile(ctx context.Context, s *session, l *line, j *job) error {
	v, err := s.call(ctx, l, value.Map{
		{Key: "path", Value: j.path()}, {Key: "saltenv", Value: j.saltenv}, {Key: "loc", Value: 0},
		{Key: "cmd", Value: "_serve_file"},
	})
	if err == nil {
		var m value.RawMap
		if m, err = value.UnpackRawMap(v); err != nil || len(m.Bytes("data")) == 0 {
			err = errNoFile
		}
	}
	if err != nil {
		return fmt.Errorf("_serve_file of %s: %w", j.file, err)
	}
	return nil
}

func sendLargeFile(ctx context.Context, s *session, l *line, j *job) error {
	s.piece = (s.piece + 1) % largePieces
	v, err := s.call(ctx, l, value.Map{
		{Key: "path", Value: largeFile}, {Key: "saltenv", Value: j.saltenv},
		{Key: "loc", Value: s.piece << 20}, {Key: "cmd", Value: "_serve_file"},
	})
	if err == nil {
		var m value.RawMap
		if m, err = value.UnpackRawMap(v); err != nil || len(m.Bytes("data")) != 1<<20 {
			err = errNoFile
		}
	}
	if err != nil {
		return fmt.Errorf("_serve_file of %s: %w", largeFile, err)
	}
	return nil
}

// grains of a usual size, 3 to 4 kB: what a pillar request carries.
func grains(id string) value.Map {
	g := value.Map{
		{Key: "id", Value: id}, {Key: "host", Value: id}, {Key: "fqdn", Value: id + ".example.net"},
		{Key: "nodename", Value: id},
		{Key: "kernel", Value: "Linux"}, {Key: "os", Value: "Debian"},
		{Key: "os_family", Value: "Debian"}, {Key: "osarch", Value: "amd64"},
		{Key: "cpuarch", Value: "x86_64"}, {Key: "num_cpus", Value: 4},
		{Key: "mem_total", Value: 7942}, {Key: "ipv4", Value: []any{"10.0.0.7", "127.0.0.1"}},
		{Key: "saltversion", Value: "3008.3"},
		{Key: "pythonversion", Value: []any{3, 11, 9, "final", 0}},
	}
	for i := range 40 {
		g = append(g, value.Pair{Key: "cpu_flag_or_disk_" + strconv.Itoa(i),
			Value: strings.Repeat("value ", 10)})
	}
	return g
}

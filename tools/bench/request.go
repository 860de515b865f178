package bench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// sender sends one request and returns nil if the right answer came.
type sender func(ctx context.Context, s *session, l *line, j *job) error

// kind is one sort of request.
type kind struct {
	name  string // for figures
	about string
	send  sender
	// file says that the kind needs a file of the file server.
	file bool
	// unasked kinds run only if named.
	unasked bool
	// prepare, if not nil, is called once before the kind is checked.
	prepare func(ctx context.Context, g *generator) error
}

// kinds lists the kinds in the order of measurement.
func kinds() []kind {
	return []kind{
		{name: "_auth", about: "sign-in of an accepted minion that has not seen this master before",
			send: sendAuth},
		{name: "_return", send: returnOf("test.ping", true),
			about: "the return of test.ping, each with a new jid that was never published"},
		{name: "_minion_event", about: "one event of 100 bytes", send: sealed("_minion_event",
			func(s *session, _ *job) value.Map {
				return pairs("id", s.id, "pretag", nil, "data", pairs("text", eventText), "tag",
					"clustermaster/tools/bench")
			}, func(v value.Raw, _ *job) bool { return len(v) == 1 })}, // nil or true, by release
		{name: "_pillar", about: "the pillar, with grains of a usual size",
			send: sendPillar(false, false)},
		{name: "_pillar+grains", about: "the same, with a grain that changes each time",
			unasked: true, send: sendPillar(false, true)},
		{name: "_pillar+40sls", about: "the pillar of 40 SLS files with Jinja; with --self",
			unasked: true, send: sendPillar(true, false)},
		{name: "_pillar+40sls+grains", about: "the same, with a grain that changes each time",
			unasked: true, send: sendPillar(true, true)},
		{name: "_mine", about: "what one mine function returned, 100 bytes", send: sendMine},
		{name: "_mine_get", about: "a mine function of ten minions", prepare: fillMine,
			send: sealed("_mine_get", func(s *session, j *job) value.Map {
				return pairs("tgt", j.mine, "fun", mineFunction, "tgt_type", "list", "id", s.id)
			}, func(v value.Raw, j *job) bool {
				m, err := value.UnpackRawMap(v)
				return err == nil && !slices.ContainsFunc(j.mine,
					func(id any) bool { return m.String(id.(string)) != eventText })
			})},
		{name: "_file_list", about: "the list of all files of an environment", send: sendFileList},
		{name: "_file_hash", about: "the hash of one file", file: true, send: sealed("_file_hash",
			func(_ *session, j *job) value.Map {
				return pairs("path", j.path(), "saltenv", j.saltenv)
			}, func(v value.Raw, _ *job) bool {
				m, err := value.UnpackRawMap(v)
				return err == nil && m.String("hsum") != ""
			})},
		{name: "_serve_file", about: "the first MiB of one file", file: true,
			send: sealed("_serve_file", func(_ *session, j *job) value.Map {
				return pairs("path", j.path(), "saltenv", j.saltenv, "loc", 0)
			}, func(v value.Raw, _ *job) bool {
				m, err := value.UnpackRawMap(v)
				return err == nil && len(m.Bytes("data")) > 0
			})},
	}
}

// choose selects the kinds in a list such as "return,event"; "" means all that can run. The leading
// underscore may be omitted.
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
			var names []string
			for _, k := range kinds() {
				names = append(names, k.name)
			}
			return nil, fmt.Errorf("unknown request %q; there are %s", name,
				strings.Join(names, " "))
		}
		k := kinds()[i]
		if k.file && file == "" {
			return nil, fmt.Errorf("%s needs --file, a path below the master's file_roots", name)
		}
		out = append(out, k)
	}
	return out, nil
}

// job is the common state of the requests of one run.
type job struct {
	saltenv, file string
	asked         atomic.Uint64 // number of requested files
	mine          []any         // ids whose mine is requested
	lastJID       atomic.Int64  // microseconds since the epoch
}

// numbers matches a placeholder in a file's name, for the numbers from 1 to the one in it.
var numbers = regexp.MustCompile(`\{([1-9][0-9]{0,5})\}`)

// path returns the next file to request. For a name with numbers it returns all files in turn,
// spread over the folders by a stride that is a prime.
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

// jid makes an unused jid of this run: the time, or the next free microsecond.
func (j *job) jid() string {
	for {
		last := j.lastJID.Load()
		now := max(time.Now().UnixMicro(), last+1)
		if j.lastJID.CompareAndSwap(last, now) {
			return wire.JID(time.UnixMicro(now))
		}
	}
}

// pairs makes a map of alternating keys and values.
func pairs(v ...any) value.Map {
	m := make(value.Map, 0, len(v)/2)
	for i := 0; i < len(v); i += 2 {
		m = append(m, value.Pair{Key: v[i], Value: v[i+1]})
	}
	return m
}

// sealed sends a command, opens the answer and checks it.
func sealed(cmd string, load func(*session, *job) value.Map,
	right func(value.Raw, *job) bool) sender {
	return func(ctx context.Context, s *session, l *line, j *job) error {
		v, err := s.call(ctx, l, append(load(s, j), value.Pair{Key: "cmd", Value: cmd}))
		if err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
		if !right(v, j) {
			return fmt.Errorf("%s: the master answered %.60q", cmd, v)
		}
		return nil
	}
}

// sendAuth signs in as on first contact. It checks the answer's signature and nonce, but does not
// decrypt its keys: that is the minion's work, and on one machine it would take more of the
// master's time than the master itself needs.
func sendAuth(ctx context.Context, s *session, l *line, _ *job) error {
	auth, reply, err := s.auth(ctx, l, nil)
	if err != nil {
		return err
	}
	outer, err := value.UnpackRawMap(reply)
	if err != nil {
		return fmt.Errorf("_auth answered %.60q: %w", reply, err)
	}
	signed := outer.Bytes("load")
	err = s.master.Verify(wire.SigSHA1, signed, outer.Bytes("sig"))
	var inner value.RawMap
	if err == nil {
		inner, err = value.UnpackRawMap(signed)
	}
	switch {
	case err != nil:
	case inner.String("nonce") != auth.Nonce:
		err = wire.ErrNonce
	case len(inner.Bytes("aes")) != keySize/8 || len(inner.Bytes("session")) != keySize/8:
		err = errPending
	}
	if err != nil {
		return fmt.Errorf("_auth: %w", err)
	}
	return nil
}

// returnOf sends returns of one value.
func returnOf(fun string, val any) sender {
	return sealed("_return", func(s *session, j *job) value.Map {
		return pairs("id", s.id, "success", true, "return", val, "retcode", 0, "jid", j.jid(),
			"fun", fun, "fun_args", []any{}, "user", "root", "_stamp", wire.Stamp(time.Now()))
	}, func(v value.Raw, _ *job) bool { return v.IsNil() })
}

var eventText = strings.Repeat("0123456789", 10)

// pillarLoad is the request of session s.
func (s *session) pillarLoad(grains value.Map) value.Map {
	return pairs("id", s.id, "grains", grains, "saltenv", nil, "pillarenv", nil,
		"pillar_override", value.Map{}, "extra_minion_data", value.Map{}, "ver", "2", "cmd",
		"_pillar")
}

// Packed pillars are larger than this: the small one, and the one of manySLS files.
const (
	smallPillar = 64
	manyPillar  = 8000
)

// sendPillar requests the small pillar, or that of manySLS files, with constant grains or with
// grains that change each time, which the masters store before they answer. It checks only the
// answer's shape, because opening it is a private operation with the minion's key. Every minion
// opened its first pillar during the setup.
func sendPillar(many, changed bool) sender {
	return func(ctx context.Context, s *session, l *line, j *job) error {
		g, least := grains(s.id), smallPillar
		if many {
			g, least = append(g, pairs(manyGrain, "many")...), manyPillar
		}
		if changed {
			g = append(g, pairs("changed", j.jid())...)
		}
		_, reply, err := s.send(ctx, l, s.pillarLoad(g))
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
}

// openPillar fetches a pillar once with all checks.
func openPillar(ctx context.Context, s *session, l *line, _ *job) error {
	nonce, reply, err := s.send(ctx, l, s.pillarLoad(grains(s.id)))
	if err == nil {
		_, err = wire.OpenPrivate(s.key.Private, s.master, s.sender, reply, "pillar", nonce)
	}
	if err != nil {
		return fmt.Errorf("_pillar: %w", err)
	}
	return nil
}

const (
	// mineFunction is the function whose values the minions send.
	mineFunction = "bench.value"
	// mineMinions is the number of minions whose values _mine_get requests, if there are that many.
	mineMinions = 10
)

var sendMine = sealed("_mine", func(s *session, _ *job) value.Map {
	return pairs("data", pairs(mineFunction, eventText), "id", s.id)
}, func(v value.Raw, _ *job) bool { return len(v) == 1 && v[0] == 0xc3 }) // msgpack's true

// fillMine gives the first minions grains, because a mine only has minions with grains, and a value
// in the mine.
func fillMine(ctx context.Context, g *generator) error {
	g.job.mine = nil
	for _, c := range g.crews {
		for _, s := range c.sessions {
			if len(g.job.mine) == mineMinions {
				return nil
			}
			for _, send := range []sender{openPillar, sendMine} {
				if err := send(ctx, s, &c.line, &g.job); err != nil {
					return fmt.Errorf("fill the mine: %w", err)
				}
			}
			g.job.mine = append(g.job.mine, s.id)
		}
	}
	return nil
}

var sendFileList = sealed("_file_list", func(_ *session, j *job) value.Map {
	return pairs("saltenv", j.saltenv, "prefix", "")
}, func(v value.Raw, _ *job) bool { // msgpack's arrays
	return v[0]>>4 == 0x9 || v[0] == 0xdc || v[0] == 0xdd
})

// grains makes grains of a usual size, 3 to 4 kB, for a pillar request.
func grains(id string) value.Map {
	g := pairs("id", id, "host", id, "fqdn", id+".example.net", "nodename", id, "kernel", "Linux",
		"os", "Debian", "os_family", "Debian", "osarch", "amd64", "cpuarch", "x86_64", "num_cpus", 4,
		"mem_total", 7942, "ipv4", []any{"10.0.0.7", "127.0.0.1"}, "saltversion", "3008.3",
		"pythonversion", []any{3, 11, 9, "final", 0})
	for i := range 40 {
		g = append(g, pairs("cpu_flag_or_disk_"+strconv.Itoa(i), strings.Repeat("value ", 10))...)
	}
	return g
}

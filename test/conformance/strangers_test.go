package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/tools/simminion"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
)

// besieged is the master attacked by strangers, who have no accepted key.
var besieged = variant{name: "besieged", options: `autosign_file: DIR/autosign.conf
max_connections: 300
max_connections_per_source: 120
`, files: map[string]string{"autosign.conf": "ok-*\n"}}

// narrow accepts only small requests.
var narrow = variant{name: "narrow",
	options: "autosign_file: DIR/autosign.conf\nmax_frame_size: 1048576\n", files: besieged.files}

// TestStrangers has strangers attack a running master, which serves its minions meanwhile.
func TestStrangers(t *testing.T) {
	s := newSuite(t)
	for _, l := range []line{
		{"subscribers", besieged, ours, testFleetingSubscribers},
		{"connections", besieged, ours, testConnectionShare},
		{"decoding", besieged, ours, testDenseMessages},
		{"decoding_of_a_minion", narrow, ours, testDenseRequest},
		{"unfinished", narrow, ours, testUnfinishedRequests},
	} {
		s.each(l)
	}
}

// stranger is the address from which strangers connect.
func (m *subject) stranger() net.IP { return net.ParseIP(m.base.Master(150)) }

// garrison starts minions of this master that answer until the test ends.
func garrison(t *testing.T, m *subject, prefix string, n int) []string {
	t.Helper()
	key, err := simminion.KeyOf(keyNumber(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := simminion.NewFleet(simminion.Config{Master: hostPort(m.Addr, e2e.RequestPort),
		LocalAddr: net.ParseIP(m.base.Master(151)), AcceptanceWait: time.Second},
		prefix, n, []*simminion.Key{key}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	ready, over := context.WithTimeout(ctx, 60*time.Second)
	defer over()
	if err := fleet.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range fleet.Minions {
		ids = append(ids, m.ID())
	}
	return ids
}

// resident is the present memory of a process, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	return int64(e2e.ProcNumber(t, pid, "VmRSS")) << 10
}

// dense are messages of about n bytes. Decoding them took thousands of times their length, or tens
// of times.
func dense(n int) [][]byte {
	head := func(code byte, n int) []byte {
		return []byte{code, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	var heads [][]byte
	left := n
	// a constant that holds an array that claims all the rest, and the next constant
	for range 120 {
		heads = append(heads, head(0xdd, left), []byte{0x92, 0xa1, 'x'},
			append(head(0xc9, left+8), 79))
		left += 14
	}
	slices.Reverse(heads)
	nested := append(bytes.Join(heads, nil), bytes.Repeat([]byte{0xc0}, n)...)
	list := func(code byte, element ...byte) []byte {
		return append(head(code, n/len(element)), bytes.Repeat(element, n/len(element))...)
	}
	packed := func(v any) []byte {
		b, err := value.Pack(v)
		if err != nil {
			panic(err) // the message comes from this file
		}
		return b
	}
	clear := func(val []byte) []byte {
		return packed(envelope("clear", 3,
			value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "ok-1"},
				{Key: "autosign_grains", Value: value.Raw(val)}}))
	}
	return [][]byte{
		nested, clear(nested), clear(list(0xdf, 0x00, 0x80)), list(0xdd, 0x90),
		clear(list(0xdf, 0xa1, 'k', 0x90)),
		append(head(0xdf, n/2), bytes.Repeat([]byte{0xc0}, n)...),
		packed(append(envelope("aes", 3, bytes.Repeat([]byte{7}, n)),
			value.Pair{Key: "id", Value: "ok-keep1"})),
	}
}

// testDenseMessages: 64 senders of messages that are small, and huge once decoded, do not keep the
// master from its minions.
func testDenseMessages(t *testing.T, m *subject) {
	ids := garrison(t, m, "ok-keep", 5)
	if err := pinged(t, m, ids); err != nil {
		t.Fatal(err)
	}
	before := resident(t, m.PID())
	peak, began := before, time.Now()
	siege := besiege(t, m)
	var slowest time.Duration
	for pings := 0; pings < 3 || time.Since(began) < 8*time.Second; pings++ {
		watch := e2e.StartWatch(t)
		if err := pinged(t, m, ids); err != nil {
			t.Error(err)
			break
		}
		slowest = max(slowest, watch.Took())
		peak = max(peak, resident(t, m.PID()))
	}
	sent, heard := siege()
	t.Logf("%d messages, %d of them answered; %d MB, before %d; the slowest ping took %v", sent,
		heard, peak>>20, before>>20, slowest)
	if heard == 0 || sent < 128 {
		t.Errorf("%d messages were sent and %d answered", sent, heard)
	}
	if slowest > e2e.Within(3*time.Second) {
		t.Errorf("a ping took %v", slowest)
	}
	if grown := peak - before; e2e.MemoryCounts(t) && grown > 300<<20 {
		t.Errorf("the master grew by %d MB", grown>>20)
	}
}

// assailants is the environment variable that turns this program into senders of dense messages. It
// names their target and source.
const assailants = "CLUSTERMASTER_CONFORMANCE_ASSAILANTS"

// besiege starts 64 senders in their own process. stop ends them and returns how many messages they
// sent and how many of those were answered.
func besiege(t *testing.T, m *subject) (stop func() (sent, heard int)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), assailants+"="+hostPort(m.Addr, e2e.RequestPort)+" "+
		m.stranger().String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(func() error { in.Close(); return cmd.Wait() })
	t.Cleanup(func() { _ = ended() })
	return func() (sent, heard int) {
		t.Helper()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(out.String(), &sent, &heard); err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
		return sent, heard
	}
}

// assail sends dense messages until standard input ends. It prints how many it sent and how many
// were answered.
func assail(order string) error {
	var to, from string
	if _, err := fmt.Sscan(order, &to, &from); err != nil {
		return err
	}
	messages := append(dense(900<<10), dense(4<<20)...)
	messages = append(messages, dense(32 << 20)[0])
	ctx, cancel := context.WithCancel(context.Background())
	var sent, heard atomic.Int64
	var senders sync.WaitGroup
	for i := range 64 {
		senders.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				sent.Add(1)
				if assault(ctx, to, net.ParseIP(from), messages[n%len(messages)]) == nil {
					heard.Add(1)
				}
			}
		})
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	senders.Wait()
	fmt.Println(sent.Load(), heard.Load())
	return err
}

// assault sends one message on its own connection.
func assault(ctx context.Context, to string, from net.IP, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := transport.DialRequests(ctx, to,
		transport.ClientOptions{LocalAddr: &net.TCPAddr{IP: from}})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do(ctx, payload)
	return err
}

// testDenseRequest: an accepted minion's request is not decoded if that would take too much.
func testDenseRequest(t *testing.T, m *subject) {
	minion := m.signIn(t, "ok-dense", 3)
	before := m.counters(t)
	empty := func(n int) value.Raw {
		return append(value.Raw{0xdd, 0, byte(n >> 16), byte(n >> 8), byte(n)},
			bytes.Repeat([]byte{0x90}, n)...)
	}
	if v := minion.request(t, "_minion_event", pair("tag", "t"),
		pair("data", value.Map{{Key: "list", Value: empty(10_000)}})); v == "bad load" {
		t.Errorf("a short list: %v", v)
	}
	load := minion.load(t, "_minion_event", pair("tag", "t"),
		pair("data", value.Map{{Key: "list", Value: empty(800_000)}}))
	if got := show(t, m.send(t, minion.seal(t, load))); got != badLoad {
		t.Errorf("a list that takes 32 MB: %s", got)
	}
	const refused = `requests_refused_total{reason="decoded_size"}`
	if n := m.counters(t)[refused] - before[refused]; n != 1 {
		t.Errorf("%d are counted", n)
	}
}

// unfinished sends the first bytes of a request of 64 KiB: a greeting of ZMTP, READY, the empty
// delimiter, and half of the payload.
func unfinished(t *testing.T, m *subject) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: m.stranger()}, Timeout: 5 * time.Second}
	conn, err := dialer.Dial("tcp", hostPort(m.Addr, e2e.RequestPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL")
	const ready = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
	const frames = "\x01\x00\x02\x00\x00\x00\x00\x00\x01\x00\x00"
	if _, err := conn.Write(slices.Concat(greeting, []byte(ready+frames),
		make([]byte, 1<<15+1))); err != nil {
		t.Fatal(err)
	}
}

// testUnfinishedRequests: strangers who don't end their short requests hold 32 MiB together, and
// the first request of a minion is served.
func testUnfinishedRequests(t *testing.T, m *subject) {
	const most, each, conns = 32 << 20, 1 << 16, 700
	closed := `minion_closed_total{endpoint="request",reason="memory"}`
	before := m.counters(t)[closed]
	for range conns {
		unfinished(t, m)
	}
	e2e.Eventually(t, 20*time.Second, "what is too much is closed", func() error {
		if n := m.counters(t)[closed] - before; n != conns-most/each {
			return fmt.Errorf("%d are closed", n)
		}
		return nil
	})
	_, rest, _ := strings.Cut(m.Metrics(t), "\nclustermaster_minion_strangers_in_flight_bytes ")
	line, _, _ := strings.Cut(rest, "\n")
	if held, err := strconv.ParseFloat(line, 64); err != nil || held != most {
		t.Errorf("strangers hold %v bytes, %v", held, err)
	}
	minion := m.signIn(t, "ok-first", 3)
	if v := minion.request(t, "_minion_event", pair("tag", "t"),
		pair("data", dict("text", strings.Repeat("x", 20_000)))); v != nil {
		t.Errorf("a minion gets %v", v)
	}
}

// testConnectionShare: one address can't take all connections.
func testConnectionShare(t *testing.T, m *subject) {
	counters := m.counters(t)
	for _, port := range []int{e2e.RequestPort, e2e.PublishPort} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: m.stranger()}, Timeout: 5 * time.Second}
		for range 400 {
			conn, err := dialer.Dial("tcp", hostPort(m.Addr, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
	}
	honest := m.signIn(t, "ok-honest", 3)
	if v := honest.request(t, "_file_envs"); showValue(v) != "[base]" {
		t.Errorf("an honest minion gets %v", v)
	}
	subscribe(t, m.Addr, "")
	for _, endpoint := range []string{"request", "publish"} {
		name := fmt.Sprintf("minion_closed_total{endpoint=%q,reason=\"source_full\"}", endpoint)
		e2e.Eventually(t, 10*time.Second, "what is over the share is closed", func() error {
			if n := m.counters(t)[name] - counters[name]; n != 280 {
				return fmt.Errorf("%d are closed at endpoint %s", n, endpoint)
			}
			return nil
		})
	}
	if log := string(readFile(t, m.Log)); !strings.Contains(log, "addr="+m.stranger().String()) ||
		!strings.Contains(log, "reason=source_full") {
		t.Error("the log does not say whose connections are too many")
	}
}

// testFleetingSubscribers: crowds of strangers who subscribe and leave cause no job to be sent
// again.
func testFleetingSubscribers(t *testing.T, m *subject) {
	ids := garrison(t, m, "ok-calm", 2)
	m.signIn(t, "ok-away", 3) // an accepted minion that is away: its jobs stay open
	if err := pinged(t, m, ids); err != nil {
		t.Fatal(err)
	}
	before := m.counters(t)
	r := m.Salt(t, "--async", "ok-*", "test.ping")
	if r.Code != 0 {
		t.Fatal(r)
	}
	to := hostPort(m.Addr, e2e.PublishPort)
	for range 4 {
		var crowd []*transport.SubscribeClient
		for range 60 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			c, err := transport.DialSubscribe(ctx, to, []string{""},
				transport.ClientOptions{LocalAddr: &net.TCPAddr{IP: m.stranger()}})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			crowd = append(crowd, c)
		}
		e2e.Eventually(t, 10*time.Second, "the crowd has subscribed",
			func() error { return m.subscribed(t, len(ids)+len(crowd)) })
		for _, c := range crowd {
			c.Close()
		}
		e2e.Eventually(t, 10*time.Second, "the crowd is gone",
			func() error { return m.subscribed(t, len(ids)) })
	}
	// The job is watched for 15 s. It would have been sent again a second after each loss.
	watched := time.Now().Add(4 * time.Second)
	e2e.Eventually(t, 10*time.Second, "time for what must not happen", func() error {
		after := m.counters(t)
		for _, name := range []string{"jobs_resent_total",
			`minion_subscriber_losses_total{endpoint="publish"}`} {
			n, there := after[name]
			if n -= before[name]; n != 0 || !there {
				t.Fatalf("%s grew by %d; it is shown: %v", name, n, there)
			}
		}
		if time.Now().Before(watched) {
			return errors.New("not yet")
		}
		return nil
	})
	if err := pinged(t, m, ids); err != nil {
		t.Error(err)
	}
}

// subscribed returns nil if the master has that many subscribers.
func (m *subject) subscribed(t testing.TB, want int) error {
	t.Helper()
	if n := m.counters(t)[`minion_subscribers{endpoint="publish"}`]; n != want {
		return fmt.Errorf("it has %d subscribers, not %d", n, want)
	}
	return nil
}

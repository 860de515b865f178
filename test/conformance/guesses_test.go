package conformance

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
)

// guessed is a master with users in a file, whose passwords take a while to compare, and PAM users
// if there is a service for them.
func guessed(t *testing.T, service string) *subject {
	t.Helper()
	var users strings.Builder
	for i := range 10 {
		hash, err := bcrypt.GenerateFromPassword(fmt.Append(nil, "word", i), 9)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&users, "user%d:%s\n", i, hash)
	}
	options := "enable_clear_commands: True\nauth.pam.service: " + service +
		"\nexternal_auth:\n  file: {^filename: DIR/users, ^filetype: htpasswd, '*': [test.ping]}\n"
	if service != "" {
		options += "  pam: {root: [test.ping]}\n"
	}
	m := newMaster(t, ours, variant{name: "guessed", options: options,
		files: map[string]string{"users": users.String()}})
	m.start(t)
	return m
}

// proves asks for a token from an address of this machine. It returns how long the answer took.
func (m *subject) proves(t testing.TB, from, eauth, user, password string,
	limit time.Duration) (ok bool, took time.Duration, err error) {
	t.Helper()
	ctx, cancel := e2e.Deadline(t, 30*time.Second)
	defer cancel()
	c, err := transport.DialRequests(ctx, hostPort(m.Addr, e2e.RequestPort),
		transport.ClientOptions{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}})
	if err != nil {
		return false, 0, err
	}
	defer c.Close()
	payload := pack(t, envelope("clear", 3, dict("cmd", "mk_token", "eauth", eauth, "username",
		user, "password", password)))
	answer, stop := context.WithTimeout(ctx, limit)
	defer stop()
	watch := e2e.StartWatch(t)
	reply, err := c.Do(answer, payload)
	took = watch.Took()
	if err != nil {
		return false, took, err
	}
	token, _ := unpack(t, reply).(value.Map)
	return token.String("token") != "", took, nil
}

// TestGuesses: many connections from one source can guess a user's password less than five times
// per second, whether they wait for the answers or not. They keep no other user out, and not even
// that user once they end.
func TestGuesses(t *testing.T) {
	m := guessed(t, "")
	const attacker, beside, earlier = "127.0.0.66", "127.0.0.67", "127.0.0.68"
	if ok, took, err := m.proves(t, earlier, "file", "user1", "word1", 20*time.Second); !ok ||
		err != nil {
		t.Fatalf("the right password: %v after %v", err, took)
	}
	asked := func() int { return m.counters(t)["auth_back_end_seconds_count"] }
	before, began := asked(), time.Now()
	const length = 8 * time.Second
	var wg sync.WaitGroup
	for i := range 16 {
		limit := 100 * time.Millisecond
		if i%2 == 0 {
			limit = 3 * time.Second
		}
		wg.Go(func() {
			for time.Since(began) < length {
				if ok, _, _ := m.proves(t, attacker, "file", "user1", "guess", limit); ok {
					t.Error("a guess is right")
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	others := 0
	for time.Since(began) < length {
		for _, other := range [][3]string{{beside, "user2", "word2"}, {earlier, "user1", "word1"},
			{attacker, "user3", "word3"}} {
			ok, took, err := m.proves(t, other[0], "file", other[1], other[2], 10*time.Second)
			if others++; !ok || took > e2e.Within(2*time.Second) {
				t.Errorf("%s from %s: confirmed %v, %v after %v", other[1], other[0], ok, err, took)
			}
		}
		<-time.After(500 * time.Millisecond)
	}
	guesses, lasted := asked()-before-others, time.Since(began)
	wg.Wait()
	if rate := float64(guesses) / lasted.Seconds(); rate >= 5 || guesses < 2 {
		t.Errorf("%d guesses in %v, want fewer than 5 a second", guesses, lasted)
	}
	e2e.Eventually(t, 20*time.Second, "the right password from where guesses came", func() error {
		if ok, took, err := m.proves(t, attacker, "file", "user1", "word1", 10*time.Second); !ok {
			return fmt.Errorf("refused after %v, %v", took, err)
		}
		return nil
	})
	t.Logf("%d guesses in %v beside %d users", guesses, lasted, others)
}

// TestRefusalTimes: a refusal takes as long for a known name as for an unknown one: whole seconds,
// more of them while the machine is busy.
func TestRefusalTimes(t *testing.T) {
	service, unknownTo := "", map[string]string{"file": "nosuch%d"}
	known := map[string]string{"file": "user%d"}
	if long() && os.Geteuid() == 0 {
		service = fmt.Sprint("cmguess", os.Getpid())
		path := "/etc/pam.d/" + service
		if err := os.WriteFile(path,
			[]byte("auth required pam_unix.so\naccount required pam_unix.so\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
		known["pam"], unknownTo["pam"] = "root", "nosuch%d"
	}
	m := guessed(t, service)
	const lanes, tries = 10, 5
	counts := e2e.RatesCount(t)
	for eauth := range known {
		var mu sync.Mutex
		times := map[bool][]time.Duration{}
		var wg sync.WaitGroup
		for lane := range lanes { // each from its own address, so that none waits for another
			wg.Go(func() {
				for i := range tries {
					for _, is := range []bool{(i+lane)%2 == 0, (i+lane)%2 != 0} {
						user := unknownTo[eauth]
						if is {
							user = known[eauth]
						}
						if strings.Contains(user, "%") {
							user = fmt.Sprintf(user, (lane+i)%10)
						}
						began := time.Now() // a Stopwatch would make other seconds of them
						ok, _, err := m.proves(t, fmt.Sprintf("127.0.%d.%d", 1+i, 1+lane), eauth,
							user, "guess", 25*time.Second)
						took := time.Since(began)
						if ok || err != nil {
							t.Errorf("%s %s: confirmed %v, %v", eauth, user, ok, err)
						}
						mu.Lock()
						times[is] = append(times[is], took)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		// what is more than whole seconds, how much that varies, and how many took more than one
		beyond := func(is bool) (median, spread time.Duration, late int) {
			var rest []time.Duration
			for _, took := range times[is] {
				rest = append(rest, took%time.Second)
				switch {
				case took >= 2*time.Second:
					late++
				case took < time.Second:
					t.Errorf("%s: refused after %v", eauth, took)
				}
			}
			slices.Sort(rest)
			return rest[len(rest)/2], rest[len(rest)*3/4] - rest[len(rest)/4], late
		}
		median, spread, late := beyond(true)
		otherMedian, otherSpread, otherLate := beyond(false)
		differs := (median - otherMedian).Abs() >= max(20*time.Millisecond, spread, otherSpread)
		// Of 50 with even odds, chance makes a difference of 20 once in 15,000 runs.
		differs = differs || max(late-otherLate, otherLate-late) >= 20
		if len(times[true]) != 50 || len(times[false]) != 50 || counts && differs {
			t.Errorf("%s: refusals take\n%v for known names\n%v for others", eauth, times[true], times[false])
		}
		t.Logf("%s: for known names %v more than whole seconds, %d of %d late; for others %v, %d of %d", eauth,
			median, late, len(times[true]), otherMedian, otherLate, len(times[false]))
	}
}

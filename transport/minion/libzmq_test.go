package minion

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pythons returns the interpreters of the Salt releases, each with its own libzmq.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if dir == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	all := make(map[string]string)
	for _, name := range []string{"salt-3006.28", "salt-3007.15", "salt-3008.3"} {
		all[name] = filepath.Join(dir, name, "bin", "python")
	}
	return all
}

func python(t *testing.T, interpreter string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"testdata/peer.py"}, args...)...)
	cmd.Stderr = testLog{t}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	return cmd, lines
}

func read(lines *bufio.Scanner) (all []string) {
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	return all
}

func TestLibzmqRequests(t *testing.T) {
	for name, interpreter := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr, _ := startRequests(t, echo, Limits{})
			_, lines := python(t, interpreter, "req", "tcp://"+addr, "0", "1", "252", "253", "300",
				"70000", "9000000")
			if got, want := read(lines), []string{"3", "4", "255", "256", "303", "70003",
				"9000003"}; !slices.Equal(got, want) {
				t.Errorf("replies of %v bytes, want %v", got, want)
			}
			_, lines = python(t, interpreter, "pair", "tcp://"+addr, "salt-req/minion/m1/1/0")
			if got, want := read(lines), []string{"re:a1", "re:b1", "re:b2",
				"re:a2"}; !slices.Equal(got, want) {
				t.Errorf("equal identities: %v, want %v", got, want)
			}
		})
	}
}

func TestLibzmqHeartbeat(t *testing.T) {
	for name, interpreter := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := Limits{PingInterval: 20 * time.Millisecond, PingTimeout: 2 * time.Second}
			p, addr, _ := startPub(t, lim, false)
			_, lines := python(t, interpreter, "sub", "tcp://"+addr, "")
			lines.Scan()
			eventually(t, "subscribed", subscribers(p, 1))
			eventually(t, "answers PINGs for longer than the timeout",
				func() bool { return value(t, p.met.pingsSent) > 120 })
			if n := value(t, p.met.accepted); n != 1 {
				t.Errorf("%v connections: it was cut", n)
			}
			p.Publish(Publication{Payload: []byte("end")})
			if got := read(lines); !slices.Equal(got, []string{hex.EncodeToString([]byte("end"))}) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestLibzmqSubscriptions(t *testing.T) {
	id := "bb80758810b7fc09140b929d1f558950eefe67b8"
	for name, interpreter := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, addr, _ := startPub(t, Limits{}, true)
			_, lines := python(t, interpreter, "sub", "tcp://"+addr, id, "broadcast")
			lines.Scan()
			heard := make(chan []string, 1)
			go func() { heard <- read(lines) }()
			eventually(t, "first", func() bool {
				return p.Publish(Publication{Topics: []string{"broadcast"},
					Payload: []byte("first")}) == 1
			})
			eventually(t, "second topic",
				func() bool {
					return p.Publish(Publication{Topics: []string{id},
						Payload: []byte("first")}) == 1
				})
			p.Publish(Publication{Topics: []string{"other"}, Payload: []byte("not for it")})
			p.Publish(Publication{Topics: []string{"broadcast", id}, Payload: payloadOf(1 << 20)})
			p.Publish(Publication{Topics: []string{"broadcast"}, Payload: []byte("unsubscribe")})
			eventually(t, "unsubscribed", func() bool {
				return p.Publish(Publication{Topics: []string{"broadcast"},
					Payload: []byte("late")}) == 0
			})
			eventually(t, "subscribed anew",
				func() bool {
					return p.Publish(Publication{Topics: []string{"newer"},
						Payload: []byte("end")}) == 1
				})
			big := 0
			for _, line := range <-heard {
				frames := strings.Fields(line)
				if len(frames) != 2 {
					t.Fatalf("%d frames", len(frames))
				}
				if len(frames[1]) == 2<<20 {
					big++
				}
				if payload, _ := hex.DecodeString(frames[1]); string(payload) == "not for it" {
					t.Error("heard another topic")
				}
			}
			if big != 2 {
				t.Errorf("%d copies of the large publication, want 2", big)
			}
		})
	}
}

// A libzmq peer believes it talks to ZMTP 3.0 when the greeting says so, and sends its
// subscription as a message; in between stands a relay that lowers our greeting.
func TestLibzmqOldSubscription(t *testing.T) {
	for name, interpreter := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, addr, _ := startPub(t, Limits{}, false)
			relay, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Close()
			go func() {
				down, err := relay.Accept()
				if err != nil {
					return
				}
				defer down.Close()
				up, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer up.Close()
				go io.Copy(up, down)
				greeting := make([]byte, greetingSize)
				if _, err := io.ReadFull(up, greeting); err != nil {
					return
				}
				greeting[11] = 0
				down.Write(greeting)
				io.Copy(down, up)
			}()
			_, lines := python(t, interpreter, "sub", "tcp://"+relay.Addr().String(), "")
			lines.Scan()
			eventually(t, "subscribed", subscribers(p, 1))
			p.Publish(Publication{Payload: []byte("end")})
			if got := read(lines); !slices.Equal(got, []string{hex.EncodeToString([]byte("end"))}) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A subscriber that reconnects by itself gets what was held meanwhile.
func TestLibzmqReconnectGetsHeld(t *testing.T) {
	for name, interpreter := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := NewPubServer(Limits{}, false, logTo(t), nil)
			first, stop := runAt(t, ownAddress()+":0", p.Serve)
			_, lines := python(t, interpreter, "sub", "tcp://"+first, "")
			lines.Scan()
			eventually(t, "subscribed", subscribers(p, 1))
			stop()
			if n := p.Publish(Publication{JID: "1", Payload: []byte("end"),
				Hold: time.Minute}); n != 0 {
				t.Errorf("queued for %d", n)
			}
			ln, err := Listen(t.Context(), first, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- p.Serve(ctx, ln) }()
			if got := read(lines); !slices.Equal(got, []string{hex.EncodeToString([]byte("end"))}) {
				t.Errorf("got %q", got)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

package operator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"clustermaster/salt/gather"
	"clustermaster/serve/acl"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

// flooding makes the process that plays another user flood the socket.
const flooding = "CLUSTERMASTER_OPERATOR_FLOOD"

// flooded is what a flood met.
type flooded struct {
	Refused map[string]int // errors of requests
	Command string         // error of a command of the same user
	After   string         // the same, after the flood
	Small   int            // frames of one byte that the master read on one connection
	Long    string         // error of a request of 2 MiB
	Heavy   string         // error of a request whose values take more memory than bytes
	Full    string         // error of one of almost 1 MiB
}

// flood sends requests without their end on all connections of one user, and what else fills a
// master's memory. It prints one line when the requests have been sent and one at the end.
func flood(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := flooded{Refused: map[string]int{}}
	var mu sync.Mutex // guards out
	var sent, ended sync.WaitGroup
	r := &operatorpb.PublishRequest{Ret: strings.Repeat("x", 1_000_000)}
	for range maxOfOneUser - 1 { // one is left for the command
		conn, err := grpc.NewClient("unix:"+filepath.Join(dir, SocketName),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		for range maxUserStreams {
			sent.Add(1)
			ended.Go(func() {
				s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
					operatorpb.Operator_Publish_FullMethodName)
				if err == nil {
					err = s.SendMsg(r) // io.EOF if it was refused
				}
				sent.Done()
				if err == nil || err == io.EOF {
					err = s.RecvMsg(new(operatorpb.PublishReply))
				}
				mu.Lock()
				defer mu.Unlock()
				if status.Code(err) == codes.ResourceExhausted {
					out.Refused[status.Convert(err).Message()]++
				}
			})
		}
	}
	sent.Wait()
	_, err := Dial(ctx, dir)
	out.Command = fmt.Sprint(err)
	mu.Lock()
	_ = json.NewEncoder(os.Stdout).Encode(out)
	mu.Unlock()
	ended.Wait()
	c, err := Dial(ctx, dir)
	if out.After = fmt.Sprint(err); err == nil {
		defer c.Close()
		publish := func(arg ...any) string {
			_, err := c.Publish(ctx, gather.Publish{Tgt: "*", Fun: "test.ping", Arg: arg})
			return fmt.Sprint(err)
		}
		out.Long, out.Full = publish(r.Ret+r.Ret), publish(r.Ret)
		out.Heavy = publish(make([]any, 300_000)...)
	}
	out.Small = small(dir)
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

// small sends one request in frames of one byte until the connection is closed, and returns how
// many frames that took.
func small(dir string) int {
	conn, err := net.Dial("unix", filepath.Join(dir, SocketName))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	frame := func(kind, flags, stream byte, b ...byte) []byte {
		return append([]byte{0, byte(len(b) >> 8), byte(len(b)), kind, flags, 0, 0, 0, stream}, b...)
	}
	var head []byte // HPACK: fields by name and value
	for _, f := range []string{":method", "POST", ":scheme", "http", ":authority", "x", ":path",
		operatorpb.Operator_Publish_FullMethodName, "content-type", "application/grpc", "te",
		"trailers"} {
		head = append(append(head, byte(len(f))), f...)
	}
	var fields []byte
	for b := head; len(b) > 0; {
		n := 1 + int(b[0])
		n += 1 + int(b[n])
		fields, b = append(append(fields, 0), b[:n]...), b[n:]
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	_, _ = conn.Write(append([]byte(preface), frame(4, 0, 0)...)) // SETTINGS
	_, _ = conn.Write(frame(frameHeaders, 4, 1, fields...))       // END_HEADERS
	_, _ = conn.Write(frame(frameData, 0, 1, 0, 0, 0x0f, 0xff, 0xff))
	for n := 0; ; n += 100 {
		if _, err := conn.Write(bytes.Repeat(frame(frameData, 0, 1, 'x'), 100)); err != nil ||
			n > maxUserRequest {
			return n
		}
	}
}

// TestFloodOfOneUser: requests that another user begins and does not end take bounded memory, are
// refused with one error beyond the bound, and end by themselves. Root's commands go on.
func TestFloodOfOneUser(t *testing.T) {
	u, program := other(t)
	rules, err := acl.New(acl.Options{
		PublisherACL: value.Map{{Key: u.Username, Value: []any{".*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := openFolder(t)
	d, root, _ := startWith(t, rules, dir, nil)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, grown := heap(), int64(0)
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				grown = max(grown, heap()-before)
			case <-over:
				return
			}
		}
	})
	cmd := command(t, u, program, dir, flooding+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(bufio.NewReader(stdout))
	var got flooded
	if err := lines.Decode(&got); err != nil {
		t.Fatal(err)
	}
	const tooMany = "too many commands of this user at a time; wait for some to end"
	if got.Command != tooMany {
		t.Errorf("a command of the user during the flood: %s", got.Command)
	}
	for _, arg := range []any{strings.Repeat("x", 2<<20), make([]any, 300_000)} {
		if p, err := root.Publish(t.Context(), gather.Publish{Tgt: "*", Fun: "test.ping",
			Arg: []any{arg}}); err != nil || p.Error != "" {
			t.Errorf("root's command during the flood: %+v, %v", p, err)
		}
	}
	got = flooded{}
	err = lines.Decode(&got)
	close(over)
	watch.Wait()
	if err != nil {
		t.Fatal(err)
	}
	const most = 2*maxCalls*maxUserRequest + 32<<20 // requests, and what gRPC adds
	t.Logf("%v refused; the heap grew by %d MiB", got.Refused, grown>>20)
	if grown > most {
		t.Errorf("the heap grew by %d bytes, at most %d", grown, int64(most))
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(got.Refused) != 1 || got.Refused[tooMany] == 0 {
		t.Errorf("refusals: %v", got.Refused)
	}
	if got.After != "<nil>" || got.Full != "<nil>" {
		t.Errorf("commands of the user after the flood: %s, %s", got.After, got.Full)
	}
	for what, c := range map[string][2]string{
		"2 MB":           {got.Long, "the request has 2000"},
		"300,000 values": {got.Heavy, "the request takes 5600"}} {
		if !strings.HasPrefix(c[0], c[1]) || !strings.HasSuffix(c[0], "; send less at a time") {
			t.Errorf("a request of %s: %s", what, c[0])
		}
	}
	m := d.server.m
	for why, want := range map[string]bool{whyCalls: true, whyLarge: true, whyFrames: true,
		whyConnections: false, whyLogins: false, whyRights: false} {
		if n := testutil.ToFloat64(m.refused.WithLabelValues(why)); n > 0 != want {
			t.Errorf("%v refused because of %s", n, why)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for testutil.ToFloat64(m.connections) != 1 { // root's; those of the ended process close by and by
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%v connections are counted", testutil.ToFloat64(m.connections))
		}
	}
	if got.Small > 100_000 { // those that fit into the buffers of the socket
		t.Errorf("the master read %d frames of one byte", got.Small)
	}
}

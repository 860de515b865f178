package operator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/salt/gather"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

// TestReturnsAreReadAsFastAsTheyAreTaken: a job of any size takes the memory of a few returns, and
// a caller that has enough ends it.
func TestReturnsAreReadAsFastAsTheyAreTaken(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	enough := errors.New("enough")
	got := 0
	err := c.ReadReturns(t.Context(), "endless", []string{"a"}, func(string, gather.Return) error {
		if got++; got == 300 { // more than one message could hold
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v, want the caller's error", err)
	}
	<-d.refused
	if sent := d.sent.Load(); sent > 310 {
		t.Errorf("%d returns were read for a caller that took %d", sent, got)
	}
}

func TestManyIDsAreAskedForInParts(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	ids := make([]string, maxIDs+2)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%d", i)
	}
	if err := c.ReadReturns(t.Context(), "j", ids,
		func(string, gather.Return) error { return nil }); err != nil ||
		!slices.Equal(d.read, []int{maxIDs, 2}) {
		t.Errorf("asked for %v ids, %v", d.read, err)
	}
	stream, err := c.rpc.ReadReturns(t.Context(),
		&operatorpb.ReadReturnsRequest{Jid: "j", Ids: ids})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%d ids at a time: %v", len(ids), err)
	}
	if err := c.ReadReturns(t.Context(), "unread", []string{"b"}, nil); err == nil ||
		err.Error() != errNoQuorum.Error() {
		t.Errorf("a read that ends in an error: %v", err)
	}
	if err := c.ReadReturns(t.Context(), "j", nil, nil); err != nil {
		t.Errorf("a read of nobody: %v", err)
	}
}

// TestLargeResultsTravelInParts: what a runner returns may be larger than a message.
func TestLargeResultsTravelInParts(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	for _, n := range []int{0, partBytes - 6, partBytes - 5, partBytes - 4, 2*partBytes + 1} {
		text := strings.Repeat("x", n)
		d.result = text
		res, err := c.Run(t.Context(), RunRequest{Fun: "jobs.lookup_jid"},
			func(kind string, _ any) { t.Errorf("%s was shown", kind) })
		if err != nil || !res.Success || res.JID != "j" || res.Return != text {
			t.Errorf("a result of %d bytes: %v", n, err)
		}
	}
	d.result = value.Map{{Key: "a", Value: int64(1)}}
	if res, err := c.Run(t.Context(), RunRequest{Fun: "test.arg"}, nil); err != nil ||
		!reflect.DeepEqual(res.Return, d.result) {
		t.Errorf("a small result: %v, %v", res, err)
	}
}

// TestLossIsTold: the notice that events were lost reaches the command.
func TestLossIsTold(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	sub, err := c.Subscribe(t.Context(), "salt/")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	d.events <- gather.Event{Lost: true}
	if e := <-sub.C(); !e.Lost || e.Tag != "" {
		t.Errorf("event %+v", e)
	}
}

package peer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/level"
	"clustermaster/transport/peer/peerpb"
)

// newer gives a message a field that nobody knows.
func newer[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 7777,
		protowire.VarintType), 1))
	return m
}

func TestRequestsWithUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	_, ms := newMasters(t, 2)
	conn, err := ms[0].Conn(ms[1].node)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other answers", func() bool { return ms[0].ping(ms[1].node) == nil })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const says = "field 7777 of grpc.health.v1.HealthCheckRequest"
	for range 20 {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, newer(&healthpb.HealthCheckRequest{}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Fatalf("a call: got %v, want InvalidArgument and %q", err, says)
		}
	}
	stream, err := healthpb.NewHealthClient(conn).Watch(ctx, newer(&healthpb.HealthCheckRequest{}))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
		t.Errorf("a stream: got %v, want InvalidArgument and %q", err, says)
	}
	if n := ms[1].count("clustermaster_peer_unknown_fields_total", "request"); n != 21 {
		t.Errorf("counted %v requests, want 21", n)
	}
	if n := strings.Count(ms[1].logs.String(), "request refused, nothing was changed"); n != 1 {
		t.Errorf("%d lines in the log, want 1 in 10 s", n)
	}
	if err := ms[0].ping(ms[1].node); err != nil {
		t.Errorf("a plain call after it: %v", err)
	}
}

func TestRPCsAboveTheClustersLevelAreNotCalled(t *testing.T) {
	t.Parallel()
	at := level.Base
	m := newPort(t, newMembers(), "m1/01", func(c *Config) { c.Level = func() int { return at } })
	defer m.Close()
	for _, e := range level.Table() {
		if e.Kind != level.RPC {
			continue
		}
		at = e.Since
		if err := m.mayCall(e.Name); err != nil {
			t.Errorf("%s at its level: %v", e.Name, err)
		}
		at = e.Since - 1
		if err := m.mayCall(e.Name); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s one level below its own: got %v", e.Name, err)
		}
	}
}

func TestJoinFramesWithUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	b, err := proto.Marshal(newer(&peerpb.JoinHello{Protocol: joinProtocol}))
	if err != nil {
		t.Fatal(err)
	}
	var unknown *level.UnknownFieldError
	if _, _, err := parseHello(b); !errors.As(err, &unknown) {
		t.Errorf("a hello: got %v", err)
	}
	if err := unmarshalKnown(b, &peerpb.JoinHello{}); !errors.As(err, &unknown) {
		t.Errorf("a frame: got %v", err)
	}
}

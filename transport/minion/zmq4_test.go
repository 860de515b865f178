package minion

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// The reasons in DESIGN.md why zmq4 v0.17 makes only the hand-shake here, and that only
// behind a guard. A release that no longer shows one of them fails its line.
func TestZmq4AloneIsNotEnough(t *testing.T) {
	open := func(after []byte) (c *zmq4.Conn, panicked any) {
		defer func() { panicked = recover() }()
		c, err := zmq4.Open(scripted{Reader: bytes.NewReader(append(greetingBytes(1), after...))},
			null.Security(), zmq4.Router, nil, true, nil)
		if err != nil {
			t.Logf("open: %v", err)
		}
		return c, nil
	}
	if _, p := open(readyFrame("FOO", "")); p == nil {
		t.Error("an unknown socket type no longer panics")
	}
	if _, p := open(appendCommand(nil, cmdReady,
		append([]byte{11}, "Socket-Type\x00"...)...)); p == nil {
		t.Error("truncated metadata no longer panics")
	}
	c, _ := open(append(readyFrame("SUB", ""), 0)) // ROUTER does refuse SUB
	if c != nil {
		t.Error("incompatible types are taken")
	}

	ping := appendCommand(nil, cmdPing, append([]byte{0, 0}, "ctx4"...)...)
	subscribe := appendCommand(nil, cmdSubscribe, 'a')
	c, p := open(bytes.Join([][]byte{readyFrame("REQ", ""), subscribe, ping, {flagLong},
		{0, 0, 0, 0, 8, 0, 0, 0}}, nil))
	if p != nil || c == nil {
		t.Fatalf("hand-shake: %v", p)
	}
	msg, err := c.RecvMsg()
	if err != nil || len(msg.Frames) != 1 || string(msg.Frames[0]) != "a" {
		t.Errorf("SUBSCRIBE is %q, %v: the command's name is no longer lost", msg.Frames, err)
	}
	var before, after runtime.MemStats
	// its PONG has no context: RecvMsg calls SendCmd(CmdPong, nil)
	if _, err := c.RecvMsg(); err != nil {
		t.Errorf("PING: %v", err)
	}
	runtime.ReadMemStats(&before)
	if _, err := c.RecvMsg(); err == nil {
		t.Error("a frame without a body is taken")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown < 128<<20 {
		t.Errorf("9 bytes cost %d bytes: the claim is no longer allocated unseen", grown)
	}
}

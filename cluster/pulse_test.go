package cluster

import "testing"

func TestPulse(t *testing.T) {
	t.Parallel()
	var p pulse
	p.beat() // nobody waits: nothing is kept for later
	one, other := p.next(), p.next()
	if closed(one) {
		t.Fatal("a beat before next counts")
	}
	p.beat()
	<-one
	<-other
	if closed(p.next()) {
		t.Error("a beat counts twice")
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports of a master. The balancer has the first two.
const (
	PublishPort = 4505
	RequestPort = 4506
	PeerPort    = 4520
	HealthPort  = 4521
	MetricsPort = 4522
)

// Base is a network of loopback addresses that no other program uses: masters are at .1, .2, ...,
// the balancer at .100.
type Base struct{ a, b int }

// Master is the address of master n, from 1.
func (b Base) Master(n int) string { return fmt.Sprintf("127.%d.%d.%d", b.a, b.b, n) }

// Balancer is the address of the balancer.
func (b Base) Balancer() string { return b.Master(100) }

// FreeBase picks a network at random and checks that it is free for that many masters. All its
// addresses have the same length, for tables and wrapped texts.
func FreeBase(t testing.TB, masters int) Base {
	t.Helper()
	for range 20 {
		b := Base{a: 100 + rand.IntN(150), b: 100 + rand.IntN(150)}
		if b.free(masters) {
			return b
		}
	}
	t.Fatal("no free loopback network in 20 tries")
	return Base{}
}

func (b Base) free(masters int) bool {
	addrs := []string{b.Balancer()}
	for n := range masters {
		addrs = append(addrs, b.Master(n+1))
	}
	for _, addr := range addrs {
		for _, port := range []int{PublishPort, RequestPort, PeerPort, HealthPort, MetricsPort} {
			ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
			if err != nil {
				return false
			}
			ln.Close()
		}
	}
	return true
}

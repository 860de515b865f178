package doctor

import (
	"net"
	"testing"

	"clustermaster/config"
	"clustermaster/serve/checkup"
)

// TestBalancerInBrackets knocks at an address as init --balancer takes it.
func TestBalancerInBrackets(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f})
			defer conn.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "[127.0.0.1]"} {
		for _, f := range knock(t.Context(), host, &config.Options{PublishPort: port, RetPort: port}) {
			if f.Level != checkup.Good {
				t.Errorf("%s: %+v", host, f)
			}
		}
	}
}

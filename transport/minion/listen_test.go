package minion

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A port opens again although a process has it still for a moment, as between fork and exec.
func TestListenAgain(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), ownAddress()+":0", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	held, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("cat")
	holder.ExtraFiles = []*os.File{held}
	in, err := holder.StdinPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	held.Close()
	ln.Close()
	if ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr); !errors.Is(err,
		syscall.EADDRINUSE) {
		if err == nil {
			ln.Close()
		}
		t.Errorf("the port is held: %v", err)
	}
	if _, err := Listen(t.Context(), addr, Limits{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that stays in use: %v", err)
	}
	in.Close() // the process ends soon
	again, err := Listen(t.Context(), addr, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

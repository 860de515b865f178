package daemon

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// profileEnv names a file prefix: with it a master writes PREFIX.cpu, .allocs, .block and .mutex
// when it ends, for "go tool pprof". It costs a few per cent while it runs. The master of
// `clustermaster bench --self --sizes 1` inherits it.
const profileEnv = "CLUSTERMASTER_PROFILE"

// Sampling of blocking and of waits for mutexes: one event per this many nanoseconds of blocking,
// and one of this many waits.
const (
	blockProfileRate     = 100_000
	mutexProfileFraction = 100
)

// startProfile starts the profiles that profileEnv asks for; stop writes the files. With an empty
// prefix both do nothing.
func startProfile(prefix string) (stop func() error, err error) {
	if prefix == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.OpenFile(prefix+".cpu", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	if err != nil {
		return nil, fmt.Errorf("start profile (%s): %w", profileEnv, err)
	}
	runtime.SetBlockProfileRate(blockProfileRate)
	runtime.SetMutexProfileFraction(mutexProfileFraction)
	return func() error {
		pprof.StopCPUProfile()
		err := cpu.Close()
		for _, name := range []string{"allocs", "block", "mutex"} {
			err = errors.Join(err, writeProfile(name, prefix+"."+name))
		}
		if err != nil {
			return fmt.Errorf("write profile (%s): %w", profileEnv, err)
		}
		return nil
	}, nil
}

func writeProfile(name, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}

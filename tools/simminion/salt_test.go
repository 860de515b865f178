package simminion

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// freePorts returns two ports that were free a moment ago, on an address of this process: on
// 127.0.0.1 somebody else may take them meanwhile.
func freePorts(t *testing.T) (host string, a, b int) {
	t.Helper()
	n := uint(os.Getpid())
	host = fmt.Sprintf("127.%d.%d.%d", 1+n>>14%200, 1+n>>7%128, 1+n%128)
	var ports []int
	for range 2 {
		ln, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return host, ports[0], ports[1]
}

// A master of each Salt release takes simulated minions for minions.
func TestUnderRealMaster(t *testing.T) {
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	for _, name := range []string{"salt-3006.28", "salt-3007.15", "salt-3008.3"} {
		bin := filepath.Join(venvs, name, "bin")
		program := filepath.Join(bin, "salt-master")
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "sim") // short: a unix socket path is at most 107 bytes
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			host, pub, ret := freePorts(t)
			config := fmt.Sprintf("root_dir: %s\ninterface: %s\npublish_port: %d\nret_port: %d\nauto_accept: true\n"+
				"worker_threads: 2\nkeysize: 2048\nlog_level: warning\nzmq_filtering: true\nenable_fqdns_grains: false\nid: real\n", dir, host, pub, ret)
			if err := os.WriteFile(filepath.Join(dir, "master"), []byte(config),
				0o600); err != nil {
				t.Fatal(err)
			}
			master := exec.Command(program, "-c", dir)
			master.Stdout, master.Stderr = testLog{t}, testLog{t}
			master.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := master.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				syscall.Kill(-master.Process.Pid, syscall.SIGTERM)
				ended := time.AfterFunc(10*time.Second,
					func() { syscall.Kill(-master.Process.Pid, syscall.SIGKILL) })
				defer ended.Stop()
				master.Wait()
			})

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			var fleet Fleet
			for i, release := range []string{"3006.28", "3007.15", "3008.3"} {
				cfg := Config{ID: fmt.Sprintf("sim%d", i+1), Key: testKeys()[i%2],
					Master: fmt.Sprintf("%s:%d", host, ret), Log: logTo(t),
					Release: release, AcceptanceWait: time.Second, CheckSignatures: true,
					Filtering: release == "3006.28"}
				if release == "3008.3" {
					cfg.EncAlgo, cfg.SigAlgo = "OAEP-SHA224", "PKCS1v15-SHA224"
				}
				m, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				fleet.Minions = append(fleet.Minions, m)
			}
			done := make(chan error, 1)
			go func() { done <- fleet.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			if err := fleet.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			for _, tt := range []struct {
				args []string
				want map[string]any
			}{
				{[]string{"sim*", "test.ping"},
					map[string]any{"sim1": true, "sim2": true, "sim3": true}},
				{[]string{"-L", "sim2,sim3", "test.echo", "hi"},
					map[string]any{"sim2": "hi", "sim3": "hi"}},
				{[]string{"-E", "sim[13]", "test.version"},
					map[string]any{"sim1": "3006.28", "sim3": "3008.3"}},
			} {
				var stdout bytes.Buffer
				cmd := exec.CommandContext(ctx, filepath.Join(bin, "salt"),
					append([]string{"-c", dir, "--out=json", "--static", "-t", "10"},
						tt.args...)...)
				cmd.Env = append(os.Environ(), "HOME="+dir) // no token of the user counts
				cmd.Stdout, cmd.Stderr = &stdout, testLog{t}
				err := cmd.Run()
				var got map[string]any
				if errJSON := json.Unmarshal(stdout.Bytes(), &got); err != nil || errJSON != nil ||
					!reflect.DeepEqual(got, tt.want) {
					t.Errorf("salt %q: %v, %v: %s", tt.args, err, errJSON, stdout.String())
				}
			}
			if c := fleet.Counts(); c.Undecoded != 0 || c.Lost != 0 ||
				fleet.Minions[0].Pillar() == nil {
				t.Errorf("%+v", c)
			}
		})
	}
}

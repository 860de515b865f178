package containers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"clustermaster/config"
	"clustermaster/lb"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// enter runs the entry point with what it would become replaced by a script that tells its
// arguments; try.sh runs it with the master.
func enter(t *testing.T, env ...string) (dir, out string, err error) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	write(t, filepath.Join(bin, "salt-master"), "#!/bin/sh\necho \"became $@\"\n", 0o755)
	cmd := exec.Command("./entrypoint.sh", "-l", "info")
	cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CONFIG_DIR=" + dir}, env...)
	b, err := cmd.CombinedOutput()
	return dir, string(b), err
}

func TestEntrypoint(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "it's a secret of more than thirty characters\n", 0o600)
	dir, out, err := enter(t, "MASTER_ID=m1", "CLUSTER_ID=c", "CLUSTER_ADVERTISE=10.0.0.1",
		"CLUSTER_PEERS=10.0.0.1, 10.0.0.2,m3.example", "CLUSTER_SECRET_FILE="+secret)
	if err != nil || out != "became -c "+dir+" -l info\n" {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(filepath.Join(dir, "master.d", "50-container.conf"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	write(t, filepath.Join(dir, "master"), "timeout: 7\n", 0o600)
	o, _, err := config.Load(dir, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if o.ID != "m1" || o.ClusterID != "c" || o.Interface != "0.0.0.0" || !o.ClusterIsolatedFilesystem ||
		o.ClusterSecret.Reveal() != "it's a secret of more than thirty characters" ||
		!slices.Equal(o.ClusterPeers, []string{"10.0.0.2", "m3.example"}) || o.Timeout != 7*time.Second {
		t.Errorf("%+v", o.ClusterPeers)
	}
	if a, err := o.ResolveAdvertise(); a != "10.0.0.1:4520" {
		t.Errorf("advertises %s, %v", a, err)
	}
	dir, out, err = enter(t, "MASTER_ID=m1")
	if err != nil || !strings.HasPrefix(out, "became") {
		t.Fatalf("alone: %v: %s", err, out)
	}
	write(t, filepath.Join(dir, "master"), "", 0o600)
	if o, _, err := config.Load(dir, func(string) string { return "" }); err != nil || o.ClusterID != "" {
		t.Errorf("alone: %v", err)
	}
}

func TestEntrypointRefuses(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "one\ntwo\n", 0o600)
	for want, env := range map[string][]string{
		"CLUSTER_ADVERTISE is not set": {"CLUSTER_ID=c"},
		"MASTER_ID is":                 {"MASTER_ID=a'\nuser: x"},
		"CLUSTER_PEERS is":             {"CLUSTER_ID=c", "CLUSTER_ADVERTISE=a", "CLUSTER_PEERS=a;b", "CLUSTER_SECRET_FILE=/etc/hostname"},
		"can't be read":                {"CLUSTER_ID=c", "CLUSTER_ADVERTISE=a", "CLUSTER_SECRET_FILE=/none"},
		"/etc can't be read":           {"CLUSTER_ID=c", "CLUSTER_ADVERTISE=a", "CLUSTER_SECRET_FILE=/etc"},
		"more than one line":           {"CLUSTER_ID=c", "CLUSTER_ADVERTISE=a", "CLUSTER_SECRET_FILE=" + secret},
	} {
		dir, out, err := enter(t, env...)
		if err == nil || !strings.Contains(out, want) || !strings.Contains(out, "was not started") {
			t.Errorf("%s: %v: %s", want, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "master.d", "50-container.conf")); err == nil {
			t.Errorf("%s: a configuration was written", want)
		}
	}
}

type compose struct {
	Services map[string]struct {
		Image       string
		Environment map[string]string
		Networks    any
		Volumes     []string
		Secrets     []string
	}
	Networks, Secrets, Volumes map[string]any
}

// TestCompose: the masters name each other by the addresses that they have, and HAProxy's file is
// the shipped one with these addresses.
func TestCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	var masters []lb.Server
	for _, name := range []string{"master1", "master2", "master3"} {
		s := c.Services[name]
		at := s.Networks.(map[string]any)["salt"].(map[string]any)["ipv4_address"].(string)
		masters = append(masters, lb.Server{Name: name, Addr: at})
		if s.Environment["CLUSTER_ADVERTISE"] != at {
			t.Errorf("%s has %s and advertises %s", name, at, s.Environment["CLUSTER_ADVERTISE"])
		}
	}
	var addrs []string
	for _, m := range masters {
		addrs = append(addrs, m.Addr)
	}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			if from, _, _ := strings.Cut(v, ":"); !strings.HasPrefix(from, ".") {
				if _, ok := c.Volumes[from]; !ok {
					t.Errorf("%s: no volume %s", name, from)
				}
			}
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret] == nil {
				t.Errorf("%s: no secret %s", name, secret)
			}
		}
		if peers := s.Environment["CLUSTER_PEERS"]; s.Image == "clustermaster" &&
			peers != strings.Join(addrs, ",") {
			t.Errorf("%s: peers %s", name, peers)
		}
	}
	want, err := lb.FillIn(lb.WithoutRoot(lb.HAProxy), "*", masters)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		write(t, "haproxy.cfg", want, 0o644)
	}
	if got, err := os.ReadFile("haproxy.cfg"); err != nil || string(got) != want {
		t.Errorf("haproxy.cfg is not lb/haproxy.cfg without root and with these addresses; UPDATE=1 writes it: %v", err)
	}
}

// set is what is checked of the StatefulSet.
type set struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		ClusterIP   string `yaml:"clusterIP"`
		ServiceName string `yaml:"serviceName"`
		Replicas    int
		Template    struct {
			Spec struct {
				Containers []struct {
					Env                                         []struct{ Name, Value string }
					StartupProbe, ReadinessProbe, LivenessProbe struct {
						Exec struct{ Command []string }
					}
					VolumeMounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
				}
				Volumes []struct{ Name string }
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

// documents reads kubernetes.yaml.
func documents(t *testing.T) []set {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// yaml.v3 wants names in lower case
	for _, name := range []string{"startupProbe", "readinessProbe", "livenessProbe", "mountPath"} {
		text = bytes.ReplaceAll(text, []byte(name+":"), []byte(strings.ToLower(name)+":"))
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var all []set
	for {
		var s set
		if err := dec.Decode(&s); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
}

// TestKubernetes: peers are the names that the pods get, volumes exist, and the probes say what the
// master's files say.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	all := documents(t)
	i := slices.IndexFunc(all, func(s set) bool { return s.Kind == "StatefulSet" })
	if i < 0 {
		t.Fatal("no StatefulSet")
	}
	s := all[i]
	if !slices.ContainsFunc(all, func(o set) bool {
		return o.Kind == "Service" && o.Metadata.Name == s.Spec.ServiceName && o.Spec.ClusterIP == "None"
	}) {
		t.Errorf("no headless service %s", s.Spec.ServiceName)
	}
	master := s.Spec.Template.Spec.Containers[0]
	var peers []string
	for n := range s.Spec.Replicas {
		peers = append(peers, fmt.Sprintf("%s-%d.%s.%s.svc", s.Metadata.Name, n, s.Spec.ServiceName,
			s.Metadata.Namespace))
	}
	env := map[string]string{}
	for _, e := range master.Env {
		env[e.Name] = e.Value
	}
	if env["CLUSTER_PEERS"] != strings.Join(peers, ",") || env["CLUSTER_ADVERTISE"] !=
		"$(MASTER_ID)."+s.Spec.ServiceName+"."+s.Metadata.Namespace+".svc" {
		t.Errorf("%v, want peers %v", env, peers)
	}
	var volumes []string
	for _, v := range s.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	volumes = append(volumes, s.Spec.VolumeClaimTemplates[0].Metadata.Name)
	for _, m := range master.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("no volume %s", m.Name)
		}
	}

	dir := t.TempDir()
	probe := func(command []string) bool {
		t.Helper()
		var args []string
		for _, word := range command {
			args = append(args, strings.ReplaceAll(word, "/var/cache/salt/master/health", dir))
		}
		if slices.Equal(args, command) {
			t.Fatalf("%v looks elsewhere", command)
		}
		return exec.Command(args[0], args[1:]...).Run() == nil
	}
	for file, command := range map[string][]string{"startup": master.StartupProbe.Exec.Command,
		"ready": master.ReadinessProbe.Exec.Command, "alive": master.LivenessProbe.Exec.Command} {
		path := filepath.Join(dir, file)
		if probe(command) {
			t.Errorf("%s: good without the file", file)
		}
		write(t, path, "", 0o600)
		if !probe(command) {
			t.Errorf("%s: bad with the file", file)
		}
		old := time.Now().Add(-time.Minute)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		if got := probe(command); got != (file != "alive") {
			t.Errorf("%s: %v with an old file", file, got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContainerfile: what it copies is in the repository or built, and its health check looks where
// the master writes.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "COPY" && !strings.Contains(f[2], "$") {
			if _, err := os.Stat(filepath.Join("..", "..", f[2])); err != nil {
				t.Error(err)
			}
		}
	}
	for _, want := range []string{"/var/cache/salt/master/health/ready", "USER 450:450", "4520"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestRuntime runs try.sh: the image, the compose file and the StatefulSet's pods under podman.
func TestRuntime(t *testing.T) {
	if os.Getenv("CLUSTERMASTER_LONG") == "" {
		t.Skip("takes minutes; run make test-long")
	}
	if os.Getuid() != 0 {
		t.Skip("only root makes containers in namespaces of their own")
	}
	out, err := exec.Command("./try.sh").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

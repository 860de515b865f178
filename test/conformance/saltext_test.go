package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// secretServers answers the parts of the HTTP APIs of Vault (tokens, mounts, KV version 2;
// https://developer.hashicorp.com/vault/api-docs) and Consul (KV) that the packages ask for, and a
// document of JSON for a minion. It returns their address and counts the secrets that it gave.
func secretServers(t *testing.T) (at *url.URL, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	reply := func(w http.ResponseWriter, v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	type m = map[string]any
	refused := func(w http.ResponseWriter, code int, errors ...string) {
		w.WriteHeader(code)
		reply(w, m{"errors": errors})
	}
	secrets := map[string]m{"web1": {"password": "fünf", "port": 5432, "on": true, "none": nil},
		"web2": {"list": []any{1, "1"}, "nested": m{"a": m{"b": 1.5}}}}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "t0ken" {
			refused(w, http.StatusForbidden, "permission denied")
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/v1/")
		name, isSecret := strings.CutPrefix(path, "secret/data/minions/")
		switch {
		case path == "auth/token/create":
			reply(w, m{"auth": m{"client_token": "t0ken", "accessor": "a", "policies": []string{"root"},
				"token_policies": []string{"root"}, "lease_duration": 3600, "renewable": true,
				"num_uses": 0, "orphan": false}})
		case path == "auth/token/lookup-self":
			reply(w, m{"data": m{"ttl": 0, "creation_ttl": 0, "creation_time": 1700000000, "num_uses": 0,
				"renewable": false, "policies": []string{"root"}, "id": "t0ken", "expire_time": nil,
				"meta": nil}})
		case strings.HasPrefix(path, "sys/internal/ui/mounts/secret"):
			reply(w, m{"data": m{"path": "secret/", "type": "kv", "options": m{"version": "2"},
				"uuid": "u", "accessor": "a"}})
		case isSecret && name == "forbidden":
			refused(w, http.StatusForbidden, "permission denied")
		case isSecret && secrets[name] != nil:
			asked.Add(1)
			reply(w, m{"data": m{"data": secrets[name], "metadata": m{"version": 1, "destroyed": false,
				"deletion_time": "", "created_time": "2026-01-01T00:00:00Z"}}})
		default:
			refused(w, http.StatusNotFound)
		}
	})
	type entry struct {
		Key, Value               string
		Flags                    int
		CreateIndex, ModifyIndex int
	}
	var entries []entry
	for _, e := range [][2]string{{"salt/web1/db/port", "5432"}, {"salt/web1/name", "wëb"},
		{"salt/web1/list", "[1, '1', true]"}, {"salt/web1/odd", "a: b"}, {"salt/all/x", "y"}} {
		entries = append(entries, entry{Key: e[0],
			Value: base64.StdEncoding.EncodeToString([]byte(e[1]))})
	}
	mux.HandleFunc("/v1/kv/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Index", "1")
		path, found := strings.TrimPrefix(r.URL.Path, "/v1/kv/"), []entry{}
		_, all := r.URL.Query()["recurse"]
		for _, e := range entries {
			if e.Key == path || all && strings.HasPrefix(e.Key, path) {
				found = append(found, e)
			}
		}
		if len(found) == 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		reply(w, found)
	})
	mux.HandleFunc("/json/web1", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, m{"role": "wéb", "ports": []int{80, 443}, "deep": m{"from": m{"json": 1.5}}})
	})
	mux.HandleFunc("/json/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("{broken"))
	})
	var err error
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if at, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	return at, asked
}

// saltextOptions are those of a master with the packages. URL and PORT are those of secretServers.
const saltextOptions = `auto_accept: True
peer_run: {'.*': ['vault.*']}
vault:
  auth: {method: token, token: t0ken}
  server: {url: 'URL'}
  cache: {backend: session}
  issue: {type: token, wrap: false}
kv: {consul.host: 127.0.0.1, consul.port: PORT}
safe: {driver: vault}
keys: {driver: consul, host: 127.0.0.1, port: PORT}
gone: {driver: consul, host: 127.0.0.1, port: 1}
ext_pillar:
  - http_json: {url: 'URL/json/%s'}
  - vault: secret/minions/{minion}
  - vault: {path: secret/minions/web2, nesting_key: vaulted}
  - consul: kv root=salt/%(minion_id)s pillar_root=from/consul
  - consul: kv root=salt/all
`

// saltextPillar are the files of the pillar.
var saltextPillar = map[string]string{
	"top.sls": "base: {'web*': [app], refused: [refused], away: [away]}\n",
	"app.sls": `
read: {{ salt['vault.read_secret']('secret/minions/web2', 'list') | json }}
missing: {{ salt['vault.read_secret']('secret/minions/nosuch', default='none') }}
key: {{ salt['consul.get'](consul_url='URL', key='salt/all/x')['res'] }}
sdb: {{ salt['sdb.get']('sdb://safe/secret/minions/web1/password') }}
kv: {{ salt['sdb.get']('sdb://keys/salt/all/x') | length }}
`,
	"refused.sls": "x: {{ salt['sdb.get']('sdb://safe/secret/minions/forbidden/password') }}\n",
	"away.sls":    "x: {{ salt['sdb.get']('sdb://gone/x') }}\n",
}

// seconds are times in seconds.
var seconds = regexp.MustCompile(`\b1[0-9]{9}\b`)

// TestSaltext makes pillars with saltext.vault, saltext.consul and Salt's http_json (3008 has none)
// on masters of Salt and on ours, and compares them: with all there is, with little for the minion,
// and where the servers refuse, give no JSON or don't answer. The minion also asks for a token by
// itself. The servers are stand-ins.
func TestSaltext(t *testing.T) {
	t.Parallel()
	packages := filepath.Join(e2e.Venvs(t), "saltext")
	if _, err := os.Stat(filepath.Join(packages, "saltext")); err != nil {
		t.Skip("needs saltext packages in CLUSTERMASTER_SALT_VENVS; run make test")
	}
	for _, release := range []string{"3006.28", "3007.15", reference} {
		t.Run(release, func(t *testing.T) {
			if release != reference && !long() {
				t.Skip("takes minutes; run make test-long")
			}
			at, asked := secretServers(t)
			fill := strings.NewReplacer("URL", at.String(), "PORT", at.Port())
			bin := t.TempDir()
			for _, name := range []string{"salt-master", "salt-run", "salt", "salt-key", "python3"} {
				text := "#!/bin/sh\nPYTHONPATH='" + packages + "' exec '" +
					filepath.Join(e2e.Venvs(t), "salt-"+release, "bin", name) + "' \"$@\"\n"
				if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			place := func(m *subject, options string) {
				m.Configure(t, m.Config(t)+fill.Replace(saltextOptions)+options)
				for name, text := range saltextPillar {
					m.write(t, fill.Replace(text), "pillar", name)
				}
			}
			one := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true,
				Programs: e2e.Programs{Master: filepath.Join(bin, "salt-master"),
					Salt: filepath.Join(bin, "salt"), Key: filepath.Join(bin, "salt-key"),
					Run: filepath.Join(bin, "salt-run")}})
			salts := &subject{Master: one.Masters[0], kind: theirs, cfg: "saltext", base: one.Base}
			place(salts, "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\n")
			salts.start(t)
			three := e2e.NewCluster(t, e2e.ClusterOptions{})
			var own *subject // at the end a master that joined
			for _, master := range three.Masters {
				own = &subject{Master: master, kind: ours, cfg: "saltext", base: three.Base}
				place(own, "python_host: "+filepath.Join(bin, "python3")+"\n")
			}
			three.StartMasters(t)
			for _, id := range []string{"web1", "web2", "forbidden", "broken", "refused", "away"} {
				grains := value.Pair{Key: "grains", Value: value.Map{{Key: "id", Value: id},
					{Key: "os", Value: "Debian"}, {Key: "kernel", Value: "Linux"}}}
				pillar := func(m *subject) string {
					p, err := m.signIn(t, id, 3).pillar(t, grains)
					if err != nil {
						return err.Error()
					}
					return fmt.Sprint(p)
				}
				want := pillar(salts)
				before := asked.Load()
				got := pillar(own)
				// Salt's own master gives up early on its servers where the machine is busy.
				for range 2 {
					if got != want {
						want = pillar(salts)
					}
				}
				if got != want {
					t.Errorf("%s of %s\n--- Salt: %s\n--- ours: %s", id, release, want, got)
				}
				asks := func(m *subject, signer string) string {
					c := m.signIn(t, id, 3)
					sig, err := c.Key.Sign(wire.SigSHA1, []byte(signer))
					if err != nil {
						t.Fatal(err)
					}
					named := func(name string, v any) value.Map { return dict("__kwarg__", true, name, v) }
					said := strings.TrimSpace(fmt.Sprint(c.request(t, "minion_runner",
						pair("fun", "vault.generate_token"), pair("tmo", int64(30)),
						pair("arg", []any{named("minion_id", id),
							named("signature", base64.StdEncoding.EncodeToString(sig)),
							named("impersonated_by_master", false)}))))
					said = said[strings.LastIndexByte(said, '\n')+1:] // of a traceback
					return seconds.ReplaceAllString(said, "TIME")
				}
				for _, signer := range []string{id, "another"} { // what it signed
					want, got := asks(salts, signer), asks(own, signer)
					if got != want || strings.Contains(want, "t0ken") != (signer == id) {
						t.Errorf("%s of %s with a signature of %s\n--- Salt: %s\n--- ours: %s", id, release,
							signer, want, got)
					}
				}
				if id == "web1" && (!strings.Contains(want, "fünf") || asked.Load() == before) {
					t.Errorf("Salt's pillar lacks a secret, or ours did not ask for it: %s", want)
				}
			}
		})
	}
}

package commands

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// offering makes a step that offers new keys of these ids to both masters.
func offering(ids ...string) func(t *testing.T, p *pair) {
	return func(t *testing.T, p *pair) { p.offer(t, 0, ids...) }
}

var fingerprint = regexp.MustCompile(`[0-9a-f]{2}(:[0-9a-f]{2}){31}`)

// bodies checks a list of fingerprints: as Salt's, except for the digits, which are those of the
// keys' bodies.
func bodies(theirs, ours result) error {
	hide := func(s string) string { return fingerprint.ReplaceAllString(s, "PRINT") }
	switch {
	case hide(theirs.stdout) != hide(ours.stdout) || theirs.stderr != ours.stderr ||
		theirs.code != ours.code:
		return errors.New("more differs than the fingerprints")
	case slices.Equal(fingerprint.FindAllString(theirs.stdout, -1),
		fingerprint.FindAllString(ours.stdout, -1)):
		return errors.New("the fingerprints are those of the whole text")
	}
	return nil
}

func keyScenes() []scene {
	var lists []line
	for _, word := range []string{"pre", "un", "unaccepted", "acc", "accepted", "den", "denied",
		"rej", "rejected", "all", "bogus", ""} {
		lists = append(lists, key("-l", word))
	}
	lists = append(lists, key("-L"), key(), key("--list-all"), key("stray"),
		key("-L", "-a", "new-1"), key("-q", "-L"), key("-L", "--out=json"), key("-L", "--out=yaml"),
		key("-L", "--out=nested"),
		key("-L", "--out=txt"), key("-L", "--out=raw"), key("-L", "--out=pprint"), key("-L",
			"--force-color"), key("-l", "un", "--out=json"),
		key("-l", "acc", "--out=yaml", "--no-color"))
	return []scene{
		{name: "33_key_lists", lines: lists, alone: true, before: func(t *testing.T, p *pair) {
			p.offer(t, 0, "new-1", "new-2", "new-3", "rej-1", "rej-2", "den-1")
			p.both(func(s *side) {
				s.must(t, "salt-key", "-r", "rej-*", "-y")
				s.must(t, "salt-key", "-a", "den-1", "-y")
			})
			p.offer(t, 1, "den-1")
		}},
		{name: "35_keys_no_match", alone: true, lines: []line{
			key("-a", "nosuch"), key("-a", "nosuch", "--include-rejected"),
			key("-a", "nosuch", "--include-denied"), key("-a", "nosuch", "--include-all"),
			key("-a", "nosuch", "--include-all", "--include-denied"),
			key("-r", "nosuch"), key("-r", "nosuch", "--include-accepted"),
			key("-r", "nosuch", "--include-all"), key("-r", "nosuch", "--include-denied"),
			key("-d", "nosuch"), key("-d", "nosuch", "--include-all"),
			key("-d", "nosuch", "--include-denied"), key("-f", "nosuch"), key("-p", "nosuch"),
			key("-a", "web-a"), key("-r", "web-a"), key("-a", "nosuch", "--out=json"),
		}},
		{name: "36_fingerprints", alone: true, lines: []line{
			key("-f", "new-1").unlike("Fingerprints", bodies),
			key("-f", "new-1,new-2").unlike("Fingerprints", bodies),
			key("-f", "new-*", "--out=json").unlike("Fingerprints", bodies),
			key("-f", "*", "--out=yaml").mask(fingerprint.String(), "PRINT").unlike("Fingerprints",
				begins("local:\n  master1.pub: PRINT\n", "", 0)),
			key("-F", "--out=json").mask(fingerprint.String(), "PRINT").unlike("Fingerprints",
				begins("{\n    \"minions_pre\": {\n        \"new-1\": \"PRINT\"", "", 0)),
			key("-p", "new-1"), key("-p", "new-*", "--out=json"), key("-p", "den-1"),
			key("-p", "rej-1", "--out=yaml"),
		}, do: func(t *testing.T, p *pair) {
			ours := p.ours.must(t, "salt-key", "-f", "web-a").stdout
			minion := p.ours.must(t, "salt", "web-a", "key.finger", "--out=txt").stdout
			if a, b := fingerprint.FindString(ours), fingerprint.FindString(minion); a == "" ||
				a != b {
				t.Errorf("salt-key -f shows %q, the minion %q", a, b)
			}
		}},
		{name: "34_prompts", alone: true, lines: []line{
			key("-a", "new-1").in("n\n"), key("-a", "new-1").in("no\n"),
			key("-a", "new-1").in("x\n"), key("-r", "new-1").in("n\n"), key("-d", "new-1").in("\n"),
			key("-d", "new-1").in("n\n"), key("-L"),
			key("-a", "new-1").in("\n"), key("-L"), key("-r", "new-2").in("Y\n"), key("-L"),
			key("-d", "new-1").in("yes\n"), key("-L"), key("-a", "new-3").in("y\n"),
			key("-d", "new-3").in("y\n"), key("-L"),
		}},
		{name: "34_prompt_without_answer", alone: true, before: offering("eof-1"), lines: []line{
			key("-a", "eof-1").unlike("Prompts at the end of the input",
				prints("The following keys are going to be accepted:\nUnaccepted Keys:\neof-1\nProceed? [n/Y]", "", 0)),
		}},
		{name: "37_globs_and_lists", alone: true,
			before: offering("g-1", "g-2", "g-3", "h-1", "h-2"), lines: []line{
				key("-a", "g-[12]", "-y"), key("-L"), key("-a", "g-3,h-1", "-y", "--out=json"),
				key("-r", "h-2", "-y"), key("-a", "h-2", "-y"),
				key("-a", "h-2", "-y", "--include-rejected"),
				key("-r", "h-2", "-y", "--include-accepted"),
				key("-r", "g-1", "-y", "--include-all"),
				key("-a", "g-1", "-y", "--include-all"), key("-L"),
				key("-d", "g-*", "-y"), key("-d", "h-?,x", "-y", "--preserve-minions", "True"),
				key("-L"),
				key("-d", "web-a", "--preserve-minions"), key("--rotate-aes-key"),
			}},
		{name: "37_denied", alone: true, lines: []line{
			key("-a", "den-*", "-y"), key("-r", "den-*", "-y"), key("-L"),
			key("-r", "den-1", "-y", "--include-denied"), key("-L"),
			key("-a", "den-1", "-y", "--include-rejected"), key("-L"),
		}},
		{name: "33_accept_all", alone: true, before: offering("all-1", "all-2"), lines: []line{
			key("-A", "-y"), key("-L"), key("-d", "all-*", "-y"), key("-L"), key("-A", "-y"),
		}},
		{name: "33_reject_all", alone: true, before: offering("all-3", "all-4"), lines: []line{
			key("-R", "-y"), key("-L"), key("-d", "all-*,rej-*,new-*,den-*,eof-*", "-y"), key("-L"),
			key("-R", "-y"),
		}},
		{name: "38_gen_signature", alone: true, lines: []line{
			key("--gen-signature").unlike("Signatures without a key",
				prints("", "ERROR: signing key DIR/pki/master_sign.pem does not exist; "+
					"--auto-create makes one; no signature was written\n", 1)),
			key("--gen-signature", "--auto-create"), key("--gen-signature"),
			key("--gen-signature", "--signature-path", "DIR/run", "--out=json"),
		}, do: func(t *testing.T, p *pair) {
			for _, s := range p.sides() {
				for _, dir := range []string{"pki", "run"} {
					path := filepath.Join(s.Dir, dir, "master1_pubkey_signature")
					if _, err := os.Stat(path); err != nil {
						t.Errorf("%s: %v", s.kind, err)
					}
				}
			}
		}},
		{name: "38_key_events", alone: true, do: func(t *testing.T, p *pair) {
			k := keyNumber(t, 0)
			p.watch(t, run("state.event", "salt/key", "count=3").blocks(`^salt/`), func(s *side) {
				if err := s.offer("ev-1", k); err != nil {
					t.Error(err)
				}
				s.must(t, "salt-key", "-r", "ev-1", "-y")
				s.must(t, "salt-key", "-a", "ev-1", "-y", "--include-rejected")
				s.must(t, "salt-key", "-d", "ev-1", "-y")
			})
		}},
		// A key copied into the folder of accepted keys is known to the next command, as with
		// Salt, which reads the folder.
		{name: "39_copied_keys", alone: true, do: func(t *testing.T, p *pair) {
			text := keyNumber(t, 0).Public().Text()
			for _, asked := range []struct {
				command, id string
				args        []string
			}{
				{"salt-key", "copied-1", []string{"-p", "copied-1"}},
				{"salt-key", "copied-2", []string{"-l", "acc"}},
				{"salt-key", "copied-3", []string{"-d", "copied-3", "-y"}},
				{"salt", "copied-4", []string{"copied-4", "test.ping", "-v", "-t1"}},
				{"salt-run", "copied-5", []string{"manage.down", "tgt=copied-5", "timeout=1"}},
			} {
				p.both(func(s *side) {
					file := filepath.Join(s.Dir, "pki", "minions", asked.id)
					if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
						t.Error(err)
						return
					}
					out := s.call(t, asked.command, call{args: asked.args}).stdout
					if !strings.Contains(out, asked.id) {
						t.Errorf("%s: %s %v right after the copy: %q", s.kind, asked.command, asked.args, out)
					}
				})
			}
			p.both(func(s *side) { s.must(t, "salt-key", "-d", "copied-*", "-y") })
		}},
		{name: "usage_of_keys", masterless: true, lines: []line{
			key("--foo"), key("-a"), key("--keysize", "5", "--gen-keys", "x"),
			key("--keysize", "x"), key("-v"), key("--hash-type", "md5"),
			key("-h").mask(`(?s)\nOptions:.*`, "\n").unlike("Help",
				begins("Usage: salt-key [options]\n", "", 0)),
			key("--version").unlike("Versions",
				begins("salt-key "+reference+" (clustermaster ", "", 0)),
		}},
	}
}

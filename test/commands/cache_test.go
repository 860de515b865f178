package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// anyKeys is for lists that Salt prints in the order of the disk.
func (l line) anyKeys() line { return l.blocks(`^- `) }

// saltFiles makes DIR/old, a cachedir as Salt leaves it, from packed values.
func saltFiles(t *testing.T, p *pair) {
	t.Helper()
	p.both(func(s *side) {
		for name, packed := range map[string]string{
			"moved/a/one.p": "\x01", "moved/a/two.p": "\xa3two",
			"moved/b/three.p": "\x81\xa1k\x93\x01\x02\x03", "moved/none.p": "\x80",
			"other/four.p": "\xc3", "other/note.txt": "no value",
		} {
			path := filepath.Join(s.Dir, "old", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(packed), 0o644)); err != nil {
				t.Error(err)
			}
		}
	})
}

// oneLine checks that ours prints in one line what Salt prints with a traceback, and that both end
// with the same code.
func oneLine(text string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		if ours.code != theirs.code || ours.stdout != text || ours.stderr != "" {
			return errors.New("want Salt's exit code and " + text)
		}
		return nil
	}
}

func cacheScenes() []scene {
	return []scene{
		{name: "46_cache_banks", lines: []line{
			run("cache.store", "mycache", "mykey", "The time has come"),
			run("cache.fetch", "mycache", "mykey"), run("cache.list", "mycache"),
			run("cache.store", "mycache", "mykey", "{a: [1, 2.5, null, true], b: {c: 'd'}}"),
			run("cache.fetch", "mycache", "mykey"),
			run("cache.fetch", "mycache", "mykey", "--out=json"),
			run("cache.store", "mycache", "7", "[]", "--out=json"),
			run("cache.fetch", "mycache", "7", "--out=json"),
			run("cache.fetch", "bank=mycache", "key=mykey", "--out=yaml"),
			run("cache.store", "mycache/deep/er", "x", "1"),
			run("cache.store", "mycache", "deep/er/y", "2"), run("cache.list", "mycache").anyKeys(),
			run("cache.list", "mycache/deep"), run("cache.list", "mycache/deep/er").anyKeys(),
			run("cache.fetch", "mycache", "deep/er/x"),
			run("cache.fetch", "/mycache//deep/../deep/er/", "y"),
			run("cache.fetch", "mycache/mykey", "b"),
			run("cache.fetch", "mycache/mykey", "nosuch").unlike("Python's tracebacks",
				oneLine("Exception occurred in runner cache.fetch: fetch: \"mycache/mykey\" is a key, not a "+
					"bank, and its value has no \"nosuch\"\n")),
			run("cache.store", "mycache", "deep", "both a key and a bank"),
			run("cache.list", "mycache").anyKeys(),
			run("cache.fetch", "mycache", "nosuch"),
			run("cache.fetch", "nosuch", "nosuch", "--out=json"), run("cache.list", "nosuch"),
			run("cache.list", "nosuch", "--out=json"),
			run("cache.store", "mycache", "forced", "false"),
			run("cache.fetch", "mycache", "forced"), run("cache.store", "mycache", "empty", "''"),
			run("cache.fetch", "mycache", "empty"),
			run("cache.flush", "mycache", "nosuch"), run("cache.flush", "mycache", "deep"),
			run("cache.fetch", "mycache", "deep"), run("cache.list", "mycache/deep/er").anyKeys(),
			run("cache.flush", "nosuch"), run("cache.flush", "mycache/deep"),
			run("cache.list", "mycache").anyKeys(), run("cache.flush", "mycache"),
			run("cache.flush", "mycache"), run("cache.list", "mycache"),
			run("cache.store", "mycache").unlike("Texts of the runner functions",
				ownText("\nPassed invalid arguments: store() missing 2 required positional arguments: 'key' and 'data'\n\nUsage:\n\n")),
			run("cache.flush").unlike("Texts of the runner functions",
				ownText("\nPassed invalid arguments: flush() missing 1 required positional argument: 'bank'\n\nUsage:\n\n")),
			run("cache.store", "../outside", "k", "1").unlike("Banks of the cache",
				prints("Exception occurred in runner cache.store: store: bank \"../outside\": a bank is a path below the cache, without .. that leads out of it\n", "", 1)),
			run("cache.store", "b", "k", "1", "cachedir=DIR/elsewhere").unlike("Banks of the cache",
				begins("Exception occurred in runner cache.store: the cache is on all masters, not in DIR/elsewhere; ",
					"", 1)),
			run("cache.fetch", "hollow/x", "k"), run("cache.store", "hollow/x", "k", "1"),
			run("cache.flush", "hollow/x", "k"),
			run("cache.list", "hollow").unlike("Banks of the cache", prints("", "", 0)),
		}},
		{name: "46_cache_of_minions", lines: []line{
			run("cache.list", "grains").anyKeys(),
			run("cache.fetch", "grains", "web-a",
				"--out=json").mask(`(?s)\{.*"e2e": ("?[0-9.]+"?).*\}`, "$1"),
			run("cache.fetch", "grains", "nosuch"),
			run("cache.fetch", "grains/web-a", "id"),
			run("cache.store", "grains", "other", "{os: Plan9}"),
			run("cache.fetch", "grains", "other"), run("cache.flush", "grains", "other"),
			run("cache.fetch", "grains", "other"),
			run("cache.list", "mine"), run("cache.clear_git_lock", "gitfs"),
			run("cache.cloud", "*"),
			run("cache.clear_git_lock", "nosuch").unlike("Texts of the runner functions",
				ownText("\nPassed invalid arguments: Invalid role 'nosuch'\n\nUsage:\n\n")),
		}},
		{name: "46_cache_migrate", before: saltFiles, lines: []line{
			run("cache.migrate", "dry_run=True", "cachedir=DIR/old", "dst_driver=mmap_cache"),
			run("cache.migrate", "cachedir=DIR/old", "bank=moved/b", "dst_driver=mmap_cache"),
			run("cache.migrate", "cachedir=DIR/old", "bank=nosuch", "dst_driver=mmap_cache"),
			run("cache.migrate", "cachedir=DIR/old", "dst_driver=mmap_cache"),
			run("cache.migrate", "cachedir=DIR/old", "dry_run=True").unlike("Banks of the cache",
				prints(
					"Would migrate 5 entries from 'localfs' → 'ring'\n  cachedir: DIR/old\n  Banks:\n    moved: 1\n    moved/a: 2\n    moved/b: 1\n    other: 1\n  (dry-run — no data written)\n", "", 0)),
			run("cache.migrate", "src_driver=redis").unlike("Banks of the cache",
				prints("Exception occurred in runner cache.migrate: src_driver 'redis' is not built in; only "+
					"files of localfs can be imported\n", "", 1)),
		}, do: func(t *testing.T, p *pair) {
			for args, want := range map[string]string{"fetch moved/a two": "two\n",
				"fetch moved/b three": "k:\n    - 1\n    - 2\n    - 3\n",
				"list moved":          "- a\n- b\n", "fetch other four": "True\n"} {
				if r := p.ours.must(t, "salt-run",
					append([]string{"cache." + strings.Fields(args)[0]},
						strings.Fields(args)[1:]...)...); r.stdout != want {
					t.Errorf("%s: %v", args, r)
				}
			}
		}},
	}
}

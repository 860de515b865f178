package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rootOptions replace the kit's options about roots.
const rootOptions = `file_roots:
  base: [DIR/srv, DIR/srv2]
  dev: [DIR/dev]
pillar_roots:
  base: [DIR/pillar]
  dev: [DIR/devpillar]
`

// rootFiles are what both masters serve.
var rootFiles = map[string]string{
	"srv/top.sls": "base: {}\n", "srv/sub/a.txt": "a\n", "srv/sub/deep/b c.txt": "b\n",
	"srv/.dot": "", "srv2/second.txt": "2\n", "srv2/sub/more.txt": "m\n", "dev/only.txt": "d\n",
	"dev/sls/init.sls":  "x: y\n",
	"pillar/top.sls":    "base:\n  'web-a': [a]\n  '*': [all]\n",
	"pillar/a.sls":      "who: {{ grains.get('kernel', 'nobody') }}\nfor: web-a\n",
	"pillar/all.sls":    "list: [1, two, {three: 3}]\ntext: ünï\n",
	"devpillar/top.sls": "dev:\n  '*': [dev]\n",
	"devpillar/dev.sls": "env: {{ saltenv }}\nlist: [dev]\n",
}

func writeRoots(t testing.TB, dir string) {
	t.Helper()
	for name, text := range rootFiles {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"srv/none", "srv/sub/none"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"srv/link": "sub/a.txt", "srv/folder.lnk": "sub"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// backEnds checks that ours refuses a back end by name. Salt logs a line and answers as if it had
// no files.
func backEnds(name string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		if theirs.code != 0 || !strings.Contains(theirs.stderr, name) || ours.code != 1 ||
			!strings.HasSuffix(ours.stdout, ": the file server back end "+name+
				" is not enabled; only roots is\n") {
			return errors.New("want a refusal that names it")
		}
		return nil
	}
}

func familyScenes() []scene {
	files := []line{
		run("fileserver.envs", "sources=True"), run("fileserver.envs", "backend=roots"),
		run("fileserver.update"), run("fileserver.update", "backend=roots"),
		run("fileserver.clear_lock"), run("fileserver.lock", "backend=roots"),
		run("fileserver.clear_file_list_cache", "nosuch"),
		run("fileserver.file_list", "nosuch=1").unlike("Texts of the runner functions",
			ownText("fileserver.file_list:\n\n        List the files")),
		run("fileserver.file_list", "backend=git").unlike("Back ends of the file server",
			backEnds("git")), run("fileserver.envs",
			"backend=nosuch").unlike("Back ends of the file server", backEnds("nosuch")),
	}
	for _, name := range []string{"file_list", "dir_list", "empty_dir_list", "symlink_list"} {
		for _, args := range [][]string{{"--out=json"}, {"dev", "roots"}, {"saltenv=nosuch"}} {
			files = append(files, run(append([]string{"fileserver." + name},
				args...)...).blocks(`^ *["-]`).mask(`",\n`, "\"\n"))
		}
	}
	return []scene{
		{name: "46_no_reactor", lines: []line{
			run("reactor.list").unlike("Python's tracebacks",
				prints("Exception occurred in runner reactor.list: Reactor system is not running.\n", "", 1)),
			run("reactor.add", "a", "b").unlike("Python's tracebacks",
				prints("Exception occurred in runner reactor.add: Reactor system is not running.\n",
					"", 1)),
			run("reactor.is_leader", "--out=json").unlike("Python's tracebacks",
				prints("\"Exception occurred in runner reactor.is_leader: Reactor system is not running.\"\n", "", 1)),
			run("reactor.set_leader", "False").unlike("Python's tracebacks",
				prints("Exception occurred in runner reactor.set_leader: Reactor system is not running.\n", "", 1)),
		}},
		{name: "48_fileserver", lines: files},
		{name: "48_fileserver_caches", alone: true, lines: []line{
			run("fileserver.file_list").anyKeys(), run("fileserver.clear_file_list_cache", "base"),
			run("fileserver.clear_file_list_cache", "base"),
			salt("web-a", "cp.hash_file", "salt://sub/a.txt"), run("fileserver.clear_cache"),
		}},
		{name: "48_pillar", lines: []line{
			run("pillar.show_top"), run("pillar.show_top", "minion=web-a"),
			run("pillar.show_top", "saltenv=dev", "--out=json"),
			run("pillar.show_pillar"), run("pillar.show_pillar", "web-a", "kernel=Plan9"),
			run("pillar.show_pillar", "web-b", "--out=json"),
			run("pillar.show_pillar", "nosuch", "kernel=X"),
			run("pillar.show_pillar", "pillarenv=dev"),
			run("pillar.show_pillar", "web-a", "pillarenv=dev", "saltenv=dev"),
			run("pillar.show_pillar", "web-a", "saltenv=dev"),
		}},
		{name: "48_pillar_caches", alone: true, lines: []line{
			salt("web-*", "saltutil.refresh_pillar", "wait=True").anyOrder(),
			run("pillar.show_pillar_cache", "web-a"), run("pillar.show_pillar_cache"),
			run("pillar.show_pillar_cache", "web-a", "pillarenv=dev"),
			run("cache.pillar"), run("cache.clear_pillar", "web-a"), run("cache.pillar", "web-a"),
			run("cache.pillar", "nosuch"), run("cache.pillar"),
			run("cache.pillar", "*").blocks(`^web-`), run("cache.pillar", "tgt=", "tgt_type=list"),
			run("pillar.clear_pillar_cache", "web-b"), run("pillar.show_pillar_cache", "web-b"),
			salt("web-a", "saltutil.refresh_pillar", "wait=True"),
			run("cache.pillar", "web-a", "--out=json"),
			run("cache.pillar", "web-b,web-a", "tgt_type=list", "--out=json"),
		}},
		{name: "48_mine", alone: true, lines: []line{
			salt("web-a", "mine.send", "test.echo", "of a"),
			salt("web-b", "mine.send", "test.echo", "of b"),
			salt("web-a", "mine.send", "own", "mine_function=test.arg", "1", "x=[2]"),
			run("mine.get", "web-a", "own", "--out=json"),
			run("mine.get", "*", "test.echo,own").blocks(`^[a-z]`),
			run("mine.get", "L@web-b or nosuch", "[test.echo]", "compound"),
			run("mine.get", "*", "nosuch"),
			run("mine.get", "*").unlike("Texts of the runner functions",
				ownText("\nPassed invalid arguments: get() missing 1 required positional argument: 'fun'\n\nUsage:\n\n")),
			run("cache.mine").blocks(`^    [a-z]`), run("cache.fetch", "mine", "web-b"),
			run("cache.clear_mine_func", "tgt=web-a", "clear_mine_func_flag=own"),
			run("cache.mine", "web-a"),
			run("mine.update", "web-*", "clear=True").anyKeys(), run("cache.clear_mine", "web-b"),
			run("cache.mine", "web-b"), run("cache.clear_mine"), run("cache.clear_all", "web-a"),
			run("mine.get", "*", "test.echo"), run("cache.grains", "web-a"),
			salt("web-a", "saltutil.refresh_grains"), run("cache.clear_grains", "nosuch"),
		}},
		{name: "44_jobs_lists", alone: true, lines: []line{
			salt("web-b", "test.echo", "only once", "--show-jid").saves("ONCE").mask(`JID`,
				"JID"), run("jobs.last_run", "ext_source=nosuch").unlike("Python's tracebacks",
				begins("Exception occurred in runner jobs.last_run: ", "", 1)),
			run("jobs.last_run", "function=test.echo", "target=web-b"),
			run("jobs.last_run", "target=nosuch"), run("jobs.list_jobs", "search_target=nosuch*"),
			run("jobs.lookup_jid", "$ONCE", "local_cache", "display_progress=True"),
			run("jobs.print_job", "$ONCE"),
		}},
		{name: "45_manage_more", lines: []line{
			run("manage.not_joined"), run("manage.not_allowed"),
			run("manage.status", "tgt=G@id:web-a", "tgt_type=compound"),
			run("manage.versions", "--out=json"),
		}},
		{name: "49_on_the_master", lines: []line{
			run("match.compound_matches", "web-* and not L@web-b", "web-a"),
			run("match.compound_matches", "web-* and not L@web-b", "web-b"),
			run("match.compound_matches", "I@text:*", "web-a"),
			run("error.error"), run("error.error", "name=Exception",
				"message=This is an error.").unlike("Python's tracebacks",
				oneLine("Exception occurred in runner error.error: This is an error.\n")),
			run("salt.cmd", "test.arg", "1", "a=b", "--out=json"),
			run("salt.cmd", "cmd.run", "echo hello"), run("salt.cmd", "hashutil.digest", "abc"),
			run("salt.cmd", "pillar.get", "list", "with_pillar=True", "--out=json"),
			run("salt.cmd", "pillar.get", "list", "unmask=True", "with_pillar=True", "--out=json"),
			run("salt.cmd", "pillar.get", "nosuch", "some default", "unmask=False"),
			run("salt.cmd", "pillar.item", "text", "list:0", "nosuch", "with_pillar=True"),
			run("salt.cmd", "pillar.items", "with_pillar=True"),
			run("salt.cmd", "pillar.items", "unmask=True", "with_pillar=True", "--out=json"),
			run("salt.cmd", "pillar.items", "text", "unmask=True", "with_pillar=True"),
			run("salt.cmd", "pillar.raw", "text", "with_pillar=True"),
			run("salt.cmd", "pillar.raw", "text", "False", "with_pillar=True"),
			run("http.query", "http://127.0.0.1:1/"),
			run("http.query", "url=http://127.0.0.1:1/", "status=True", "--out=json"),
		}},
	}
}

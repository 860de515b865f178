package master

import (
	"context"
	"fmt"
	"testing"

	"clustermaster/serve/acl"
)

// TestSentIsChecked: where rights limit minions, what is sent is the list of those that were
// checked; events and the job cache have the target that was asked.
func TestSentIsChecked(t *testing.T) {
	t.Parallel()
	web := acl.FromList([]any{"test.version", dict("web*", []any{"test.*"}),
		dict("not G@os:Debian", []any{"grains.*"}), dict("*", []any{"status.*"})})
	for _, orders := range []bool{false, true} {
		k := newKit(t, func(o *Options, _ *Deps) { o.OrderMasters = orders })
		for _, id := range []string{"db1", "new1", "web1", "web2", ",web1,", " web2"} {
			k.accept(id)
		}
		k.data.grains["db1"], k.data.grains["web1"] = dict("os", "Debian", "ipv4",
			[]any{"10.0.0.1"}), dict("os", "Plan9", "ipv4", []any{"10.0.0.2"})
		const refused = acl.NotAuthorized
		for _, tt := range []struct {
			tgt          any
			tgtType, fun string
			sent, err    string
		}{
			{"web*", "glob", "test.ping", "list [web1 web2]", ""},
			{"web1", "", "test.ping", "list [web1]", ""},
			{"*", "glob", "test.version", "glob *", ""},
			{"*", "glob", "status.uptime", "glob *", ""},
			{"*", "glob", "saltutil.find_job", "glob *", ""},
			{"*", "glob", "test.ping", "", refused},
			{[]string{"web2", "web1", "nosuch"}, "list", "test.ping", "list [web2 web1]", ""},
			{"web2,web1", "list", "test.ping", "list [web2 web1]", ""},
			{"web1 or M@db1", "compound", "test.ping", "list [web1]", ""},
			{"G@os:Plan9", "compound", "test.ping", "list [web1]", ""},
			// nobody knows the addresses of web2
			{"web* and S@10.0.0.0/8", "compound", "test.ping", "list [web1]", ""},
			{"db1", "glob", "test.ping", "", refused},
			{"db1", "glob", "grains.items", "", refused},
			// its grains are not known: rights can't hang on what they are not
			{"new1", "glob", "grains.items", "", refused},
			{"web1", "glob", "grains.items", "list [web1]", ""},
			{"nosuch", "glob", "test.ping", "",
				"Master could not resolve minions for target nosuch"},
			{"web1\x1cor\x1c*", "compound", "test.ping", "", refused},
			{"I@a:b", "compound", "test.ping", "",
				"Master could not resolve minions for target I@a:b"},
		} {
			before := k.subs.count()
			r := PublishRequest{Tgt: tt.tgt, TgtType: tt.tgtType, Fun: tt.fun, User: "carol",
				Rights: web}
			got, err := k.Publish(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Error != tt.err {
				t.Errorf("%v %v: %+v, want %q", tt.tgtType, tt.tgt, got, tt.err)
			}
			if k.subs.count() == before {
				if tt.err == refused {
					k.event("salt/job/error")
				}
				continue
			}
			load := k.read(k.subs.get(before))
			if sent := fmt.Sprint(field(load, "tgt_type"), " ",
				field(load, "tgt")); sent != tt.sent {
				t.Errorf("%v %v: sent to %s, want %s", tt.tgtType, tt.tgt, sent, tt.sent)
			}
			asked := fmt.Sprint(textual(tt.tgt))
			if kept := fmt.Sprint(field(k.jobs.loads[got.JID], "tgt")); kept != asked {
				t.Errorf("%v %v: the job cache has %s", tt.tgtType, tt.tgt, kept)
			}
			told := fmt.Sprint(field(k.event("salt/job/"+got.JID+"/new"), "tgt"))
			if published := k.event("salt/job/" + got.JID + "/publish"); fmt.Sprint(field(published,
				"tgt")) != fmt.Sprint(field(load, "tgt")) {
				t.Errorf("%v %v: the event of what is sent has %v", tt.tgtType, tt.tgt, published)
			}
			if told != asked {
				t.Errorf("%v %v: the event has %s", tt.tgtType, tt.tgt, told)
			}
		}
	}
}

// TestConfinedIDs: ids that minions read as others are not sent as members of a list that rights
// limit.
func TestConfinedIDs(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(_ *Options, _ *Deps) {})
	for _, id := range []string{",db1,", " db1", "db1", "web1"} {
		k.accept(id)
	}
	rights := acl.FromList([]any{dict("not L@db1", []any{"test.ping"})})
	for _, tt := range []struct {
		tgt  []string
		sent string
	}{{[]string{",db1,", "web1", " db1"}, "[web1]"}, {[]string{",db1,"}, ""}} {
		before := k.subs.count()
		got, err := k.Publish(context.Background(),
			PublishRequest{Tgt: tt.tgt, TgtType: "list", Fun: "test.ping", User: "carol",
				Rights: rights})
		if err != nil {
			t.Fatal(err)
		}
		sent := ""
		if k.subs.count() > before {
			sent = fmt.Sprint(field(k.read(k.subs.get(before)), "tgt"))
		}
		if sent != tt.sent {
			t.Errorf("%q: sent to %q, %+v", tt.tgt, sent, got)
		}
	}
}

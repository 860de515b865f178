package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"clustermaster/config"
	"clustermaster/salt/output"
	"clustermaster/serve/operator"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/wire"
)

// States of keys, under the names that lists have.
const (
	accepted = "minions"
	pending  = "minions_pre"
	rejected = "minions_rejected"
	denied   = "minions_denied"
)

// keyStates are all states in the order in which Salt builds lists. Outputters that
// sort print another order.
var keyStates = []string{pending, rejected, accepted, denied}

func saltKeyParser() *parser {
	p := newParser("salt-key", "[options]",
		"List and change the keys of minions. Every master knows a change before the command returns.",
		"salt-key -L",
		"salt-key -a web1",
		"salt-key -a 'web*,db*' -y",
		"salt-key -A -y --include-rejected",
		"salt-key -f web1",
		"salt-key -L --out=json")
	p.add("",
		option{names: "-u --user", dest: "user", kind: textValue,
			help: "Accepted for scripts; the master's socket identifies you."},
		option{names: "-q --quiet", dest: "quiet",
			help: "Print fewer messages; lists are still printed."},
		option{names: "-y --yes", dest: "yes", help: "Don't ask."},
		option{names: "--dry-run", dest: "dry_run",
			help: "Show the keys that would be accepted, rejected or deleted, and change nothing."},
		option{names: "--rotate-aes-key", dest: "rotate_aes_key", fromFile: true, kind: textValue,
			help: "False keeps the session key of publications when keys are deleted or rejected, which is less safe. Default: True."},
		option{names: "--preserve-minions", dest: "preserve_minions", kind: textValue,
			help: "True keeps the cached grains, pillar and mine of deleted minions. Default: False."},
	)
	p.addEauth("")
	p.addOutput()
	p.add(groupActions,
		option{names: "-l --list", dest: "list", kind: textValue, value: "ARG",
			help: "List the keys of one state: pre, un or unaccepted; acc or accepted; rej or rejected; den or denied; all."},
		option{names: "-L --list-all", dest: "list_all",
			help: "List all keys. This is the default action."},
		option{names: "-a --accept", dest: "accept", kind: textValue,
			help: "Accept pending keys: an id, a glob, or several separated by commas."},
		option{names: "-A --accept-all", dest: "accept_all", help: "Accept all pending keys."},
		option{names: "-r --reject", dest: "reject", kind: textValue, help: "Reject pending keys."},
		option{names: "-R --reject-all", dest: "reject_all", help: "Reject all pending keys."},
		option{names: "--include-all", dest: "include_all",
			help: "Also change rejected keys when accepting, accepted ones when rejecting."},
		option{names: "--include-accepted", dest: "include_accepted",
			help: "Also reject accepted keys."},
		option{names: "--include-rejected", dest: "include_rejected",
			help: "Also accept rejected keys."},
		option{names: "--include-denied", dest: "include_denied", help: "Also change denied keys."},
		option{names: "-p --print", dest: "print", kind: textValue, help: "Print public keys."},
		option{names: "-P --print-all", dest: "print_all", help: "Print all public keys."},
		option{names: "-d --delete", dest: "delete", kind: textValue,
			help: "Delete keys of any state."},
		option{names: "-D --delete-all", dest: "delete_all", help: "Delete all keys."},
		option{names: "-f --finger", dest: "finger", kind: textValue,
			help: "Print fingerprints of keys, in the form that key.finger of the minion prints."},
		option{names: "-F --finger-all", dest: "finger_all",
			help: "Print all fingerprints, the master's own included."},
	)
	p.add(groupGen,
		option{names: "--gen-keys", dest: "gen_keys", kind: textValue,
			help: "Make a key pair of this name."},
		option{names: "--gen-keys-dir", dest: "gen_keys_dir", kind: textValue,
			help: "Folder for the key pair. Default: '.'."},
		option{names: "--keysize", dest: "keysize", fromFile: true, kind: intValue,
			help: "Key size in bits, at least 2048. Default: 2048."},
	)
	p.add(groupGen,
		option{names: "--gen-signature", dest: "gen_signature",
			help: "Sign the master's public key, for minions that check it (master_use_pubkey_signature)."},
		option{names: "--auto-create", dest: "auto_create",
			help: "With --gen-signature: make the signing key if it does not exist."},
		option{names: "--priv", dest: "priv", kind: textValue,
			help: "With --gen-signature: file of the signing key. Default: master_sign.pem in pki_dir."},
		option{names: "--pub", dest: "pub", kind: textValue,
			help: "With --gen-signature: file of the key to sign. Default: the key by which " +
				"minions identify the master."},
		option{names: "--signature-path", dest: "signature_path", kind: textValue,
			help: "With --gen-signature: folder for the signature. Default: pki_dir."},
	)
	p.addLogging("--log-level")
	return p
}

// keyActions are the options that name an action, in order of precedence.
var keyActions = []string{"gen_keys", "list", "list_all", "print", "print_all", "accept",
	"accept_all", "reject", "reject_all", "delete", "delete_all", "finger", "finger_all"}

// keyRun is one run of salt-key.
type keyRun struct {
	env   Env
	opts  *config.Options
	v     values
	print *printer
	// daemon is nil if the master does not run; lists then comes from its disk.
	daemon Daemon
	lists  operator.KeyLists
}

// SaltKey is the command salt-key.
func SaltKey(ctx context.Context, args []string, env Env) int {
	p := saltKeyParser()
	v, operands, code, done := env.begin(p, args)
	if done {
		return code
	}
	if err := checkKeyOptions(v); err != nil {
		return p.fail(env.Stderr, err)
	}
	if v.on("delete_all") && len(operands) > 0 {
		env.errorf("Error: Delete all takes no arguments. Use -d to delete specified keys")
		return ExitOK
	}
	action := keyAction(v)
	if action == "gen_keys" {
		return env.generate(p, v)
	}
	if v.on("gen_signature") {
		return env.signature(ctx, p, v)
	}
	opts, code, ok := env.configuration(p, v)
	if !ok {
		return code
	}
	run := &keyRun{env: env, opts: opts, v: v}
	var err error
	if run.print, err = env.printer(v, opts); err != nil {
		return p.fail(env.Stderr, err)
	}
	defer run.print.close()
	if v.text("eauth") != "" {
		return run.external(ctx, action)
	}
	if err := run.connect(ctx, action); err != nil {
		env.errorf("%s", err)
		return ExitFailed
	}
	if run.daemon != nil {
		defer run.daemon.Close()
	}
	return run.act(ctx, action)
}

func checkKeyOptions(v values) error {
	if word := v.text("list"); word != "" {
		if _, ok := statesOf(word); !ok {
			return usageError("'" + word + "' is not a valid argument to '--list'")
		}
	}
	switch size := v.integer("keysize", 2048); {
	case size < 2048:
		return usageError("The minimum value for keysize is 2048")
	case size > 32768:
		return usageError("The maximum value for keysize is 32768")
	}
	return nil
}

// statesOf reads a word of --list by its beginning: acc, pre, un, rej, den or all. The bool is
// false for any other word.
func statesOf(word string) ([]string, bool) {
	for _, w := range []struct {
		prefix string
		states []string
	}{{"acc", []string{accepted}}, {"pre", []string{pending}}, {"un", []string{pending}}, {"rej",
		[]string{rejected}}, {"den", []string{denied}}, {"all", keyStates}} {
		if strings.HasPrefix(word, w.prefix) {
			return w.states, true
		}
	}
	return nil, false
}

func keyAction(v values) string {
	for _, a := range keyActions {
		if v.on(a) || v.text(a) != "" {
			return a
		}
	}
	return "list_all"
}

// connect reads the keys from the running master, or from its disk if none runs. It asks for the
// texts of keys only if the action prints them or their fingerprints.
func (r *keyRun) connect(ctx context.Context, action string) error {
	d, err := r.env.dial(ctx, r.opts)
	if err == nil {
		r.daemon = d
		if r.lists, err = d.Lists(ctx, strings.HasPrefix(action, "print") ||
			strings.HasPrefix(action, "finger")); err != nil {
			d.Close()
			return fmt.Errorf("ERROR: list keys: %w", err)
		}
		if r.lists.Note != "" {
			r.env.logWarning(r.lists.Note)
		}
		return nil
	}
	if !errors.Is(err, operator.ErrNoMaster) || errors.As(err, new(*operator.NoRightsError)) {
		return fmt.Errorf("ERROR: %w", err)
	}
	if r.env.Offline == nil {
		return errors.New("ERROR: " + masterDown)
	}
	if r.lists, err = r.env.Offline(ctx, r.opts); err != nil {
		return fmt.Errorf("ERROR: the master does not run, and its keys can't be read from disk: %w", err)
	}
	return nil
}

// asked splits an action into its name and its match: "*" or "all" for an action that ends with
// _all, otherwise the option's value.
func (r *keyRun) asked(action string) (name, match string) {
	name, all := strings.CutSuffix(action, "_all")
	switch {
	case all && name == "list":
		return name, "all"
	case all:
		return name, "*"
	}
	return name, r.v.text(name)
}

func (r *keyRun) act(ctx context.Context, action string) int {
	name, match := r.asked(action)
	switch name {
	case "list":
		states, _ := statesOf(match)
		return r.display(r.listing(states, func(operator.Key) any { return nil }, false))
	case "print":
		return r.display(r.listing(r.matching(match, keyStates),
			func(k operator.Key) any { return k.Pub }, true))
	case "finger":
		return r.fingers(match)
	}
	return r.change(ctx, name, match)
}

func (r *keyRun) display(v value.Map) int {
	if err := r.print.show(output.Result{Value: v, Outputter: "key"}); err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

// listing maps each state to its ids or, with details, to a map from id to show's result for the
// key. chosen is a list of states, which all appear, or a predicate on keys; then only states with
// a matching key appear. An id with several denied keys appears once, with a list of details.
func (r *keyRun) listing(chosen any, show func(operator.Key) any, details bool) value.Map {
	keep := func(operator.Key) bool { return true }
	states, all := chosen.([]string)
	if !all {
		states, keep = keyStates, chosen.(func(operator.Key) bool)
	}
	out := value.Map{}
	for _, state := range states {
		ids, texts, at := []any{}, value.Map{}, map[string]int{}
		for _, k := range r.lists.Keys {
			if k.State != state || !keep(k) {
				continue
			}
			shown := show(k)
			if i, known := at[k.ID]; known {
				list, ok := texts[i].Value.([]any)
				if !ok {
					list = []any{texts[i].Value}
				}
				texts[i].Value = append(list, shown)
				continue
			}
			at[k.ID] = len(texts)
			ids = append(ids, k.ID)
			texts = append(texts, value.Pair{Key: k.ID, Value: shown})
		}
		switch {
		case details && len(texts) > 0:
			out = append(out, value.Pair{Key: state, Value: texts})
		case !details && (all || len(ids) > 0):
			out = append(out, value.Pair{Key: state, Value: ids})
		}
	}
	return out
}

// matching returns a predicate for the keys in some states whose id matches one of
// the comma-separated globs.
func (r *keyRun) matching(match string, states []string) func(operator.Key) bool {
	globs := globsOf(match)
	return func(k operator.Key) bool { return contains(states, k.State) && matchesAny(globs, k.ID) }
}

// globsOf splits a match at commas.
func globsOf(match string) []string {
	globs := []string{}
	for _, g := range strings.Split(match, ",") {
		if g = strings.TrimSpace(g); g != "" {
			globs = append(globs, g)
		}
	}
	return globs
}

func matchesAny(globs []string, name string) bool {
	for _, g := range globs {
		if fnmatch.Match(g, name) {
			return true
		}
	}
	return false
}

// fingers prints the fingerprints of matching keys, the master's own among them. Minions print the
// same ones: the line ends of the stored text make no difference.
func (r *keyRun) fingers(match string) int {
	var failure error
	finger := func(name, pem string) any {
		text, err := wire.Fingerprint(pem, r.opts.HashType)
		if err != nil && failure == nil {
			failure = fmt.Errorf("read key %s: %w", name, err)
		}
		return text
	}
	found := r.listing(r.matching(match, keyStates),
		func(k operator.Key) any { return finger(k.ID, k.Pub) }, true)
	names := make([]string, 0, len(r.lists.Local))
	for name := range r.lists.Local {
		if matchesAny(globsOf(match), name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	local := value.Map{}
	for _, name := range names {
		local = append(local, value.Pair{Key: name, Value: finger(name, r.lists.Local[name])})
	}
	if len(local) > 0 {
		found = append(found, value.Pair{Key: "local", Value: local})
	}
	if failure != nil {
		r.env.errorf("ERROR: %s", failure)
		return ExitFailed
	}
	return r.display(found)
}

// change accepts, rejects or deletes the matching keys, after showing them and asking.
func (r *keyRun) change(ctx context.Context, action, match string) int {
	states, words := r.affected(action)
	found := r.listing(r.matching(match, states), func(operator.Key) any { return nil }, false)
	if agreed, code := r.agree(ctx, action, match, words, found); !agreed {
		return code
	}
	return r.apply(ctx, action, found)
}

// agree shows the keys that will change and asks. Without agreement, code is
// the command's exit code.
func (r *keyRun) agree(ctx context.Context, action, match, words string,
	found value.Map) (agreed bool, code int) {
	if len(found) == 0 {
		r.env.println(fmt.Sprintf("The key glob '%s' does not match any %s keys.", match, words))
		return false, ExitOK
	}
	r.env.println(fmt.Sprintf("The following keys are going to be %sed:",
		strings.TrimSuffix(action, "e")))
	if code := r.display(found); code != ExitOK {
		return false, code
	}
	if r.daemon == nil {
		r.env.errorf("ERROR: the master does not run; only a running master can tell the other " +
			"masters of a change. Start salt-master and run the command again.")
		return false, ExitFailed
	}
	if r.v.on("dry_run") {
		r.env.println("Dry run: nothing was changed.")
		return false, ExitOK
	}
	if !r.v.on("yes") {
		yes, err := r.confirm(ctx, action == "delete")
		if err != nil {
			return false, r.env.interrupted(ctx, r.v, "")
		}
		return yes, ExitOK
	}
	return true, ExitOK
}

// affected returns the states that an action applies to, and their names for the message that
// nothing matches. As in Salt, delete applies to all states but names fewer.
func (r *keyRun) affected(action string) (states []string, text string) {
	all := r.v.on("include_all")
	names := []string{"unaccepted"}
	states = []string{pending}
	if action == "delete" {
		states = keyStates
	}
	for _, more := range []struct {
		action, dest, state, name string
		wanted                    bool
	}{
		{"reject", "include_accepted", accepted, "accepted", all},
		{"accept", "include_rejected", rejected, "rejected", all},
		{"", "include_denied", denied, "denied", false},
	} {
		wanted := more.wanted || r.v.on(more.dest)
		switch {
		case action == "delete" && r.v.on(more.dest):
			names = append(names, more.name)
		case action != "delete" && wanted && (more.action == "" || more.action == action):
			states, names = append(states, more.state), append(names, more.name)
		}
	}
	if len(names) == 1 {
		return states, names[0]
	}
	return states, strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// confirm asks on standard input. The error is ctx's if it ends before the answer.
func (r *keyRun) confirm(ctx context.Context, deleting bool) (bool, error) {
	question := "Proceed? [n/Y] "
	if deleting {
		question = "Proceed? [N/y] "
	}
	fmt.Fprint(r.env.Stdout, question)
	type reply struct {
		text string
		err  error
	}
	got := make(chan reply, 1)
	go func() { // a read of the terminal can't be interrupted; the process ends soon after
		line, err := bufio.NewReader(io.LimitReader(r.env.Stdin, 4096)).ReadString('\n')
		got <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case a := <-got:
		answer := strings.ToLower(strings.TrimRight(a.text, "\r\n"))
		if answer == "" {
			// Enter picks the default; an input that ends without an answer is not consent.
			return !deleting && a.err == nil, nil
		}
		return strings.HasPrefix(answer, "y"), nil
	}
}

func (r *keyRun) apply(ctx context.Context, action string, found value.Map) int {
	change := operator.KeyChange{
		Action: action, PreserveMinions: strings.EqualFold(r.v.text("preserve_minions"), "true") ||
			r.opts.PreserveMinionCache,
		KeepAESKey: strings.EqualFold(r.v.text("rotate_aes_key"), "false"),
	}
	for _, p := range found {
		state, _ := p.Key.(string)
		ids, _ := p.Value.([]any)
		for _, id := range ids {
			text, _ := id.(string)
			change.Keys = append(change.Keys, operator.Key{ID: text, State: state})
		}
	}
	done, err := r.daemon.Change(ctx, change)
	for _, w := range done.Warnings {
		r.env.logWarning(w)
	}
	for _, k := range done.Changed {
		r.env.println(fmt.Sprintf("Key for minion %s %sed.", k.ID, strings.TrimSuffix(action, "e")))
	}
	if err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

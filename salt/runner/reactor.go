package runner

import (
	"context"
	"errors"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Reactors is the reactor as the family reactor uses it. Changes apply on every master and survive
// restarts.
type Reactors interface {
	// Available reports whether the option reactor is set.
	Available() bool
	// Reactors returns those in force in the option's form: maps from a pattern on tags to its
	// files.
	Reactors() []any
	// AddReactor returns false if the tag already has one; DeleteReactor returns false if it has
	// none.
	AddReactor(ctx context.Context, tag string, files []string) (bool, error)
	DeleteReactor(ctx context.Context, tag string) (bool, error)
	// Leading reports whether the reactor reacts to events; Lead changes that.
	Leading() bool
	Lead(ctx context.Context, on bool) error
	// Fire fires one of the events with which Salt's reactor answers.
	Fire(tag string, data value.Map)
}

// errNoReactor is Salt's answer where the option reactor is not set.
var errNoReactor = errors.New("Reactor system is not running.") // Salt's text

// ReactorFamily is the family reactor.
func ReactorFamily(r Reactors) []Function {
	// told ends a change: it fires the event with the reactors after the change, and returns Salt's
	// text.
	told := func(done bool, tag, yes, no string) any {
		comment := no
		if done {
			comment = yes
		}
		result := value.Map{{Key: "status", Value: done}, {Key: "comment", Value: comment}}
		r.Fire(tag, value.Map{{Key: "reactors", Value: r.Reactors()},
			{Key: "result", Value: result}})
		return result
	}
	leading := func() any {
		on := r.Leading()
		r.Fire("salt/reactors/manage/leader/value", value.Map{{Key: "result", Value: on}})
		return on
	}
	family := []Function{
		{
			Name: "reactor.list", Params: []function.Param{function.Opt("saltenv", "base"),
				function.Opt("test", nil)},
			Doc: `List the active reactors; those added at run time come last.

Example:

    salt-run reactor.list`,
			Run: func(context.Context, *Call) (any, error) {
				list := r.Reactors()
				r.Fire("salt/reactors/manage/list-results",
					value.Map{{Key: "reactors", Value: list}})
				return list, nil
			},
		},
		{
			Name: "reactor.add", Params: []function.Param{function.Need("event"),
				function.Need("reactors"), function.Opt("saltenv", "base"),
				function.Opt("test", nil)},
			Doc: `Add a reactor, on every master, until it is deleted.

event
    A pattern on tags.

reactors
    A path, a glob, a salt:// address, or a list of them.

Example:

    salt-run reactor.add 'salt/cloud/*/destroyed' reactors='/srv/reactor/destroy/*.sls'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				var files []string
				switch v := value.Plain(c.Arg("reactors")).(type) {
				case string:
					files = []string{v}
				case []any:
					for _, e := range v {
						path, ok := e.(string)
						if !ok {
							return nil,
								&function.ArgumentError{Text: "reactors must be a path or a list of paths, not " + value.Repr(v)}
						}
						files = append(files, path)
					}
				default:
					return nil,
						&function.ArgumentError{Text: "reactors must be a path or a list of paths, not " + value.Repr(v)}
				}
				done, err := r.AddReactor(ctx, c.Text("event"), files)
				if err != nil {
					return nil, err
				}
				return told(done, "salt/reactors/manage/add-complete", "Reactor added.",
					"Reactor already exists."), nil
			},
		},
		{
			Name: "reactor.delete", Params: []function.Param{function.Need("event"),
				function.Opt("saltenv", "base"), function.Opt("test", nil)},
			Doc: `Delete the reactors of a pattern on tags, on every master; those of the option reactor too,
until reactor.add brings the pattern back.

Example:

    salt-run reactor.delete 'salt/cloud/*/destroyed'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				done, err := r.DeleteReactor(ctx, c.Text("event"))
				if err != nil {
					return nil, err
				}
				return told(done, "salt/reactors/manage/delete-complete", "Reactor deleted.",
					"Reactor does not exists."), nil
			},
		},
		{
			Name: "reactor.is_leader",
			Doc: `Show whether masters react to events; the answer is the same on every master.

Example:

    salt-run reactor.is_leader`,
			Run: func(context.Context, *Call) (any, error) { return leading(), nil },
		},
		{
			Name: "reactor.set_leader", Params: []function.Param{function.Opt("value", true)},
			Doc: `Make the whole cluster react to events; with False no master does.

Example:

    salt-run reactor.set_leader True`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if err := r.Lead(ctx, c.True("value")); err != nil {
					return nil, err
				}
				return leading(), nil
			},
		},
	}
	for i, f := range family {
		run := f.Run
		family[i].Run = func(ctx context.Context, c *Call) (any, error) {
			if !r.Available() {
				return nil, errNoReactor
			}
			return run(ctx, c)
		}
	}
	return family
}

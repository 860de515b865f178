package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Test is the family test: functions to try the runner with.
func Test() []Function {
	return []Function{
		{
			Name: "test.arg", VarArgs: true, VarKwargs: true,
			Doc: `Return the arguments; keywords that begin with two underscores are left out.

Example:

    salt-run test.arg foo bar=baz`,
			Run: func(_ context.Context, c *Call) (any, error) {
				kwargs := value.Map{}
				for _, p := range c.Kwargs() {
					if name, _ := p.Key.(string); !strings.HasPrefix(name, "__") {
						kwargs = append(kwargs, p)
					}
				}
				return value.Map{{Key: "args", Value: append([]any{}, c.Rest()...)},
					{Key: "kwargs", Value: kwargs}}, nil
			},
		},
		{
			Name: "test.raw_arg", VarArgs: true, VarKwargs: true,
			Doc: `Return all arguments.

Example:

    salt-run test.raw_arg foo __bar=baz`,
			Run: func(_ context.Context, c *Call) (any, error) {
				return value.Map{{Key: "args", Value: append([]any{}, c.Rest()...)},
					{Key: "kwargs", Value: append(value.Map{}, c.Kwargs()...)}}, nil
			},
		},
		{
			Name: "test.metasyntactic", Params: []function.Param{function.Opt("locality", "us")},
			Doc: `Return common metasyntactic words of a place: us or uk.

Example:

    salt-run test.metasyntactic locality=uk`,
			Run: func(_ context.Context, c *Call) (any, error) {
				switch c.Text("locality") {
				case "us":
					return value.Texts(strings.Fields("foo bar baz qux quux quuz corge grault " +
						"garply waldo fred plugh xyzzy thud")), nil
				case "uk":
					return value.Texts(strings.Fields("wibble wobble wubble flob")), nil
				}
				return nil, nil
			},
		},
		{
			Name: "test.stdout_print",
			Doc: `Print foo and return bar.

Example:

    salt-run test.stdout_print`,
			Run: func(_ context.Context, c *Call) (any, error) {
				c.Print("foo")
				return "bar", nil
			},
		},
		{
			Name: "test.sleep", Params: []function.Param{function.Opt("s_time", int64(10))},
			Doc: `Sleep for s_time seconds, then return True.

Example:

    salt-run test.sleep s_time=5`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				d, err := c.Seconds("s_time", 0)
				if err != nil {
					return nil, err
				}
				c.Print(value.Str(c.Arg("s_time")))
				return true, pause(ctx, d)
			},
		},
		{
			Name: "test.stream",
			Doc: `Fire 99 progress events in ten seconds, then return True.

Example:

    salt-run test.stream`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				for i := 1; i < 100; i++ {
					c.Progress(value.Map{{Key: "message",
						Value: fmt.Sprintf("Runner is %d%% done", i)}})
					if err := pause(ctx, 100*time.Millisecond); err != nil {
						return nil, err
					}
				}
				return true, nil
			},
		},
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

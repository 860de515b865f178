//go:build future

package nextlevel

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"clustermaster/cluster"
	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/salt/function"
	"clustermaster/salt/runner"
	"clustermaster/transport/peer"
	"clustermaster/value"
)

// A program built with the tag "future" has what the next level may add, and runner functions that
// use it, also where it must not be used.

// Functions are the runner functions of the next level.
func Functions(node *cluster.Node, port *peer.Port) []runner.Function {
	propose := func(ctx context.Context, c fsm.Command, force bool) (any, error) {
		if force {
			return "forced", node.Force(ctx, c)
		}
		_, _, err := node.Propose(ctx, c)
		return "done", err
	}
	return []runner.Function{
		{Name: "future.note", Params: []function.Param{function.Need("note"),
			function.Opt("force", false)}, Doc: "Add a note to the replicated state.",
			Run: func(ctx context.Context, c *runner.Call) (any, error) {
				return propose(ctx, &fsm.Future{Note: c.Text("note")}, c.True("force"))
			}},
		{Name: "future.allow", Params: []function.Param{function.Need("peer"),
			function.Opt("force", false)}, Doc: "cluster.allow with one more field.",
			Run: func(ctx context.Context, c *runner.Call) (any, error) {
				return propose(ctx, &fsm.AllowMemberWhy{ID: c.Text("peer"), Why: "because"},
					c.True("force"))
			}},
		{Name: "future.notes", Doc: "List the notes.",
			Run: func(ctx context.Context, _ *runner.Call) (any, error) {
				out := []any{}
				for _, n := range node.State().Notes() {
					out = append(out, n)
				}
				return out, node.ReadIndex(ctx)
			}},
		{Name: "future.snapshot", Doc: "Write a snapshot.",
			Run: func(context.Context, *runner.Call) (any, error) {
				return true, node.Snapshot()
			}},
		{Name: "future.ping", Params: []function.Param{function.Need("peer")},
			Doc: "Call a method of the next level.",
			Run: func(ctx context.Context, c *runner.Call) (any, error) {
				cc, err := conn(node, port, c.Text("peer"))
				if err != nil {
					return nil, err
				}
				reply := &wrapperspb.StringValue{}
				err = cc.Invoke(ctx, futurePing, wrapperspb.String("ping"), reply)
				return reply.GetValue(), err
			}},
		{Name: "future.field", Params: []function.Param{function.Need("peer")},
			Doc: "Send a request with an unknown field.",
			Run: func(ctx context.Context, c *runner.Call) (any, error) {
				cc, err := conn(node, port, c.Text("peer"))
				if err != nil {
					return nil, err
				}
				q := &clusterpb.StatusRequest{}
				q.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 7777,
					protowire.VarintType), 1))
				_, err = clusterpb.NewClusterClient(cc).Status(ctx, q)
				return value.Map{{Key: "answered", Value: err == nil}}, err
			}},
	}
}

// Tune keeps the log short, so that a joiner needs the snapshot that future.snapshot wrote.
func Tune(c *cluster.Config) { c.SnapshotThreshold = 20 }

func conn(node *cluster.Node, port *peer.Port, id string) (*grpc.ClientConn, error) {
	m, ok := node.State().MemberByID(id)
	if !ok {
		return nil, fmt.Errorf("no member %s", id)
	}
	return port.Conn(m.Node)
}

const futurePing = "/clustermaster.future.Future/Ping"

// Register adds the method that future.ping calls.
func Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "clustermaster.future.Future",
		HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
			MethodName: "Ping",
			Handler: func(_ any, _ context.Context, decode func(any) error,
				_ grpc.UnaryServerInterceptor) (any, error) {
				q := &wrapperspb.StringValue{}
				err := decode(q)
				return wrapperspb.String("pong"), err
			},
		}}}, struct{}{})
}

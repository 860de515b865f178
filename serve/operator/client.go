package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"google.golang.org/grpc"

	"clustermaster/salt/gather"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/serve/unixsock"
	"clustermaster/value"
)

// ErrNoMaster is returned when no daemon answers on the socket.
var ErrNoMaster = errors.New("no salt-master answers on its socket")

// NoRightsError says that this user may not connect to the socket. Whether a master runs is
// unknown. It is an ErrNoMaster for the commands that say what Salt's say.
type NoRightsError struct{ Socket string }

func (e *NoRightsError) Error() string {
	return fmt.Sprintf("this user may not connect to the master's socket %s: permission denied; "+
		"run the command as root or as the master's user", e.Socket)
}

func (e *NoRightsError) Unwrap() error { return ErrNoMaster }

// Client is a command's end of the operator's socket. It is safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
	rpc  operatorpb.OperatorClient
}

var _ gather.Master = (*Client)(nil)

// Dial connects to the master of a sock_dir. The error is ErrNoMaster if none runs there, and a
// NoRightsError if this user can't know.
func Dial(ctx context.Context, sockDir string) (*Client, error) {
	path := filepath.Join(sockDir, SocketName)
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(peerCred{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxRequest)))
	if err != nil {
		return nil, fmt.Errorf("dial operator socket: %w", err)
	}
	c := &Client{conn: conn, rpc: operatorpb.NewOperatorClient(conn)}
	if _, err := c.Status(ctx); err != nil {
		conn.Close()
		if errors.Is(err, ErrNoMaster) && unixsock.Closed(path) {
			return nil, &NoRightsError{path}
		}
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Status asks the master about itself.
func (c *Client) Status(ctx context.Context) (Status, error) {
	r, err := c.rpc.Status(ctx, new(operatorpb.StatusRequest))
	if err != nil {
		return Status{}, fromStatus(err)
	}
	return Status{ID: r.Id, Version: r.Version, Serving: r.Serving, Ready: r.Ready}, nil
}

// Login makes further calls on this connection those of a user of external_auth. User is empty if
// the credentials are refused.
func (c *Client) Login(ctx context.Context, creds Credentials) (user string, err error) {
	r, err := c.rpc.Login(ctx, creds.pb())
	if err != nil {
		return "", fromStatus(err)
	}
	return r.User, nil
}

// MakeToken makes a token. It is empty if the credentials are refused.
func (c *Client) MakeToken(ctx context.Context, creds Credentials) (token string, err error) {
	r, err := c.rpc.MakeToken(ctx, creds.pb())
	if err != nil {
		return "", fromStatus(err)
	}
	return r.Token, nil
}

func (c Credentials) pb() *operatorpb.Credentials {
	return &operatorpb.Credentials{Eauth: c.Eauth, Username: c.Username, Password: c.Password,
		Token: c.Token}
}

// Fire fires an event on the master's bus.
func (c *Client) Fire(ctx context.Context, tag string, data value.Map) error {
	packed, err := value.Pack(data)
	if err != nil {
		return fmt.Errorf("pack event: %w", err)
	}
	_, err = c.rpc.Fire(ctx, &operatorpb.FireRequest{Tag: tag, Data: packed})
	return fromStatus(err)
}

// NewJID makes a job id; see gather.Master.
func (c *Client) NewJID(ctx context.Context) (string, error) {
	r, err := c.rpc.NewJID(ctx, new(operatorpb.NewJIDRequest))
	if err != nil {
		return "", fromStatus(err)
	}
	return r.Jid, nil
}

// Publish sends a job; see gather.Master.
func (c *Client) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	r := &operatorpb.PublishRequest{TgtType: p.TgtType, Ret: p.Ret, Jid: p.JID, User: p.User,
		Timeout: p.Timeout.Seconds(), Patience: p.Patience.Seconds()}
	for _, f := range []struct {
		to   *[]byte
		from any
	}{{&r.Tgt, p.Tgt}, {&r.Fun, p.Fun}, {&r.Arg, emptyList(p.Arg)}, {&r.Kwargs, p.Kwargs}} {
		b, err := value.Pack(f.from)
		if err != nil {
			return gather.Published{}, fmt.Errorf("pack job: %w", err)
		}
		*f.to = b
	}
	out, err := c.rpc.Publish(ctx, r)
	if err != nil {
		return gather.Published{}, fromStatus(err)
	}
	return gather.Published{JID: out.Jid, Minions: out.Minions, Missing: out.Missing,
		Error: out.Error, Incomplete: out.Incomplete}, nil
}

func emptyList(l []any) []any {
	if l == nil {
		return []any{}
	}
	return l
}

// Targets resolves a target without sending anything.
func (c *Client) Targets(ctx context.Context, tgt any, tgtType, delimiter string) (Targeted,
	error) {
	packed, err := value.Pack(tgt)
	if err != nil {
		return Targeted{}, fmt.Errorf("pack target: %w", err)
	}
	r, err := c.rpc.Targets(ctx, &operatorpb.TargetsRequest{Tgt: packed, TgtType: tgtType,
		Delimiter: delimiter})
	if err != nil {
		return Targeted{}, fromStatus(err)
	}
	return Targeted{Minions: r.Minions, Missing: r.Missing, Incomplete: r.Incomplete}, nil
}

// events is a running subscription.
type events struct {
	c      chan gather.Event
	cancel context.CancelFunc
}

func (e *events) C() <-chan gather.Event { return e.c }
func (e *events) Close()                 { e.cancel() }

// Subscribe streams the events of the whole cluster whose tags begin with prefix. It returns when
// every reachable master has confirmed.
func (c *Client) Subscribe(ctx context.Context, prefix string) (gather.Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.Events(ctx, &operatorpb.EventsRequest{Prefix: prefix})
	if err == nil {
		_, err = stream.Recv() // the confirmation
	}
	if err != nil {
		cancel()
		return nil, fromStatus(err)
	}
	e := &events{c: make(chan gather.Event, 64), cancel: cancel}
	go func() {
		defer close(e.c)
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case e.c <- gather.Event{Tag: m.Tag, Data: m.Data, Lost: m.Lost}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return e, nil
}

// ReadReturns reads the returns of some minions for a job from the cluster's job cache; see
// gather.Master.
func (c *Client) ReadReturns(ctx context.Context, jid string, ids []string,
	fn func(id string, r gather.Return) error) error {
	for len(ids) > 0 {
		n := firstIDs(ids)
		if err := c.readReturns(ctx, jid, ids[:n], fn); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// firstIDs returns how many of the first ids fit into one request of any user: at least one.
func firstIDs(ids []string) int {
	size := 0
	for i, id := range ids {
		if size += len(id) + 4; i > 0 && (i == maxIDs || size > maxUserRequest-1<<16) {
			return i
		}
	}
	return len(ids)
}

func (c *Client) readReturns(ctx context.Context, jid string, ids []string,
	fn func(id string, r gather.Return) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ReadReturns(ctx, &operatorpb.ReadReturnsRequest{Jid: jid, Ids: ids})
	if err != nil {
		return fromStatus(err)
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fromStatus(err)
		}
		if err := fn(r.Id, gather.Return{Return: r.Ret, Retcode: r.Retcode, Success: r.Success,
			Out: r.Out}); err != nil {
			return err
		}
	}
}

// Run makes one call and passes prints and progress to out while it runs.
func (c *Client) Run(ctx context.Context, r RunRequest, out func(kind string, v any)) (RunResult,
	error) {
	req := &operatorpb.RunRequest{Fun: r.Fun, Jid: r.JID, Async: r.Async}
	var err error
	if req.Args, err = value.Pack(emptyList(r.Args)); err != nil {
		return RunResult{}, fmt.Errorf("pack arguments: %w", err)
	}
	if req.Kwargs, err = value.Pack(r.Kwargs); err != nil {
		return RunResult{}, fmt.Errorf("pack arguments: %w", err)
	}
	stream, err := c.rpc.Run(ctx, req)
	if err != nil {
		return RunResult{}, fromStatus(err)
	}
	var parts []byte // of a large result
	for {
		o, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return RunResult{}, fmt.Errorf("%w: it ended the call of %s without a result",
				ErrNoMaster, r.Fun)
		}
		if err != nil {
			return RunResult{}, fromStatus(err)
		}
		if o.Kind == kindPart || len(parts) > 0 && o.Kind == kindResult {
			if len(parts)+len(o.Value) > maxResult {
				return RunResult{}, fmt.Errorf("read result of %s: %w", r.Fun, errTooLarge)
			}
			parts = append(parts, o.Value...)
			if o.Kind == kindPart {
				continue
			}
			o.Value = parts
		}
		v, err := value.Unpack(o.Value)
		if err != nil {
			return RunResult{}, fmt.Errorf("read output of %s: %w", r.Fun, err)
		}
		if o.Kind != kindResult {
			out(o.Kind, v)
			continue
		}
		return RunResult{JID: o.Jid, Return: v, Success: o.Success, Retcode: int(o.Retcode),
			Outputter: o.Outputter, NotRun: o.NotRun}, nil
	}
}

// Docs maps the runner functions under prefix to their texts.
func (c *Client) Docs(ctx context.Context, prefix string) (value.Map, error) {
	r, err := c.rpc.Docs(ctx, &operatorpb.DocsRequest{Prefix: prefix})
	if err != nil {
		return nil, fromStatus(err)
	}
	return value.UnpackMap(r.Docs)
}

// Lists reads all keys. Without texts their Pub is "".
func (c *Client) Lists(ctx context.Context, texts bool) (KeyLists, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Keys(ctx, &operatorpb.KeysRequest{NoTexts: !texts})
	if err != nil {
		return KeyLists{}, fromStatus(err)
	}
	var lists KeyLists
	for first := true; ; first = false {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lists, nil
		}
		if err != nil {
			return KeyLists{}, fromStatus(err)
		}
		if first {
			lists.Local, lists.Note = r.Local, r.Note
		}
		lists.Keys = append(lists.Keys, keysFromPB(r.Keys)...)
	}
}

// Change accepts, rejects or deletes keys on every master.
func (c *Client) Change(ctx context.Context, k KeyChange) (KeysChanged, error) {
	r, err := c.rpc.ChangeKeys(ctx, &operatorpb.ChangeKeysRequest{
		Action: k.Action, Keys: keysToPB(k.Keys), PreserveMinions: k.PreserveMinions,
		KeepAesKey: k.KeepAESKey,
	})
	if err != nil {
		return KeysChanged{}, fromStatus(err)
	}
	return KeysChanged{Changed: keysFromPB(r.Changed), Warnings: r.Warnings}, nil
}

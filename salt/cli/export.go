package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"clustermaster/value"
)

// askExport asks before the cluster's RSA key is written to a file, and adds the confirmation that
// the function requires. Without a terminal it adds nothing; the function then says what it needs.
func (e Env) askExport(fun string, args []any, kwargs value.Map) (value.Map, error) {
	_, given := kwargs.Get("confirm")
	f, ok := e.Stdin.(*os.File)
	if fun != "cluster.export_key" || given || len(args) > 1 || !ok ||
		!term.IsTerminal(int(f.Fd())) {
		return kwargs, nil
	}
	fmt.Fprint(e.Stderr,
		"Whoever reads cluster.pem can pose as the master to every minion. Write it? [y/N] ")
	line, err := bufio.NewReader(io.LimitReader(f, 16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y") {
		return nil, errors.New("nothing written")
	}
	return append(kwargs, value.Pair{Key: "confirm", Value: true}), nil
}

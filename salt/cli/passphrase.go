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

// askPassphrase adds the passphrase of a backup to the arguments if they lack it. On a terminal the
// user types it unseen, twice for a backup; from any other input it is the first line. This keeps
// it off the command line, where other users could see it.
func (e Env) askPassphrase(fun string, args []any, kwargs value.Map) (value.Map, error) {
	_, typed := kwargs.Get("passphrase")
	_, named := kwargs.Get("passphrase_file")
	if fun != "cluster.backup" && fun != "cluster.restore" || typed || named || len(args) > 1 {
		return kwargs, nil
	}
	f, ok := e.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(e.Stdin, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read passphrase: %w", err)
		}
		return append(kwargs, value.Pair{Key: "passphrase",
			Value: strings.TrimRight(line, "\r\n")}), nil
	}
	read := func(prompt string) (string, error) {
		fmt.Fprint(e.Stderr, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(e.Stderr)
		return string(b), err
	}
	first, err := read("Passphrase: ")
	if err == nil && fun == "cluster.backup" {
		var again string
		if again, err = read("Again: "); err == nil && again != first {
			err = errors.New("the two entries differ")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read passphrase: %w", err)
	}
	return append(kwargs, value.Pair{Key: "passphrase", Value: first}), nil
}

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"clustermaster/config"
	"clustermaster/serve/operator"
	"clustermaster/value"
)

// Salt's texts.
const (
	notAuthenticated = "Authentication error occurred."
	eauthRefused     = `Authentication failure of type "eauth" occurred for user %s.`
	tokenRefused     = `Authentication failure of type "token" occurred.`
	userRefused      = `Authentication failure of type "user" occurred`
	eauthUnknown     = `The specified external authentication system "%s" is not available`
)

// eauthTypes are the back ends of this master.
var eauthTypes = []string{"auto", "file", "ldap", "pam", "rest", "sharedsecret"}

// maxTokenFile bounds a file with a token in bytes.
const maxTokenFile = 4096

// errNoLogin says that there are no credentials to try.
var errNoLogin = errors.New("Authentication failed") // Salt's text

// login makes the daemon's further calls those of a user of external_auth. It does so if the
// command line has -a or, with saved, if a saved token exists.
//
// A saved token wins over a password; root and the master's user then act as themselves.
// Without one, login asks for name and password, and with -T makes a token and saves it. The
// error is errNoLogin, an *operator.RefusedError if the master refuses the credentials, or the
// reason why it did not answer.
func (e Env) login(ctx context.Context, v values, o *config.Options, d Daemon, saved bool) error {
	eauth := v.text("eauth")
	if eauth == "" && !saved {
		return nil
	}
	path := e.tokenFile(o)
	if token := savedToken(path, o.TokenExpire); token != "" {
		if isMaster(o) {
			return nil
		}
		return e.loggedIn(ctx, d, operator.Credentials{Token: token})
	}
	if eauth == "" {
		return nil
	}
	named := slices.ContainsFunc(o.ExternalAuth, func(p value.Pair) bool { return p.Key == eauth })
	if !named && !slices.Contains(eauthTypes, eauth) { // the site's own or Salt's
		e.println(fmt.Sprintf(eauthUnknown, eauth) + "\nAvailable eauth types: " +
			strings.Join(eauthTypes, ", "))
		return errNoLogin
	}
	creds, err := e.askCredentials(v, eauth)
	if err != nil {
		return err
	}
	if v.on("mktoken") {
		token, err := d.MakeToken(ctx, creds)
		if err != nil {
			return err
		}
		if token != "" {
			if err := saveToken(path, token); err != nil {
				e.logWarning("The token was not saved: " + err.Error())
			}
			creds = operator.Credentials{Token: token}
		}
	}
	return e.loggedIn(ctx, d, creds)
}

func (e Env) loggedIn(ctx context.Context, d Daemon, creds operator.Credentials) error {
	name, err := d.Login(ctx, creds)
	if err != nil || name != "" {
		return err
	}
	if creds.Token != "" {
		return &operator.RefusedError{Text: tokenRefused}
	}
	return &operator.RefusedError{Text: fmt.Sprintf(eauthRefused, creds.Username)}
}

// isMaster reports whether this process runs as root or as the owner of the master's socket,
// who is the master's user.
func isMaster(o *config.Options) bool {
	if os.Geteuid() == 0 {
		return true
	}
	info, err := os.Stat(o.OperatorSocket())
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// askCredentials asks for the credentials that the command line lacks. An empty name
// means the process's user.
func (e Env) askCredentials(v values, eauth string) (operator.Credentials, error) {
	creds := operator.Credentials{Eauth: eauth, Username: v.text("username"),
		Password: v.text("password")}
	in := bufio.NewReader(io.LimitReader(e.Stdin, 64<<10))
	line := func() (string, error) {
		text, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && text != "" {
			err = nil
		}
		return strings.TrimRight(text, "\r\n"), err
	}
	var err error
	if !v.given("username") {
		fmt.Fprint(e.Stdout, "username: ")
		if creds.Username, err = line(); err != nil {
			return creds, fmt.Errorf("read username: %w", err)
		}
	}
	if creds.Username == "" {
		if u, err := user.Current(); err == nil {
			creds.Username = u.Username
		}
	}
	if !v.given("password") {
		if creds.Password, err = e.hidden(line); err != nil {
			return creds, fmt.Errorf("read password: %w", err)
		}
	}
	return creds, nil
}

// hidden reads a password: from a terminal without showing it, or as a line of any other input.
func (e Env) hidden(line func() (string, error)) (string, error) {
	const prompt = "password: "
	if f, ok := e.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(e.Stderr, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(e.Stderr)
		return string(b), err
	}
	fmt.Fprint(e.Stderr, prompt)
	return line()
}

// tokenFile is the path of this user's token; "" if the user has no home.
func (e Env) tokenFile(o *config.Options) string {
	path := o.TokenFile
	home := e.Getenv("HOME")
	switch {
	case path == "" && home == "":
		return "" // no home, so no token
	case path == "":
		folder, xdg := config.ClientDir(e.Getenv)
		path = filepath.Join(folder, "salt_token")
		if xdg {
			return path
		}
		if _, err := os.Lstat(path); err != nil {
			// the path in Salt's manual
			if _, err := os.Lstat(filepath.Join(home, ".salt_token")); err == nil {
				return filepath.Join(home, ".salt_token")
			}
		}
		return path
	}
	return config.ExpandUser(path, home)
}

// savedToken reads a token that was saved less than within ago; "" if there is none.
func savedToken(path string, within time.Duration) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) >= within {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// saveToken writes a token that only its owner can read.
func saveToken(path, token string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		if err = f.Chmod(0o600); err == nil { // an older file may be open to others
			_, err = f.WriteString(token)
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("save token: %w", err)
	}
	return nil
}

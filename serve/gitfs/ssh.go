package gitfs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"
)

// withSSH adds git's settings for ssh. Without a passphrase ssh asks no questions; with one it asks
// the program askpass, which answers only that question. A server's own questions go there too, so
// ssh tries nothing but keys then.
func (p *program) withSSH(env []string, a Access, ask string) []string {
	command := "ssh -o ConnectTimeout=30 -o ServerAliveInterval=15"
	if p.knownHosts != "" {
		command += " -o StrictHostKeyChecking=yes -o " +
			quoted(`UserKnownHostsFile="`+p.knownHosts+`"`)
	}
	if a.Privkey != "" {
		command += " -o IdentitiesOnly=yes -i " + quoted(a.Privkey)
	}
	if a.Passphrase == "" {
		command += " -o BatchMode=yes"
	} else {
		command += " -o PreferredAuthentications=publickey"
		env = append(env, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:none",
			"CM_GIT_PASSPHRASE="+a.Passphrase)
	}
	return append(env, "GIT_SSH_COMMAND="+command, "GIT_SSH_VARIANT=ssh")
}

var sshHost = regexp.MustCompile(`(?m)^(?:No \S+ host key is known for|Host key for) (\S+) `)

// sshReason returns in one line why ssh did not reach a server: fact, option, remedy. It is ""
// where git's own message is better.
func (p *program) sshReason(told []byte, r *Remote) string {
	has := func(s string) bool { return bytes.Contains(told, []byte(s)) }
	host := "the git server"
	if m := sshHost.FindSubmatch(told); m != nil {
		host = string(bytes.ToValidUTF8(m[1], []byte("?")))
	}
	known := "~/.ssh/known_hosts of this master's user"
	if p.knownHosts != "" {
		known = p.knownHosts
	}
	key, a := "", r.Access
	if a.Privkey != "" {
		key = fmt.Sprintf(" %q", a.Privkey)
	}
	switch {
	case has("HOST IDENTIFICATION HAS CHANGED"):
		return fmt.Sprintf("option git_known_hosts: the host key of %s has changed, or somebody poses as the server; "+
			"check it with the server's administrator and replace it in %s", host, known)
	case has("Host key verification failed"):
		return fmt.Sprintf("option git_known_hosts: the host key of %s is not known; "+
			"check it with the server's administrator and add it to %s", host, known)
	case has("UNPROTECTED PRIVATE KEY FILE"):
		return "option privkey: others may read" + key + ", so ssh does not use it; chmod 600 it"
	case !has("Permission denied ("):
		return ""
	case a.Privkey == "":
		return "option privkey: it is not set, and the server takes no key that this master's user or agent has; " +
			"set it, or have the server accept one of those keys"
	}
	switch option := badKey(a); option {
	case "":
		return "option privkey: the server does not accept the key" + key +
			" for this user; add its public key there, or check the user in the URL"
	case "passphrase":
		why := "is wrong for the key"
		if a.Passphrase == "" {
			why = "is not set, and no agent has the key"
		}
		return "option passphrase: it " + why + key + "; correct it"
	default:
		return "option privkey:" + key + " is not a private key that ssh can read; name one"
	}
}

// badKey tests a private key with its passphrase, and returns the name of the wrong option, or "".
func badKey(a Access) (option string) {
	data, err := os.ReadFile(a.Privkey)
	if err != nil {
		return "privkey"
	}
	_, err = ssh.ParseRawPrivateKey(data)
	var missing *ssh.PassphraseMissingError
	if errors.As(err, &missing) {
		if a.Passphrase == "" {
			return "passphrase"
		}
		_, err = ssh.ParseRawPrivateKeyWithPassphrase(data, []byte(a.Passphrase))
	}
	switch {
	case errors.Is(err, x509.IncorrectPasswordError):
		return "passphrase"
	case err != nil && !strings.Contains(string(data), "PRIVATE KEY-----"):
		return "privkey"
	}
	return "" // also for kinds of keys that only ssh can read
}

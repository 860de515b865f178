package auth

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// maxUserFile bounds a file of users in bytes.
const maxUserFile = 16 << 20

// file authenticates users with a file that it reads at each attempt.
type file struct {
	name, kind string

	// for text files
	hash           string
	separator      string
	user, password int // field numbers, from 0

	realm string // for htdigest
}

// newFile reads the parameters of external_auth:file.
func newFile(section value.Map) (*file, error) {
	f := &file{kind: "text", hash: "plaintext", separator: ":", user: 0, password: 1}
	for _, p := range section {
		key, _ := p.Key.(string)
		text, isText := p.Value.(string)
		switch key {
		case "^filename", "^filetype", "^hashtype", "^field_separator", "^realm":
			if !isText {
				return nil, fmt.Errorf("%s is not text", key)
			}
		}
		var err error
		switch key {
		case "^filename":
			f.name = text
		case "^filetype":
			f.kind = text
		case "^hashtype":
			f.hash = text
		case "^field_separator":
			f.separator = text
		case "^realm":
			f.realm = text
		case "^username_field":
			f.user, err = field(p.Value)
		case "^password_field":
			f.password, err = field(p.Value)
		default:
			if _, isList := p.Value.([]any); !isList {
				err = errors.New("there is no such parameter")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	switch {
	case f.name == "":
		return nil, errors.New("^filename is missing; it names the file of users")
	case f.kind != "text" && f.kind != "htpasswd" && f.kind != "htdigest":
		return nil, fmt.Errorf("^filetype %q: use text, htpasswd or htdigest", f.kind)
	case f.kind == "text" && f.hash != "plaintext" && digest(f.hash, "") == "":
		return nil, fmt.Errorf("^hashtype %q: use plaintext, md5, sha256 or sha512", f.hash)
	case f.separator == "":
		return nil, errors.New("^field_separator is empty")
	case f.kind == "htdigest" && f.realm == "":
		return nil, errors.New("htdigest needs ^realm")
	}
	return f, nil
}

// field returns the number of a field, which files count from 1.
func field(v any) (int, error) {
	n, ok := v.(int64)
	if text, isText := v.(string); isText {
		var err error
		n, err = strconv.ParseInt(text, 10, 32)
		ok = err == nil
	}
	if !ok || n < 1 || n > 1000 {
		return 0, fmt.Errorf("%v is not the number of a field; fields count from 1", v)
	}
	return int(n) - 1, nil
}

func (f *file) check(_ context.Context, user, password string) (known, bool, error) {
	if password == "" {
		return known{}, false, nil
	}
	in, err := os.Open(f.name)
	if err != nil {
		return known{}, false, fmt.Errorf("open file of users: %w", err)
	}
	defer in.Close()
	content, err := io.ReadAll(io.LimitReader(in, maxUserFile+1))
	if err != nil {
		return known{}, false, fmt.Errorf("read file of users: %w", err)
	}
	if len(content) > maxUserFile {
		return known{}, false, fmt.Errorf("read file of users: more than %d bytes", maxUserFile)
	}
	var right bool
	switch f.kind {
	case "htpasswd":
		right, err = htpasswd(content, user, password)
	case "htdigest":
		right, err = htdigest(content, user, f.realm, password)
	default:
		right, err = f.text(content, user, password)
	}
	if err != nil {
		return known{}, false, fmt.Errorf("%s: %w", f.name, err)
	}
	return known{}, right, nil
}

// text looks for a user in lines of fields. As in Salt a line without the fields ends the search.
func (f *file) text(content []byte, user, password string) (bool, error) {
	if !utf8.Valid(content) {
		return false, errors.New("not UTF-8")
	}
	for n, line := range lines(content) {
		fields := strings.Split(strings.TrimSpace(line), f.separator)
		if len(fields) <= f.user || len(fields) <= f.password {
			return false, fmt.Errorf("line %d has no field %d; correct or remove it", n+1,
				max(f.user, f.password)+1)
		}
		if fields[f.user] != user {
			continue
		}
		if f.hash != "plaintext" {
			password = digest(f.hash, password)
		}
		return same(fields[f.password], password), nil
	}
	return false, nil
}

// digest returns what Salt's hashutil.digest makes; "" for a hash that Salt does not have.
func digest(hash, text string) string {
	switch hash {
	case "md5":
		sum := md5.Sum([]byte(text))
		return hex.EncodeToString(sum[:])
	case "sha256":
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	case "sha512":
		sum := sha512.Sum512([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	return ""
}

// lines splits content at line ends and drops them.
func lines(content []byte) []string {
	var out []string
	in := bufio.NewScanner(bytes.NewReader(content))
	in.Buffer(nil, maxUserFile+1)
	for in.Scan() {
		out = append(out, in.Text())
	}
	return out
}

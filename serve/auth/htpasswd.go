package auth

import (
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/GehirnInc/crypt"
	"github.com/GehirnInc/crypt/apr1_crypt"
	"github.com/GehirnInc/crypt/sha256_crypt"
	"github.com/GehirnInc/crypt/sha512_crypt"
	"golang.org/x/crypto/bcrypt"
)

// Bounds of the work that a line of a file can cause.
const (
	maxBcryptCost = 14
	maxRounds     = 1_000_000
	maxCrypted    = 512 // bytes of a password that all rounds process
)

var errScheme = errors.New("this kind of password is not supported; make it again with htpasswd -B")

// htpasswd looks for a user in a file of Apache's htpasswd. The first line of a user counts.
func htpasswd(content []byte, user, password string) (bool, error) {
	hash, found, err := record(content, user+":", 2)
	if err != nil || !found {
		return false, err
	}
	return checkHash(hash, password)
}

// htdigest looks for a user of a realm in a file of Apache's htdigest.
func htdigest(content []byte, user, realm, password string) (bool, error) {
	hash, found, err := record(content, user+":"+realm+":", 3)
	if err != nil || !found {
		return false, err
	}
	sum := md5.Sum([]byte(user + ":" + realm + ":" + password))
	return same(strings.ToLower(hash), hex.EncodeToString(sum[:])), nil
}

// record returns the last field of the line with this beginning. Every line must have this many
// fields; it skips empty lines and comments.
func record(content []byte, begin string, fields int) (last string, found bool, err error) {
	if strings.Count(begin, ":") != fields-1 {
		return "", false, nil // the user's name contains a colon
	}
	for n, line := range lines(content) {
		line = strings.TrimRight(line, " \t\r\v\f")
		if t := strings.TrimLeft(line, " \t"); t == "" || t[0] == '#' {
			continue
		}
		if strings.Count(line, ":") != fields-1 {
			return "", false, fmt.Errorf("line %d does not have %d fields; correct or remove it", n+1, fields)
		}
		if rest, ok := strings.CutPrefix(line, begin); ok && !found {
			last, found = rest, true
		}
	}
	return last, found, nil
}

// desCrypt matches DES hashes, so that they are not mistaken for plain passwords.
var desCrypt = regexp.MustCompile(`^[./0-9A-Za-z]{13}$`)

// checkHash compares a password with a hash of htpasswd, passlib or crypt(3).
func checkHash(hash, password string) (bool, error) {
	by := func(c crypt.Crypter) (bool, error) {
		return c.Verify(hash,
			[]byte(password)) == nil, nil
	}
	switch {
	case strings.HasPrefix(hash, "$2"):
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || cost > maxBcryptCost {
			return false, fmt.Errorf("bcrypt of cost %d: %w", cost, errScheme)
		}
		if len(password) > 72 { // bcrypt uses only these bytes, as in passlib and Apache
			password = password[:72]
		}
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil, nil
	case strings.HasPrefix(hash, "$apr1$"):
		return by(apr1_crypt.New())
	case strings.HasPrefix(hash, "$5$"), strings.HasPrefix(hash, "$6$"):
		if rest, ok := strings.CutPrefix(hash[3:], "rounds="); ok {
			number, salted, _ := strings.Cut(rest, "$")
			n, err := strconv.Atoi(number)
			if err != nil || n > maxRounds {
				return false, fmt.Errorf("%s rounds: %w", number, errScheme)
			}
			// the library does not write these, and so would not recognize them
			if n == sha512_crypt.RoundsDefault {
				hash = hash[:3] + salted
			}
		}
		if len(password) > maxCrypted {
			return false, nil
		}
		if hash[1] == '5' {
			return by(sha256_crypt.New())
		}
		return by(sha512_crypt.New())
	case strings.HasPrefix(hash, "{SHA}"):
		sum := sha1.Sum([]byte(password))
		return same(hash[5:], base64.StdEncoding.EncodeToString(sum[:])), nil
	case strings.HasPrefix(hash, "$"), strings.HasPrefix(hash, "{"), desCrypt.MatchString(hash),
		hash == "":
		return false, errScheme
	}
	return same(hash, password), nil
}

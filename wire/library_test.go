package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// question is one message of ours for testdata/vectors.py to read, and what the library must make
// of it.
type question struct {
	Kind      string `json:"kind"`
	Message   string `json:"message"`
	Key       string `json:"key"`
	ID        string `json:"id"`
	Master    string `json:"master,omitempty"`
	MasterKey string `json:"master key,omitempty"`
	Enc       string `json:"enc"`
	Sig       string `json:"sig"`
	Nonce     string `json:"nonce"`
	Token     string `json:"token"`
	Version   int    `json:"version"`

	name string
	want any
}

// The library of each release reads everything that we make.
func TestLibraryReadsOurs(t *testing.T) {
	folder := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if folder == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	questions := ours(t)
	input, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range []string{"salt-3006.28", "salt-3007.15", "salt-3008.3"} {
		python := filepath.Join(folder, release, "bin", "python")
		t.Run(release, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), python, "testdata/vectors.py", "read")
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			cmd.Stdin = bytes.NewReader(input)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("vectors.py: %v\n%s", err, stderr.String())
			}
			var answers []string
			if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(questions) {
				t.Fatalf("%d answers to %d questions, %v", len(answers), len(questions), err)
			}
			for i, q := range questions {
				if text, ok := q.want.(string); ok && strings.HasPrefix(text, "error ") {
					if !strings.HasPrefix(answers[i], text) {
						t.Errorf("%s: got %s, want %s", q.name, answers[i], text)
					}
					continue
				}
				if want := hex.EncodeToString(mustPack(q.want)); answers[i] != want {
					t.Errorf("%s: got %s, want %s", q.name, answers[i], want)
				}
			}
		})
	}
}

// ours makes one of each message.
func ours(t *testing.T) []question {
	t.Helper()
	master, minion := goldenKey(t, "master"), goldenKey(t, "minion")
	aes, session := NewCrypticle(mustKey(t, golden().AES)), NewCrypticle(mustKey(t,
		golden().Session))
	tok, err := TokenSalt(minion)
	if err != nil {
		t.Fatal(err)
	}
	var out []question
	add := func(q question, message []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
		q.Message, q.Key = hex.EncodeToString(message), golden().Keys["minion"]
		q.ID, q.Nonce, q.Token = "m1", golden().Nonce, hex.EncodeToString(golden().Token)
		out = append(out, q)
	}
	val := value.Map{{Key: "text", Value: "Gr\u00fc\u00dfe"}, {Key: "bytes", Value: []byte{0xff}},
		{Key: "list", Value: []any{nil, 1.5, -7, uint64(1 << 63)}},
		{Key: "long", Value: strings.Repeat("x", 70000)}}
	b, err := value.Pack(val)
	add(question{name: "unpack", Kind: "unpack", want: val}, b, err)
	b, err = value.PackNew(val)
	add(question{name: "unpack new", Kind: "unpack", want: val}, b, err)

	for _, algo := range [][2]string{{EncSHA1, SigSHA1}, {EncSHA224, SigSHA224}} {
		q := question{Enc: algo[0], Sig: algo[1], Version: 3}
		s := SignIn{ID: "m1", Nonce: golden().Nonce, EncAlgo: algo[0], SigAlgo: algo[1],
			Pub: minion.Public().Text()}
		grant := Grant{Master: master, Minion: minion.Public(), PublishPort: 4505,
			AES: mustKey(t, golden().AES), Session: mustKey(t, golden().Session)}
		granted := value.Map{{Key: "aes", Value: golden().AES},
			{Key: "session", Value: golden().Session}, {Key: "publish_port", Value: 4505}}

		q.Kind, q.name, q.want = "signin", "first contact "+algo[0], granted
		b, err = grant.Reply(s, 3)
		add(q, b, err)
		q.name, q.Master = "known master "+algo[0], golden().MasterPub
		if s.Token, err = master.Public().Encrypt(algo[0], golden().Token); err != nil {
			t.Fatal(err)
		}
		b, err = grant.Reply(s, 3)
		add(q, b, err)
		q.name, q.want = "pending "+algo[0], "retry"
		b, err = AuthReply(master, s, 3, true)
		add(q, b, err)
		q.name, q.want = "full "+algo[0], "full"
		b, err = AuthReply(master, s, 3, "full")
		add(q, b, err)
		q.name, q.want = "bad enc algo "+algo[0], "bad enc algo"
		add(q, BadEncAlgo().Reply, nil)
		q.name, q.want = "bad sig algo "+algo[0], "bad sig algo"
		add(q, BadSigAlgo().Reply, nil)
		q.name, q.want = "bad load "+algo[0], false
		add(q, BadLoad("").Reply, nil)

		q.Kind, q.name, q.want = "pillar", "pillar "+algo[0], val
		b, err = PrivateReply(master, minion.Public(), algo[0], algo[1], golden().Nonce, 3,
			"pillar", val)
		add(q, b, err)

		q.Kind, q.name, q.want = "publication", "publication "+
			algo[1], value.Map{{Key: "fun", Value: "test.ping"}, {Key: "arg", Value: []any{}}}
		b, err = Publication(aes, master, algo[1],
			value.Map{{Key: "fun", Value: "test.ping"}, {Key: "arg", Value: []any{}}})
		add(q, b, err)

		for version := range 4 {
			c := aes
			if version > 2 {
				c = session
			}
			q.Kind, q.name, q.want, q.Version, q.MasterKey = "request", "request "+
				algo[0], true, version, golden().Keys["master"]
			b, err = Sender{Version: version, ID: "m1", Tok: tok, EncAlgo: algo[0],
				SigAlgo: algo[1]}.SealRequest(
				c, value.Map{{Key: "cmd", Value: "_return"},
					{Key: "id", Value: "m1"}}, golden().Nonce, time.Now())
			add(q, b, err)
		}
	}
	q := question{Kind: "sealed", Enc: EncSHA1, Sig: SigSHA1, name: "sealed", want: val}
	b, err = SealedReply(session, val, golden().Nonce)
	add(q, b, err)
	q.name, q.want = "sealed nil", nil
	b, err = SealedReply(session, nil, golden().Nonce)
	add(q, b, err)
	q.name, q.want = "sealed, other nonce", "error SaltClientError: Nonce verification error"
	b, err = SealedReply(session, nil, strings.Repeat("0", 32))
	add(q, b, err)
	q.name, q.want = "sealed, bad load", "error AuthenticationError: would sign in again"
	add(q, BadLoad("").Reply, nil)
	q.name, q.want = "sealed, other key", "error AuthenticationError: would sign in again"
	b, err = SealedReply(aes, nil, golden().Nonce)
	add(q, b, err)
	return out
}

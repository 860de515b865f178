package auth_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"clustermaster/serve/auth"
	"clustermaster/value"
)

// confirmed asks one back end. A refusal's second passes at once, so no process or socket may be
// behind it.
func confirmed(t *testing.T, eauth string, section value.Map, who value.Map) (ok bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, _, said := opened(t, auth.Options{External: dict(eauth, section)}, auth.Deps{})
		id, err := a.Authenticate(t.Context(), "10.0.0.1", who)
		ok = err == nil && id.Name == who.String("username")
		if word := who.String("password"); len(word) > 3 && strings.Contains(said.String(), word) {
			t.Errorf("the log has the password %q:\n%s", word, said)
		}
	})
	return ok
}

type userFile struct {
	name    string
	content string
	params  []any       // name, value, ...
	users   [][3]string // name, password, and "ok" if confirmed
}

func textFiles() []userFile {
	return []userFile{
		{"plain", "dean:goneFishing\ngene:OceanMan\ndean:second\nspaces: in the word \nempty:\n",
			nil, [][3]string{
				{"dean", "goneFishing", "ok"}, {"gene", "OceanMan", "ok"}, {"dean", "second", ""},
				{"dean", "OceanMan", ""}, {"Dean", "goneFishing", ""},
				{"spaces", " in the word", "ok"}, {"spaces", "in the word", ""},
				{"spaces", " in the word ", ""}, {"nobody", "x", ""}, {"dean:goneFishing", "x", ""},
			}},
		{"a line without the fields ends the search", "one:1\n\ntwo:2\n", nil,
			[][3]string{{"one", "1", "ok"}, {"two", "2", ""}}},
		{"no line end, and one of another system", "one:1\r\ntwo:2", nil,
			[][3]string{{"one", "1", "ok"}, {"two", "2", "ok"}}},
		{"more fields",
			"46|trey|16a0034f90b06bf3c5982ed8ac41aab4|x\n555|mike|b6e02a4d2cb2a6ef0669e79be6fd02e4\n", []any{
				"^hashtype", "md5", "^username_field", int64(2), "^password_field", "3",
				"^field_separator", "|",
			}, [][3]string{{"trey", "16a0034f90b06bf3c5982ed8ac41aab4", ""}, {"mike", "x", ""},
				{"46", "trey", ""}}},
		{"md5", "carol:5f4dcc3b5aa765d61d8327deb882cf99\n", []any{"^hashtype", "md5"},
			[][3]string{{"carol", "password", "ok"},
				{"carol", "5f4dcc3b5aa765d61d8327deb882cf99", ""}}},
		{"sha256", "carol:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\n",
			[]any{"^hashtype", "sha256"},
			[][3]string{{"carol", "password", "ok"}, {"carol", "passwor", ""}}},
		{"sha512",
			"carol:b109f3bbbc244eb82441917ed06d618b9008dd09b3befd1b5e07394c706a8bb980b1d7785e5976ec049b46df5f1326af5a2ea6d103fd07c95385ffab0cacbc86\n", []any{"^hashtype", "sha512"},
			[][3]string{{"carol", "password", "ok"}, {"carol", "Password", ""}}},
		{"a longer separator", "carol::word\n", []any{"^field_separator", "::"},
			[][3]string{{"carol", "word", "ok"}, {"carol", ":word", ""}}},
		{"letters", "zoë:pässwörd\n", nil,
			[][3]string{{"zoë", "pässwörd", "ok"}, {"zoë", "passwörd", ""}}},
		{"nothing", "", nil, [][3]string{{"carol", "x", ""}}},
		{"no UTF-8", "a:b\n\xff\xfe:x\n", nil, [][3]string{{"a", "b", ""}}},
	}
}

func (f userFile) section(t *testing.T) value.Map {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(dict("^filename", path), dict(f.params...)...)
}

func TestFile(t *testing.T) {
	t.Parallel()
	const hashes = "# made with openssl passwd, crypt(3) and by hand\n\n" +
		"apr1:$apr1$abcdefgh$wlsRDhr1plFpD/w3LeamF0\n" +
		"sha256:$5$abcdefgh$hG95ouSX6nFoDRpPm8.j7WodZMZVL2fPAZiwYeQAUNB\n" +
		"sha512:$6$rounds=5000$abcdefgh$gkdffJ4sPXSH4db5E0oJlhaoAjyxhTRpT82MTWBTkD2CwVJMSaf/cDwNCJQjzbHeUb9cd8G9jpyLBsluVonQC/\n" +
		"bcrypt:$2b$04$1jGwIx3aIt5fWG/LC7I3g.2aBBJxCMKAS65wErEbXIPJT0m5Dsi3m\n" +
		"apache:$2y$04$1jGwIx3aIt5fWG/LC7I3g.2aBBJxCMKAS65wErEbXIPJT0m5Dsi3m\n" +
		"sha1:{SHA}aPyGhutp2SiverRtEOvSTKtOlhM=\n" +
		"plain:pass-é\nplain:second\n" +
		"des:rl0uE0hlV0dbM\nssha:{SSHA}x\nrounds:$6$rounds=900000000$abcdefgh$x\ncost:$2b$31$1jGwIx3aIt5fWG/LC7I3g.2aBBJxCMKAS65wErEbXIPJT0m5Dsi3m\nempty:\n"
	var known [][3]string
	for _, user := range []string{"apr1", "sha256", "sha512", "bcrypt", "apache", "sha1", "plain"} {
		known = append(known, [3]string{user, "pass-é", "ok"}, [3]string{user, "pass-e", ""})
	}
	all := append(textFiles(),
		userFile{"htpasswd", hashes, []any{"^filetype", "htpasswd"}, append(known, [][3]string{
			{"des", "rl0uE0hlV0dbM", ""}, {"ssha", "{SSHA}x", ""}, {"rounds", "x", ""},
			{"cost", "pass-é", ""}, {"empty", "x", ""}, {"plain", "second", ""},
			{"plain:pass-é", "x", ""}, {"# made", "x", ""}, {"nobody", "x", ""},
			{"sha1", "{SHA}aPyGhutp2SiverRtEOvSTKtOlhM=", ""},
		}...)},
		userFile{"a line that is none", "carol:word\nnonsense\n", []any{"^filetype", "htpasswd"},
			[][3]string{{"carol", "word", ""}}},
		userFile{"htdigest", "carol:other:x\ncarol:the realm:3b6ad04af423a156908d9c4a8e8154e6\n",
			[]any{"^filetype", "htdigest", "^realm", "the realm"}, [][3]string{
				{"carol", "pass-é", "ok"}, {"carol", "pass-e", ""}, {"dave", "pass-é", ""},
				{"carol", "3b6ad04af423a156908d9c4a8e8154e6", ""},
			}},
		userFile{"another realm", "carol:the realm:3b6ad04af423a156908d9c4a8e8154e6\n",
			[]any{"^filetype", "htdigest", "^realm", "realm"},
			[][3]string{{"carol", "pass-é", ""}}},
		userFile{"no password", "carol:\n", nil, [][3]string{{"carol", "", ""}}},
	)
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			section := f.section(t)
			for _, u := range f.users {
				if got := confirmed(t, "file", section,
					creds("file", u[0], u[1])); got != (u[2] == "ok") {
					t.Errorf("%s with %q: confirmed %v", u[0], u[1], got)
				}
			}
		})
	}
	if confirmed(t, "file", dict("^filename", filepath.Join(t.TempDir(), "nosuch")),
		creds("file", "carol", "x")) {
		t.Error("a file that is not there confirms")
	}
}

// TestFileLikeSalt gives the files of text to Salt's own back end.
func TestFileLikeSalt(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	files := textFiles()
	var asked []any
	for _, f := range files {
		params := map[string]any{}
		for _, p := range f.section(t) {
			params[p.Key.(string)] = p.Value
		}
		var users [][2]string
		for _, u := range f.users {
			users = append(users, [2]string{u[0], u[1]})
		}
		asked = append(asked, []any{params, users})
	}
	in, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(venvs, "salt-3008.3", "bin", "python"),
		filepath.Join("testdata", "salt_file.py"))
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers [][]bool
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(files) {
		t.Fatalf("%d answers: %v", len(answers), err)
	}
	for i, f := range files {
		for j, u := range f.users {
			if answers[i][j] != (u[2] == "ok") {
				t.Errorf("%s: %s with %q: Salt says %v", f.name, u[0], u[1], answers[i][j])
			}
		}
	}
}

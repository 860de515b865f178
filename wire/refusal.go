package wire

import (
	"strconv"
	"unicode/utf8"
)

// Refusal is the answer to a request that is not served. It is not an error of ours: the reply must be sent, because a minion
// that hears nothing waits for a minute.
type Refusal struct {
	// Reply is what to send, packed; nil if the connection is to be closed, so that an honest sender tries again. It is
	// shared: don't modify it.
	Reply []byte
	// Reason is a short word for a metric label.
	Reason string
}

// Error gives the reason.
func (r *Refusal) Error() string { return "request refused: " + r.Reason }

// Texts with which Salt refuses. Minions know "bad load" by its failing authentication, and sign in again.
const (
	textBadLoad  = "bad load"
	textNotAMap  = "payload and load must be a dict"
	textNullByte = "bad load: id contains a null byte"
	textFailed   = "Some exception handling minion payload"
)

// BadLoad is the reply "bad load", which makes a minion sign in again and repeat its request once.
func BadLoad(reason string) *Refusal { return refuse(textBadLoad, reason) }

// Failed is the reply for a request that the master could not carry out.
func Failed(reason string) *Refusal { return refuse(textFailed, reason) }

// NotReady is the reply of a cluster member that can't serve yet; minions try again.
func NotReady() *Refusal {
	return &Refusal{Reply: mustPack(Map{
		{"enc", "clear"}, {"load", Map{{"ret", false}, {"cluster_retry", true}}},
	}), Reason: "not_ready"}
}

// NoMemory is for a request that can't be decoded now, because those being served hold too much memory.
func NoMemory() *Refusal { return &Refusal{Reason: "memory"} }

// BadSigAlgo is the unsigned reply to a sign-in whose sig_algo is unknown.
func BadSigAlgo() *Refusal {
	return &Refusal{Reply: mustPack(unsignedAuth(Map{{"ret", "bad sig algo"}})), Reason: "sig_algo"}
}

// BadEncAlgo is the unsigned reply to a sign-in whose enc_algo is unknown.
func BadEncAlgo() *Refusal {
	return &Refusal{Reply: mustPack(unsignedAuth(Map{{"ret", "bad enc algo"}})), Reason: "enc_algo"}
}

func refuse(text, reason string) *Refusal { return &Refusal{Reply: mustPack(text), Reason: reason} }

func routingError() *Refusal {
	return &Refusal{Reply: mustPack(Map{{"error", "Routing error"}}), Reason: "routing"}
}

// mustPack packs a value of our own, which can't fail.
func mustPack(v any) []byte {
	b, err := Pack(v)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return b
}

// checkID refuses an id inside a load as Salt does: for a NUL byte, or for a kind in which Python can't look for one. Other
// kinds pass here and fail where the id is used. An absent id passes. A long id is not decoded.
func checkID(id Raw) *Refusal {
	if len(id) == 0 {
		return nil
	}
	h, err := readHead(id, 0)
	if err != nil {
		return BadLoad("id")
	}
	switch h.kind {
	case kindArray, kindMap:
		return nil
	case kindRaw:
		s := id[h.end : h.end+h.n]
		if !utf8.Valid(s) {
			break
		}
		for _, c := range s {
			if c == 0 {
				return refuse(textNullByte, "id_null_byte")
			}
		}
		return nil
	case kindExt:
		if h.ext == extConst || h.n > maxEchoed {
			return refuse("bad load: id ? is not a string", "id_not_text")
		}
	}
	v, err := Unpack(id)
	if err != nil {
		return BadLoad("id")
	}
	return refuse("bad load: id "+pythonText(v)+" is not a string", "id_not_text")
}

// maxEchoed bounds how much of a wrong id goes back to its sender.
const maxEchoed = 256

// pythonText writes a scalar as Python's str does.
func pythonText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case float64:
		return pythonFloat(v)
	case []byte:
		return pythonBytes(v[:min(len(v), maxEchoed)])
	case Time:
		if v.Nanosecond() == 0 {
			return v.Format("2006-01-02 15:04:05")
		}
		return v.Format("2006-01-02 15:04:05.000000")
	}
	return "?"
}

func pythonFloat(v float64) string {
	format := byte('g')
	if a := max(v, -v); a == 0 || (a >= 1e-4 && a < 1e16) {
		format = 'f'
	}
	s := strconv.FormatFloat(v, format, -1, 64)
	switch s {
	case "NaN":
		return "nan"
	case "+Inf":
		return "inf"
	case "-Inf":
		return "-inf"
	}
	if format == 'f' {
		for _, c := range s {
			if c == '.' {
				return s
			}
		}
		return s + ".0"
	}
	return s
}

func pythonBytes(b []byte) string {
	quote := byte('\'')
	single, double := false, false
	for _, c := range b {
		single = single || c == '\''
		double = double || c == '"'
	}
	if single && !double {
		quote = '"'
	}
	out := []byte{'b', quote}
	const hex = "0123456789abcdef"
	for _, c := range b {
		switch {
		case c == quote || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ' || c >= 0x7f:
			out = append(out, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
	}
	return string(append(out, quote))
}

package wire

import (
	"unicode/utf8"

	"clustermaster/value"
)

// Refusal is the answer to a request that the master does not serve. It is not an internal error:
// send the reply, because a minion without an answer waits for a minute.
type Refusal struct {
	// Reply is the packed reply; nil means to close the connection, so that an honest sender tries
	// again. It is shared: don't modify it.
	Reply []byte
	// Reason is a short word for a metric label.
	Reason string
}

// Error gives the reason.
func (r *Refusal) Error() string { return "request refused: " + r.Reason }

// Salt's refusals. Minions recognize "bad load" by its failing authentication, and sign in again.
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

// NotReady is the reply of a cluster member that can't serve yet, on which minions try again.
func NotReady() *Refusal {
	return &Refusal{Reply: mustPack(value.Map{
		{Key: "enc", Value: "clear"}, {Key: "load",
			Value: value.Map{{Key: "ret", Value: false}, {Key: "cluster_retry", Value: true}}},
	}), Reason: "not_ready"}
}

// NoMemory refuses a request that can't be decoded now, because the running ones hold too much
// memory.
func NoMemory() *Refusal { return &Refusal{Reason: "memory"} }

// BadSigAlgo is the unsigned reply to a sign-in whose sig_algo is unknown.
func BadSigAlgo() *Refusal {
	return &Refusal{Reply: mustPack(unsignedAuth(value.Map{{Key: "ret", Value: "bad sig algo"}})),
		Reason: "sig_algo"}
}

// BadEncAlgo is the unsigned reply to a sign-in whose enc_algo is unknown.
func BadEncAlgo() *Refusal {
	return &Refusal{Reply: mustPack(unsignedAuth(value.Map{{Key: "ret", Value: "bad enc algo"}})),
		Reason: "enc_algo"}
}

func refuse(text, reason string) *Refusal { return &Refusal{Reply: mustPack(text), Reason: reason} }

func routingError() *Refusal {
	return &Refusal{Reply: mustPack(value.Map{{Key: "error", Value: "Routing error"}}),
		Reason: "routing"}
}

// mustPack packs a value of our own, which can't fail.
func mustPack(v any) []byte {
	b, err := value.Pack(v)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return b
}

// checkID refuses an id inside a load as Salt does: if it has a NUL byte, or a type in which Python
// can't look for one. Other types pass here and fail where the id is used. An absent id passes. A
// long id is not decoded.
func checkID(id value.Raw) *Refusal {
	if len(id) == 0 {
		return nil
	}
	h, err := value.ReadHead(id, 0)
	if err != nil {
		return BadLoad("id")
	}
	switch h.Kind {
	case value.KindArray, value.KindMap:
		return nil
	case value.KindRaw:
		s := id[h.End : h.End+h.N]
		if !utf8.Valid(s) {
			break
		}
		for _, c := range s {
			if c == 0 {
				return refuse(textNullByte, "id_null_byte")
			}
		}
		return nil
	case value.KindExt:
		if h.N > maxEchoed {
			return refuse("bad load: id ? is not a string", "id_not_text")
		}
	}
	v, err := value.Unpack(id)
	if err != nil {
		return BadLoad("id")
	}
	if b, ok := v.([]byte); ok {
		v = b[:min(len(b), maxEchoed)]
	}
	return refuse("bad load: id "+value.Str(v)+" is not a string", "id_not_text")
}

// maxEchoed bounds how much of a wrong id goes back to its sender.
const maxEchoed = 256

package jobcache

import (
	"fmt"

	"clustermaster/wire"
)

// Keys of a stored return; they are on disk.
const (
	keyReturn  = "return"
	keyRetcode = "retcode"
	keySuccess = "success"
	keyOut     = "out"
	keyFunArgs = "fun_args"
	keyStamp   = "_stamp"
)

func packReturn(r Return) ([]byte, error) {
	m := wire.Map{{Key: keyReturn, Value: r.Return}}
	add := func(key string, v wire.Raw) {
		if len(v) > 0 {
			m = append(m, wire.Pair{Key: key, Value: v})
		}
	}
	add(keyRetcode, r.Retcode)
	add(keySuccess, r.Success)
	add(keyFunArgs, r.FunArgs)
	if r.Out != "" {
		m = append(m, wire.Pair{Key: keyOut, Value: r.Out})
	}
	if r.Stamp != "" {
		m = append(m, wire.Pair{Key: keyStamp, Value: r.Stamp})
	}
	return wire.Pack(m)
}

func unpackReturn(b []byte) (Return, error) {
	m, err := wire.UnpackRawMap(b)
	if err != nil {
		return Return{}, err
	}
	r := Return{Out: m.String(keyOut), Stamp: m.String(keyStamp)}
	r.Return, _ = m.Get(keyReturn)
	r.Retcode, _ = m.Get(keyRetcode)
	r.Success, _ = m.Get(keySuccess)
	r.FunArgs, _ = m.Get(keyFunArgs)
	return r, nil
}

func unpackIDs(b []byte) ([]string, error) {
	v, err := wire.Unpack(b)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("minion list is a %T", v)
	}
	ids := make([]string, 0, len(list))
	for _, x := range list {
		id, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("minion id is a %T", x)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

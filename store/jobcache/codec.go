package jobcache

import (
	"fmt"

	"clustermaster/value"
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
	m := value.Map{{Key: keyReturn, Value: r.Return}}
	add := func(key string, v value.Raw) {
		if len(v) > 0 {
			m = append(m, value.Pair{Key: key, Value: v})
		}
	}
	add(keyRetcode, r.Retcode)
	add(keySuccess, r.Success)
	add(keyFunArgs, r.FunArgs)
	if r.Out != "" {
		m = append(m, value.Pair{Key: keyOut, Value: r.Out})
	}
	if r.Stamp != "" {
		m = append(m, value.Pair{Key: keyStamp, Value: r.Stamp})
	}
	return value.Pack(m)
}

func unpackReturn(b []byte) (Return, error) {
	m, err := value.UnpackRawMap(b)
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
	v, err := value.Unpack(b)
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

package statemodules

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/salt/function"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// checks are the functions of module test that need the master.
func checks(d Deps) orchestrate.Table {
	return orchestrate.Table{"test.check_pillar": {
		Params: append(append([]function.Param{need("name")},
			none("present", "boolean", "integer", "string", "listing", "dictionary")...),
			opt("verbose", false)),
		Run: pillarCheck{d.Modules}.run,
	}}
}

type pillarCheck struct{ modules Modules }

// pillarTypes are the checks in the order in which they run. text is the type as Python prints it.
var pillarTypes = []struct {
	param, text string
	is          func(any) bool
}{
	{"present", "None", func(any) bool { return true }},
	{"boolean", "<class 'bool'>", func(v any) bool { _, ok := v.(bool); return ok }},
	{"integer", "<class 'int'>", func(v any) bool {
		_, number := value.Int(v)
		_, truth := v.(bool) // a bool is an int in Python
		return number || truth
	}},
	{"string", "(<class 'str'>,)", func(v any) bool { _, ok := v.(string); return ok }},
	{"listing", "<class 'list'>", func(v any) bool { _, ok := v.([]any); return ok }},
	{"dictionary", "<class 'dict'>", func(v any) bool { _, ok := v.(value.Map); return ok }},
}

func (p pillarCheck) run(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	asked := false
	for _, t := range pillarTypes {
		asked = asked || value.Truth(c.Arg(t.param))
	}
	if !asked {
		return nil,
			errors.New("Missing required argument text.") // Salt's text
	}
	failed, fine := value.Map{}, value.Map{} // key to its fault, or to its type
	for _, t := range pillarTypes {
		keys, err := pillarKeys(c.Arg(t.param))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t.param, err)
		}
		for _, key := range keys {
			v, err := p.modules.Call(ctx, c.Master, "pillar.get", []any{key, nil}, nil)
			switch {
			case err != nil:
				return nil, err
			case v == nil:
				failed = failed.Set(value.Str(key), "is missing.\n")
			case !t.is(v):
				failed = failed.Set(value.Str(key), "is not "+t.text+".\n")
			default:
				fine = fine.Set(value.Str(key), t.text)
			}
		}
	}
	comment := ""
	for _, f := range failed {
		comment += fmt.Sprintf("Pillar key \"%s\" %s", f.Key, f.Value)
	}
	if value.Truth(c.Arg("verbose")) && len(fine) > 0 {
		comment += "Those keys passed the check:\n"
		for _, f := range fine {
			comment += fmt.Sprintf("- %s (%s)\n", f.Key, f.Value)
		}
	}
	return orchestrate.Return(c.Name, nil, len(failed) == 0, comment), nil
}

// pillarKeys reads one key or a list of keys.
func pillarKeys(v any) ([]any, error) {
	switch v := v.(type) {
	case string:
		return []any{v}, nil
	case []any:
		return v, nil
	default:
		if value.Truth(v) {
			return nil, fmt.Errorf("%s is neither a key nor a list of keys", value.Repr(v))
		}
	}
	return nil, nil
}

package orchestrate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"clustermaster/salt/modules"
	"clustermaster/value"
)

// slotMark begins a text that the run replaces by the return of an execution function.
const slotMark = "__slot__:"

// slots fills the slots among arguments: in texts, and in texts one level down in maps, lists, and
// maps in lists.
func (x *run) slots(ctx context.Context, who modules.Minion, args value.Map) (value.Map, error) {
	out := slices.Clone(args)
	for i, p := range out {
		v, err := x.slot(ctx, who, p.Value, 2)
		if err != nil {
			return nil, err
		}
		out[i].Value = v
	}
	return out, nil
}

func (x *run) slot(ctx context.Context, who modules.Minion, v any, levels int) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, slotMark) {
			return x.fill(ctx, who, v)
		}
	case value.Map:
		out := slices.Clone(v)
		for i, p := range v {
			if text, ok := p.Value.(string); ok {
				if out[i].Value, err = x.slot(ctx, who, text, 0); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	case []any:
		if levels < 2 {
			return v, nil
		}
		out := slices.Clone(v)
		for i, e := range v {
			if out[i], err = x.slot(ctx, who, e, levels-1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// fill returns the value of one slot; a text that does not call a function stays unchanged.
func (x *run) fill(ctx context.Context, who modules.Minion, slot string) (any, error) {
	parts := strings.SplitN(slot, ":", 3)
	if len(parts) != 3 || parts[1] != "salt" {
		x.o.log.Warn("slot is not of the form __slot__:salt:module.function(arguments); it stays as it is", "slot", slot)
		return slot, nil
	}
	fun, args, kwargs, ok, err := parseCall(parts[2])
	if err != nil {
		return nil, err
	}
	if !ok || !x.o.deps.Modules.Has(ctx, fun) {
		x.o.log.Warn("slot names no function of the execution modules; it stays as it is",
			"slot", slot)
		return slot, nil
	}
	v, err := x.o.deps.Modules.Call(ctx, who, fun, args, kwargs)
	if err != nil {
		return nil, err
	}
	call, more, added := strings.Cut(parts[2], "~")
	if _, path, ok := strings.Cut(call[strings.LastIndexByte(call, ')')+1:], "."); ok {
		v, _ = value.Traverse(v, strings.TrimSpace(path), ".")
	}
	if text, ok := v.(string); ok && added {
		more = strings.TrimSpace(more)
		if n := len(more); n >= 2 && more[0] == more[n-1] && (more[0] == '"' || more[0] == '\'') {
			more = more[1 : n-1]
		}
		return text + more, nil
	}
	return v, nil
}

// parseCall reads a call such as module.function(a, 'b', key=c): Salt's parse_function. All
// arguments are texts.
func parseCall(text string) (fun string, args []any, kwargs value.Map, ok bool, err error) {
	tokens, err := shellTokens(text)
	if err != nil {
		return "", nil, nil, false, err
	}
	at := slices.Index(tokens, "(")
	if at < 1 {
		return "", nil, nil, false, nil
	}
	fun = strings.Join(tokens[:at], "")
	var word []string
	var open []byte
	key := ""
	for _, t := range tokens[at+1:] {
		switch {
		case t == "[" || t == "{" || t == "(" ||
			t == "": // Python counts an empty text as a bracket
			word = append(word, t)
			open = append(open, (t + " ")[0])
		case (t == "," || t == ")") && len(open) == 0:
			if key != "" {
				kwargs = kwargs.Set(key, strings.Join(word, ""))
			} else if len(word) > 0 {
				args = append(args, strings.Join(word, ""))
			}
			if t == ")" {
				return fun, args, kwargs, true, nil
			}
			key, word = "", nil
		case t == "]" || t == "}" || t == ")":
			closes := map[byte]string{'[': "]", '{': "}", '(': ")"}
			if len(open) == 0 || closes[open[len(open)-1]] != t {
				return "", nil, nil, false, nil
			}
			open = open[:len(open)-1]
			word = append(word, t)
		case t == "=" && len(open) == 0:
			key, word = strings.Join(word, ""), nil
		default:
			word = append(word, t)
		}
	}
	return "", nil, nil, false, nil
}

// shellTokens splits as Python's shlex does: words, quoted texts, and single other characters.
func shellTokens(text string) (tokens []string, err error) {
	var token strings.Builder
	quoted := false
	end := func() {
		if token.Len() > 0 || quoted {
			tokens = append(tokens, token.String())
		}
		token.Reset()
		quoted = false
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; {
		case strings.ContainsRune(" \t\r\n", c):
			end()
		case c == '#':
			end()
			for i < len(runes) && runes[i] != '\n' {
				i++
			}
		case c == '\\':
			if i++; i == len(runes) {
				return nil, errors.New("No escaped character") // Python's text
			}
			token.WriteRune(runes[i])
		case c == '\'' || c == '"':
			quoted = true
			for i++; ; i++ {
				if i >= len(runes) {
					return nil,
						errors.New("No closing quotation") // Python's text
				}
				if runes[i] == c {
					break
				}
				if runes[i] == '\\' && i+1 < len(runes) {
					if i++; runes[i] != '\\' && runes[i] != c {
						token.WriteRune('\\')
					}
				}
				token.WriteRune(runes[i])
			}
		case c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
			c >= 0xc0 && c <= 0xff && c != 0xd7 && c != 0xf7:
			token.WriteRune(c)
		default:
			end()
			tokens = append(tokens, string(c))
		}
	}
	end()
	return tokens, nil
}
